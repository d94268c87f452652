//! Lessons are found by number, name, or the start of a name.

use super::shipped;

#[test]
fn a_lesson_is_found() {
    let library = shipped();
    let check = |wanted: &str, expected: &str| {
        let found = library.find(wanted).map(|lesson| lesson.name.as_str());
        assert_eq!(found, Ok(expected), "{wanted}");
    };
    check("11", "11-1f1b");
    check("011", "11-1f1b");
    check("1", "01-memory-ledger");
    check("2", "02-ring-all-reduce");
    check("02-ring-all-reduce", "02-ring-all-reduce");
    check("ring", "02-ring-all-reduce");
    check("1f1b", "11-1f1b");
    check("1F1B", "11-1f1b");
    check("ddp", "04-ddp");
    check("g", "10-gpipe");
}

#[test]
fn a_missing_lesson_names_the_nearest() {
    let library = shipped();
    let check = |wanted: &str, expected: &str| {
        let message = library.find(wanted).map(|lesson| lesson.name.clone()).expect_err("no such lesson").to_string();
        assert_eq!(message, expected);
    };
    check("1fb1", "there is no lesson `1fb1`: did you mean `11-1f1b`?");
    check("gpip-e", "there is no lesson `gpip-e`: did you mean `10-gpipe`?");
    check("rign-all-reduce", "there is no lesson `rign-all-reduce`: did you mean `02-ring-all-reduce`?");
    check("99", "there is no lesson `99`: `ranklab list` shows all");
    check("", "there is no lesson ``: `ranklab list` shows all");
    check("0", "there is no lesson `0`: `ranklab list` shows all");
    check("19", "there is no lesson `19`: `ranklab list` shows all");
}
