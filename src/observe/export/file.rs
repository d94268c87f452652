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

/// Writes `text` in place of what is in a file: until all of it is written, that stays as it was.
///
/// # Errors
/// If it cannot be written: then the file is as before.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    write_new(beside, text)?;
    fs::rename(beside, path).inspect_err(|_| {
        let _ = fs::remove_file(beside);
    })
}
