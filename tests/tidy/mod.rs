//! The map, enforced: layers, homes of heavy crates, first doc lines, sizes.

use std::fs;
use std::path::{Path, PathBuf};

/// A file has at most this many lines; `TABLES` may have more.
const MOST_LINES: usize = 500;

/// Files that are one long table.
const TABLES: [&str; 0] = [];

/// Crates with the only places that may name them.
const HOMES: [(&str, &[&str]); 7] = [
    ("ratatui", &["src/tui/"]),
    ("crossterm", &["src/tui/run/", "src/tui/keys.rs"]),
    ("candle_core", &["src/engine/"]),
    ("gemm", &["src/engine/kernels/cpu/"]),
    ("cudarc", &["src/engine/kernels/cuda/", "src/engine/fabric/cuda/"]),
    ("clap", &["src/cli/"]),
    ("pulldown_cmark", &["src/teach/"]),
];

/// Uses of the operating system with the only places that may have them.
const DOORS: [(&str, &[&str]); 4] = [
    ("Instant::now", &["src/engine/live/", "src/tui/run/"]),
    ("thread::spawn", &["src/engine/live/", "src/tui/run/"]),
    ("std::fs", &["src/scenario/", "src/teach/", "src/observe/export/", "src/checkpoint/", "src/cli/", "src/tui/run/"]),
    ("File::", &["src/scenario/", "src/teach/", "src/observe/export/", "src/checkpoint/", "src/cli/", "src/tui/run/"]),
];

/// Rooms that must not name a room above them: `room`, what it must not name.
const STRANGERS: [(&str, &[&str]); 3] = [
    ("engine", &["scenario", "compile", "schedule"]),
    ("observe", &["engine", "compile"]),
    ("program", &["scenario", "compile", "engine"]),
];

/// A source file: its path below the package, its text.
struct Source {
    path: String,
    text: String,
}

/// All Rust files below `folder`.
fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join(folder)];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.expect("a readable entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(Source { path: relative(root, &path), text: fs::read_to_string(&path).expect("UTF-8") });
            }
        }
    }
    assert!(!sources.is_empty(), "no sources below {folder}");
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

fn relative(root: &Path, path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root).expect("below the package").into();
    path.to_string_lossy().replace('\\', "/")
}

/// Fails with all findings.
fn report(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n{}", findings.join("\n"));
}

/// The lines of `source` that are no comments, with their numbers.
fn code(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.text.lines().enumerate().map(|(number, line)| (number + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn every_file_starts_with_what_it_is() {
    let missing = |source: &Source| !source.text.starts_with("//! ");
    let all = ["src", "tests", "benches"].into_iter().flat_map(sources);
    let findings: Vec<String> = all.filter(missing).map(|source| source.path).collect();
    report("a file starts with a `//!` line that says what it is", &findings);
}

#[test]
fn files_are_short() {
    let long = |source: &Source| {
        let lines = source.text.lines().count();
        (lines > MOST_LINES && !TABLES.contains(&source.path.as_str())).then(|| format!("{}: {lines} lines", source.path))
    };
    let findings: Vec<String> =
        ["src", "tests", "benches"].into_iter().flat_map(sources).filter_map(|source| long(&source)).collect();
    report("a file has at most 500 lines", &findings);
}

#[test]
fn rooms_name_only_rooms_above_them() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).expect("src/lib.rs");
    let rooms: Vec<&str> = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert!(rooms.len() > 3, "src/lib.rs lists the rooms");
    let mut findings = Vec::new();
    for source in sources("src") {
        let Some(place) = rooms.iter().position(|room| in_room(&source.path, room)) else { continue };
        let stranger = |room: &&str| STRANGERS.iter().any(|(name, strangers)| *name == rooms[place] && strangers.contains(room));
        let barred = rooms.iter().enumerate().filter(|(other, room)| *other > place || stranger(room)).map(|(_, room)| room);
        for room in barred {
            let name = format!("crate::{room}");
            let named = code(&source).filter(|(_, line)| names(line, &name));
            findings.extend(named.map(|(number, _)| format!("{}:{number}: {} names {room}", source.path, rooms[place])));
        }
    }
    report("a room names only rooms above it in src/lib.rs, and none that it must not know", &findings);
}

fn in_room(path: &str, room: &str) -> bool {
    path.starts_with(&format!("src/{room}/")) || path == format!("src/{room}.rs")
}

/// Whether `line` has `name` as whole path segments.
fn names(line: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(start, _)| {
        let (before, after) = (line[..start].chars().next_back(), line[start + name.len()..].chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[test]
fn heavy_crates_stay_at_home() {
    let mut findings = Vec::new();
    for source in sources("src") {
        for (name, homes) in HOMES.iter().filter(|(_, homes)| !homes.iter().any(|home| source.path.starts_with(home))) {
            let uses = code(&source).filter(|(_, line)| names(line, &format!("{name}::")) || names(line, &format!("use {name}")));
            findings.extend(uses.map(|(number, _)| format!("{}:{number}: {name} lives in {homes:?}", source.path)));
        }
    }
    report("each heavy crate has one home", &findings);
}

#[test]
fn files_clocks_and_threads_have_their_doors() {
    let mut findings = Vec::new();
    for source in sources("src") {
        for (name, doors) in DOORS.iter().filter(|(_, doors)| !doors.iter().any(|door| source.path.starts_with(door))) {
            let uses = code(&source).filter(|(_, line)| line.contains(name));
            findings.extend(uses.map(|(number, _)| format!("{}:{number}: `{name}` belongs in {doors:?}", source.path)));
        }
    }
    report("only named rooms touch files, clocks and threads", &findings);
}

#[test]
fn architecture_is_short() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    assert!(text.lines().count() <= 150, "ARCHITECTURE.md has at most 150 lines");
}
