//! The book: the pages that are made from tables are what the program makes, and its summary lists every page.

use std::fs;
use std::path::{Path, PathBuf};

use ranklab::schedule::SCHEDULES;
use ranklab::teach::book::PAGES;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("book/src")
}

#[test]
fn made_pages_are_what_is_made() {
    for (name, make) in PAGES {
        let page = fs::read_to_string(folder().join(format!("{name}.md"))).expect("a page of the book");
        assert!(page == make().expect("shapes have no kernels"), "ranklab show {name} > book/src/{name}.md");
        let missing: Vec<&str> =
            SCHEDULES.iter().map(|row| row.name).filter(|name| !page.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "{name} says nothing of {missing:?}");
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = fs::read_to_string(folder().join("SUMMARY.md")).expect("a summary");
    for entry in fs::read_dir(folder()).expect("a folder") {
        let name = entry.expect("a file").file_name().to_string_lossy().into_owned();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "{name} is not in the summary");
    }
    let linked = summary.split('(').skip(1).filter_map(|rest| rest.split(')').next());
    linked.for_each(|name| assert!(folder().join(name).is_file(), "{name} is missing"));
}
