//! Files that are made, whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes `bytes` to a file that does not exist yet.
///
/// # Errors
/// If it exists, or cannot be written: then nothing is left behind.
pub fn write_new(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes.as_ref()).and_then(|()| file.sync_all()).inspect_err(|_| {
        // Half a file would stand in the way of the next try. It is this call's own: it did not exist before.
        let _ = fs::remove_file(path);
    })
}

/// Writes `text` in place of what is in a file, or in the file that a link leads to: until all of it is written, that stays as it was.
///
/// # Errors
/// If it cannot be written, or is a device or the like: then it is as before.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = &fs::canonicalize(path)?;
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file that could be replaced"));
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    write_new(beside, text)?;
    fs::rename(beside, path).inspect_err(|_| {
        let _ = fs::remove_file(beside);
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A new, empty folder of this test's own.
    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("ranklab-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn what_is_replaced_is_a_file() {
        let folder = folder("replaced");
        let [file, link, socket, missing] = ["file", "link", "socket", "missing"].map(|name| folder.join(name));
        fs::write(&file, "old").expect("a file");
        symlink("file", &link).expect("a link");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        replace(&link, "new").expect("the file behind the link");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "new");
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        assert_eq!(replace(&socket, "new").expect_err("no file").kind(), io::ErrorKind::InvalidInput);
        assert_eq!(replace(&missing, "new").expect_err("nothing").kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 3);
        fs::remove_dir_all(&folder).expect("the folder");
    }
}
