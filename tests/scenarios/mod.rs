//! Scenarios: every kind of mistake has its message, every shipped file parses, and the table of keys is what users see.

mod examples;
mod mistakes;
mod texts;
mod topology;

use std::fs;
use std::path::{Path, PathBuf};

/// The TOML files of `folder`, a path from the repository's root, sorted by name, each with its text.
fn toml_files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder is readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let name = |path: &Path| path.file_name().expect("a file has a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).expect("a file is readable"))).collect()
}
