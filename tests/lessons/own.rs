//! A learner's own folder of lessons adds to those that ship, and hides none.

use std::fs;
use std::path::PathBuf;

use ranklab::scenario::{Scenario, merged};
use ranklab::teach::lesson::Origin;
use ranklab::teach::library::{NotFound, scenarios};

use super::{format::SMALL, shipped};

/// A fresh folder with these files.
fn folder(name: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("lessons-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder of the test");
        fs::write(path, content).expect("a file of the test");
    }
    root
}

#[test]
fn own_lessons_stand_beside_the_shipped_ones() {
    let small = SMALL.as_bytes();
    let root = folder(
        "beside",
        &[
            ("07-mine/lesson.md", small),
            ("07-mine/scenario.toml", b"seed = 1"),
            ("07-mine/star.toml", b"seed = 2"),
            (".git/config", b""),
        ],
    );
    let library = shipped().with_folder(&root);
    assert_eq!(library.broken(), []);
    let numbers: Vec<u32> = library.lessons().iter().map(|lesson| lesson.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]);
    let mine = library.find("mine").expect("the own lesson");
    assert_eq!(mine.origin, Origin::Folder(root.join("07-mine")));
    assert_eq!(mine.scenarios[0].text, "seed = 1");
    let _ = fs::remove_dir_all(root);
}

#[test]
fn nothing_is_hidden() {
    let other = SMALL.replace("number = 7", "number = 11");
    let root = folder(
        "hidden",
        &[
            ("11-1f1b/lesson.md", SMALL.as_bytes()),
            ("11-other/lesson.md", other.as_bytes()),
            ("11-other/scenario.toml", b"seed = 1"),
            ("11-other/star.toml", b"seed = 2"),
            ("72-empty/notes.txt", b""),
            ("73-latin/lesson.md", b"+++\ntitle = \"caf\xe9\""),
            ("74-broken/lesson.md", b"no front matter"),
        ],
    );
    let library = shipped().with_folder(&root);
    let broken: Vec<String> = library
        .broken()
        .iter()
        .flat_map(|broken| &broken.problems)
        .map(|problem| problem.to_string().replace(&root.display().to_string(), "ROOT"))
        .collect();
    insta::assert_snapshot!(broken.join("\n"));
    assert_eq!(library.find("11-1f1b").map(|lesson| &lesson.origin), Ok(&Origin::Shipped));
    let several = NotFound::Several { wanted: "11".to_owned(), names: vec!["11-1f1b".to_owned(), "11-other".to_owned()] };
    assert_eq!(library.find("11").map(|lesson| lesson.name.clone()), Err(several));
    assert!(matches!(library.find("74"), Err(NotFound::Broken(_))));
    let _ = fs::remove_dir_all(root);
}

/// A scenario of a lesson goes where the lesson's folder does not: the sheet that it names goes with it.
#[test]
fn a_lesson_carries_the_sheets_that_its_scenarios_name() {
    let root = folder(
        "sheets",
        &[
            ("07-mine/lesson.md", SMALL.as_bytes()),
            ("07-mine/scenario.toml", b"seed = 1\n[pipeline]\ncsv = \"plan.csv\"  # mine\np2p = \"buffered\"\n"),
            ("07-mine/star.toml", b"pipeline = { csv = \"other.csv\" }"),
            ("07-mine/plan.csv", b"0F0,0B0\r\n1F0,1B0\r\n"),
        ],
    );
    let library = shipped().with_folder(&root);
    assert_eq!(library.broken(), []);
    let mine = library.find("mine").expect("the own lesson");
    let text = &mine.scenario("scenario.toml").expect("a scenario").text;
    assert!(text.ends_with("  # mine\np2p = \"buffered\"\n"), "{text}");
    let ranks =
        |text: &str| Scenario::parse("scenario.toml", text, &[]).map(|scenario| scenario.ranks()).map_err(|p| p.to_string());
    assert_eq!(ranks(text), Ok(2));
    let saved = merged("scenario.toml", text, &["seed=3".to_owned()]).expect("a scenario");
    assert_eq!(ranks(&saved), Ok(2), "{saved}");
    let star = &mine.scenario("star.toml").expect("a scenario").text;
    assert_eq!(star, "pipeline = { csv = \"other.csv\" }");
    assert!(ranks(star).is_err_and(|problem| problem.contains("other.csv")), "there is no such sheet");
    let wrong = text.replace("1B0", "1B0x");
    assert!(ranks(&wrong).is_err_and(|problem| problem.contains("row 2, column 2: `1B0x`")), "{:?}", ranks(&wrong));
    let _ = fs::remove_dir_all(root);
}

#[test]
fn a_folder_that_cannot_be_read_is_a_problem() {
    let library = shipped().with_folder(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("there-is-no-such-folder"));
    assert_eq!(library.lessons().len(), shipped().lessons().len());
    assert_eq!(library.broken().len(), 1);
}

#[test]
fn scenarios_ship_too() {
    let names: Vec<String> = scenarios().map(|scenario| scenario.name).collect();
    assert!(names.contains(&"1f1b-p4m8.toml".to_owned()), "{names:?}");
    assert!(scenarios().all(|scenario| !scenario.text.is_empty()));
}
