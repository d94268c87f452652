//! Files: exports and scenarios go into new files; what exists is left as it is.

use std::io::ErrorKind;
use std::path::Path;

use crate::base::words::shell_word;
use crate::observe::export::{Format, file};

/// Writes `text` to the file `name`, which must not exist, and says where it is.
pub fn write_new(name: &str, text: &str) -> String {
    match file::write_new(Path::new(name), text) {
        Ok(()) => format!("wrote {name}"),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => format!("{name} exists, and is left as it is"),
        Err(error) => format!("cannot write {name}: {error}"),
    }
}

/// Writes a sheet to the file `name` and says where it is; `None` if it exists and is not to be replaced.
pub fn write_plan(name: &str, text: &str, overwrite: bool) -> Option<String> {
    let path = Path::new(name);
    let written = if overwrite { file::replace(path, text) } else { file::write_new(path, text) };
    match written {
        Ok(()) => {
            Some(format!("wrote {name}: `ranklab run {}` runs it with a small model, and PyTorch loads it", shell_word(name)))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !overwrite => None,
        Err(error) => Some(format!("cannot write {name}: {error}")),
    }
}

/// Writes `text` into the current directory, to a file that is named after `title` and does not exist yet, and says where it is.
pub fn write_somewhere(title: &str, format: Format, text: &str) -> String {
    let mut names = (1..=MOST_NAMES).map(|number| name(title, format, number));
    let written = names.find_map(|name| match file::write_new(Path::new(&name), text) {
        Ok(()) => Some(format!("wrote {name}")),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
        Err(error) => Some(format!("cannot write {name}: {error}")),
    });
    written.unwrap_or_else(|| format!("{MOST_NAMES} exports of this run are here already: move some away"))
}

const MOST_NAMES: u32 = 999;

/// `1f1b-on-four-stages.svg`, then `1f1b-on-four-stages-2.svg`.
fn name(title: &str, format: Format, number: u32) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    let stem: String = if words.is_empty() { "run".to_owned() } else { words.join("-").chars().take(60).collect() };
    let number = if number == 1 { String::new() } else { format!("-{number}") };
    format!("{stem}{number}.{}", extension(format))
}

fn extension(format: Format) -> &'static str {
    match format {
        Format::Text => "txt",
        Format::Json => "json",
        Format::Perfetto => "perfetto.json",
        Format::Svg => "svg",
        Format::Csv => "csv",
        Format::Trace => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_titles() {
        assert_eq!(name("1F1B on four stages", Format::Svg, 1), "1f1b-on-four-stages.svg");
        assert_eq!(name("1F1B, on two stages!", Format::Perfetto, 2), "1f1b-on-two-stages-2.perfetto.json");
        assert_eq!(name("../..", Format::Csv, 1), "run.csv");
        assert!(name(&"long ".repeat(99), Format::Text, 1).len() < 70);
    }
}
