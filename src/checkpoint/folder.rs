//! The folder of a checkpoint: the only door through which checkpoints touch files. Tests put one in its place that fails.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// What checkpoints need of a folder.
pub trait Folder {
    /// Names of its files.
    ///
    /// # Errors
    /// If it cannot be read; [`io::ErrorKind::NotFound`] if it is not there.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The bytes of a file, at most `most` and one more.
    ///
    /// # Errors
    /// If it is not there, is no plain file, or cannot be read.
    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>>;

    /// Makes or replaces a file. When this returns, its bytes are on disk; if it fails, part of them may be.
    ///
    /// # Errors
    /// If it cannot be written.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Gives a file another name, at once, and in place of the file that has it.
    ///
    /// # Errors
    /// If it cannot: then both are as they were.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// If it cannot.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// A folder on disk; it is made when the first file is written.
#[derive(Clone, Debug)]
pub struct Disk(pub PathBuf);

impl Folder for Disk {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        read_file(&self.0.join(name), most)
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match fs::create_dir(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut file = File::create(self.0.join(name))?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))?;
        // The new name, too, is to outlast a loss of power; where folders cannot be synchronised, the system does what it can.
        let _ = File::open(&self.0).and_then(|folder| folder.sync_all());
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }
}

/// The bytes of a plain file, at most `most` and one more: a pipe or a device would never end.
///
/// # Errors
/// If it is not there, is no plain file, or cannot be read.
pub(super) fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}
