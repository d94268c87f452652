//! The format: what is written becomes blocks; what is wrong is said with file and line; nothing panics.

use proptest::prelude::*;
use ranklab::teach::lesson::{Folder, Lesson, Origin, ScenarioText};

/// A lesson with everything that the format knows.
pub const SMALL: &str = r#"+++
title = "Small"
number = 7
module = "X. Tests"
minutes = 5
goal = "Nothing."
view = "memory"
knobs = [
    { key = "batch.micro_batches", values = [4, 8] },
    { key = "pipeline.schedule", values = ["1f1b", "gpipe"] },
]
sources = ["a book"]
+++

# First

<!-- stop: event 3 -->

Some *soft*, **hard** and `coded` text,
which (`r0`) goes on.

- one
- two

1. first
2. second

| N | 2 |
|---|---|
| x | 1 |

```
---
as is
```

> LOOK at r0.

---

# Second

<!-- view: links --> <!-- scenario: star.toml -->

> TRY `batch.micro_batches = 4, 8`: and then?

> ASK why?
> And how?
> ANSWER
> Because.
>
> Really.
"#;

fn parse(text: &str) -> Result<Lesson, String> {
    let scenario = |name: &str| ScenarioText { name: name.to_owned(), text: String::new() };
    let folder = Folder {
        name: "07-small".to_owned(),
        origin: Origin::Shipped,
        lesson: text.to_owned(),
        scenarios: if text.contains("star.toml") {
            vec![scenario("star.toml"), scenario("scenario.toml")]
        } else {
            vec![scenario("scenario.toml")]
        },
    };
    Lesson::parse(folder).map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_lesson_is_read() {
    let lesson = parse(SMALL).expect("a lesson that can be read");
    insta::assert_debug_snapshot!(lesson);
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let windows = format!("\u{feff}{}", SMALL.replace('\n', "\r\n"));
    assert_eq!(parse(&windows), parse(SMALL));
}

/// One change to the small lesson each, and what is said about it.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "+++\n",
        "",
        "07-small/lesson.md:1: the first line is not +++ (a lesson begins with its front matter, between two lines +++)",
    ),
    (
        "]\n+++\n",
        "]\n",
        "07-small/lesson.md:1: the front matter has no end (a lesson begins with its front matter, between two lines +++)",
    ),
    ("number = 7", "number = 8", "07-small/lesson.md: the folder `07-small` holds lesson 8 (name it 08-something)"),
    ("number = 7", "number = 0", "07-small/lesson.md:3: a lesson has a number (1 to 999)"),
    ("number = 7", "number = -1", "07-small/lesson.md:3: invalid value: integer `-1`, expected u32"),
    ("minutes = 5", "minutes = 0", "07-small/lesson.md:5: a lesson takes minutes (1 to 240)"),
    ("goal = \"Nothing.\"", "goal = \" \"", "07-small/lesson.md:6: this must say something"),
    (
        "goal = \"Nothing.\"",
        "gaol = \"Nothing.\"",
        "07-small/lesson.md:6: unknown field `gaol`, expected one of `title`, `number`, `module`, `minutes`, `goal`, `view`, `knobs`, `sources`",
    ),
    (
        "\"memory\"",
        "\"memories\"",
        "07-small/lesson.md:7: there is no such view (timeline, debug, links, memory, metrics, waits, mesh)",
    ),
    ("[4, 8]", "[4]", "07-small/lesson.md:9: a knob with fewer than two values cannot be turned (values = [4, 8])"),
    ("# First\n", "", "07-small/lesson.md:16: a page begins with its title (# Title)"),
    (
        "# First\n",
        "# First\n\n## Deeper\n",
        "07-small/lesson.md:17: `Deeper` is a second heading (a page has one, at its head: # Title)",
    ),
    (
        "event 3",
        "event x",
        "07-small/lesson.md:17: `stop: event x` means nothing (start, end, event N, time T, or op rR WORDS, such as op r0 0B0)",
    ),
    (
        "<!-- stop: event 3 -->",
        "<!-- a note -->",
        "07-small/lesson.md:17: unknown comment `a note` (stop, scenario or view, such as <!-- stop: end -->)",
    ),
    (
        "<!-- stop: event 3 -->",
        "<b>x</b>",
        "07-small/lesson.md:17: this is no text (words, *emphasis*, **strong**, `code`)\n07-small/lesson.md:17: this is no text (words, *emphasis*, **strong**, `code`)",
    ),
    (
        "<!-- stop: event 3 -->",
        "<!-- stop: end -->\n<!-- stop: end -->",
        "07-small/lesson.md:18: `stop` stands twice on this page (once a page)",
    ),
    (
        "*soft*",
        "[soft](x)",
        "07-small/lesson.md:19: a link is not part of a lesson (paragraphs, lists, tables, code, quotes and comments)",
    ),
    (
        "*soft*",
        "![soft](x)",
        "07-small/lesson.md:19: an image is not part of a lesson (paragraphs, lists, tables, code, quotes and comments)",
    ),
    (
        "- two",
        "- two\n  - three",
        "07-small/lesson.md:24: a list within a list or a quote is not part of a lesson (paragraphs, lists, tables, code, quotes and comments)",
    ),
    ("LOOK", "SEE", "07-small/lesson.md:37: a quote begins with `SEE` (LOOK, TRY or ASK)"),
    ("LOOK at r0.", "LOOK", "07-small/lesson.md:37: LOOK says nothing (text follows the word)"),
    (
        "`batch.micro_batches = 4, 8`",
        "it",
        "07-small/lesson.md:45: TRY needs a knob and its values (TRY `batch.micro_batches = 4, 16`: what changes?)",
    ),
    (
        "TRY `batch.micro_batches",
        "TRY `batch.steps",
        "07-small/lesson.md:45: `batch.steps` is no knob of this lesson (knobs: batch.micro_batches, pipeline.schedule)",
    ),
    ("= 4, 8`", "= 4, 9`", "07-small/lesson.md:45: the knob `batch.micro_batches` does not offer `9` (values: 4, 8)"),
    ("> ANSWER\n", "", "07-small/lesson.md:47: ASK needs a question and its answer (the question, a line ANSWER, the answer)"),
    (
        "> Because.\n>\n> Really.\n",
        "",
        "07-small/lesson.md:47: ASK needs a question and its answer (the question, a line ANSWER, the answer)",
    ),
    ("scenario: star", "scenario: sun", "07-small/lesson.md:43: the lesson has no scenario `sun.toml` (it has scenario.toml)"),
];

#[test]
fn mistakes_are_named() {
    let mut unexpected = Vec::new();
    for (from, to, expected) in MISTAKES {
        assert!(SMALL.contains(from), "{from}");
        let message = parse(&SMALL.replacen(from, to, 1)).expect_err(to);
        if message != *expected {
            unexpected.push(format!("{from} -> {to}\n  says    {message}\n  and not {expected}"));
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

/// What a hostile or careless author may write, in pieces.
const PIECES: [&str; 31] = [
    "+++",
    "\n",
    "\n\n",
    "---",
    "# ",
    "## x",
    "> ",
    ">",
    "- ",
    "  ",
    "1. ",
    "999999999. ",
    "```",
    "`",
    "*",
    "**",
    "|",
    "|---|",
    "<!--",
    "-->",
    "stop: event 99999999999999999999",
    "view:",
    "scenario: ../x",
    "LOOK",
    "TRY",
    "ASK",
    "ANSWER",
    "= ,",
    "\u{0}",
    "\u{1f600}",
    "[x](y)",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn any_pages_are_read_or_refused(pieces in proptest::collection::vec(0..PIECES.len(), 0..40)) {
        let front = &SMALL[..SMALL.find("# First").expect("the first page")];
        let body: String = pieces.iter().map(|&piece| PIECES[piece]).collect();
        check_lines(&format!("{front}# Title\n\n{body}"));
    }

    #[test]
    fn any_slip_is_read_or_refused(at in 0..SMALL.len(), piece in 0..PIECES.len(), cut in 0..20_usize) {
        let mut text = SMALL.as_bytes().to_vec();
        text.splice(at..(at + cut).min(SMALL.len()), PIECES[piece].bytes());
        check_lines(&String::from_utf8_lossy(&text));
    }
}

/// Problems stand on lines of the file.
fn check_lines(text: &str) {
    let Err(message) = parse(text) else { return };
    let lines = text.matches('\n').count() + 1;
    for problem in message.lines().filter_map(|problem| problem.strip_prefix("07-small/lesson.md:")) {
        let line = problem.split(':').next().and_then(|line| line.parse::<usize>().ok());
        assert!(line.is_none_or(|line| (1..=lines).contains(&line)), "{problem} of {lines} lines");
    }
}
