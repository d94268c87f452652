//! The shipped lessons: whole, in plain text, and small enough for the screen.

use ranklab::teach::page::plain;
use ranklab::teach::{Block, Lesson};

use super::{shipped, wrap};

#[test]
fn the_lessons_are_there() {
    let numbers: Vec<u32> = shipped().lessons().iter().map(|lesson| lesson.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]);
}

#[test]
fn lessons_are_whole() {
    for lesson in shipped().lessons() {
        let name = &lesson.name;
        let has = |fits: fn(&Block) -> bool| lesson.pages.iter().flat_map(|page| &page.blocks).any(fits);
        assert!((5..=14).contains(&lesson.pages.len()), "{name} has {} pages", lesson.pages.len());
        assert!(lesson.pages[0].asks(), "{name} begins with a bet");
        assert_eq!(lesson.pages.last().map(|page| page.title.as_str()), Some("Card"), "{name} ends with its card");
        assert!(lesson.pages.iter().any(|page| page.title.starts_with("Break it")), "{name} breaks something");
        assert!(has(|block| matches!(block, Block::Look(_))), "{name} says where to look");
        assert!(has(|block| matches!(block, Block::Try { .. })), "{name} says what to try");
        assert!(!lesson.sources.is_empty(), "{name} names its sources");
        assert!(!lesson.knobs.is_empty(), "{name} can be turned");
    }
}

#[test]
fn every_scenario_and_every_knob_is_used() {
    for lesson in shipped().lessons() {
        for scenario in &lesson.scenarios {
            let used = lesson.pages.iter().any(|page| page.scenario == scenario.name);
            assert!(used, "{}: no page shows {}", lesson.name, scenario.name);
        }
    }
}

/// Every terminal can show it.
#[test]
fn texts_are_ascii() {
    for lesson in shipped().lessons() {
        let own = [&lesson.title, &lesson.goal, &lesson.module].map(String::as_str);
        let words = lesson.pages.iter().flat_map(|page| wrap::lines(page, 46, true));
        for text in own.into_iter().map(str::to_owned).chain(words).chain(lesson.sources.clone()) {
            assert!(text.is_ascii(), "{}: {text}", lesson.name);
        }
    }
}

/// In the text's column beside the picture: 38 columns and 23 rows on a screen of 120x36, 46 columns and more rows above.
#[test]
fn pages_fit_the_screen() {
    let sizes = [(46, 20, false), (46, 24, true), (38, 23, false), (38, 28, true)];
    let mut overflows = Vec::new();
    for lesson in shipped().lessons() {
        for (number, page) in lesson.pages.iter().enumerate() {
            for (width, height, answered) in sizes {
                let lines = wrap::lines(page, width, answered);
                let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
                if lines.len() > height || widest > width {
                    let place = format!("{} page {} ({})", lesson.name, number + 1, page.title);
                    overflows.push(format!("{place}: {widest}x{} in {width}x{height}, answered {answered}", lines.len()));
                }
            }
        }
    }
    assert!(overflows.is_empty(), "{}", overflows.join("\n"));
}

/// Behind `STEP 4/10` stands the whole title in the narrowest column for text.
#[test]
fn titles_fit_their_line() {
    for lesson in shipped().lessons() {
        for (number, page) in (1..).zip(&lesson.pages) {
            let line = format!("STEP {number}/{}  {}", lesson.pages.len(), page.title);
            assert!(line.chars().count() <= 38, "{}: {line}", lesson.name);
        }
    }
}

/// The text is the lesson's, so a page or two as a reader sees it.
#[test]
fn a_page_reads_well() {
    let library = shipped();
    let page = |name: &str, page: usize| {
        let lesson: &Lesson = library.find(name).expect("a shipped lesson");
        format!("{}\n\n{}\n", lesson.pages[page].title, wrap::lines(&lesson.pages[page], 46, true).join("\n"))
    };
    insta::assert_snapshot!(page("11", 2));
    insta::assert_snapshot!(page("2", 7));
}

#[test]
fn questions_and_answers_differ() {
    for lesson in shipped().lessons() {
        for block in lesson.pages.iter().flat_map(|page| &page.blocks) {
            if let Block::Ask { question, answer } = block {
                assert!(question.iter().any(|text| plain(text).contains('?')), "{}: {}", lesson.name, plain(&question[0]));
                assert_ne!(question, answer);
            }
        }
    }
}
