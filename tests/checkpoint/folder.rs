//! A folder in memory, which fails when it is told to.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};

use ranklab::checkpoint::Folder;

/// Files by their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Which of its changes fails, and how; changes are counted from 0.
    pub fails: Option<(usize, Failure)>,
    pub changes: usize,
}

/// How a change fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failure {
    /// The process ends in its middle: nothing is done any more.
    Crash,
    /// The disk is full: half of the file is there, and what takes no room can be done.
    Full,
}

impl Memory {
    /// A change begins; a write of `room` bytes takes room.
    fn begins(&mut self, is_write: bool) -> Result<()> {
        let number = self.changes;
        self.changes += 1;
        match self.fails {
            Some((at, Failure::Crash)) if number >= at => Err(Error::other("the process has ended")),
            Some((at, Failure::Full)) if number >= at && is_write => Err(Error::from(ErrorKind::StorageFull)),
            _ => Ok(()),
        }
    }
}

impl Folder for Memory {
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn read(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let bytes = self.files.get(name).ok_or(ErrorKind::NotFound)?;
        Ok(bytes.iter().copied().take(usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1)).collect())
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let begins = self.begins(true);
        let there = if begins.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        let is_last_breath = matches!(self.fails, Some((at, Failure::Crash)) if self.changes == at + 1);
        if begins.is_ok() || is_last_breath || matches!(self.fails, Some((_, Failure::Full))) {
            self.files.insert(name.to_owned(), there.to_vec());
        }
        begins
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        self.begins(false)?;
        let bytes = self.files.remove(from).ok_or(ErrorKind::NotFound)?;
        self.files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.begins(false)?;
        self.files.remove(name).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }
}
