//! A lesson's page as lines of styled words in any width, and what the Enter key does on it, one thing after the other.

use std::ops::Range;

use crate::teach::page::{Item, plain};
use crate::teach::{Block, Page, Style, Text};

use super::pen::width_of;
use super::theme::Role;

/// The longest line of lesson text, in columns.
pub const LINE: u16 = 48;

/// A word with its role; `glued` to the word before it, without a blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word.
    pub text: String,
    /// How it is shown.
    pub role: Role,
    /// No blank before it.
    pub glued: bool,
}

/// One line on the screen.
pub type Line = Vec<Word>;

/// A page in a width.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// Its lines, the title not included.
    pub lines: Vec<Line>,
    /// Lines down to the end of what was done last, or of what is to be done if nothing was.
    pub reached: usize,
    /// The lines of the block whose turn it is; none if everything is done.
    pub next: Range<usize>,
}

/// What Enter does on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Runs the page's scenario with this key set to this value.
    Set {
        /// The key: `batch.micro_batches`.
        key: &'a str,
        /// The value.
        value: &'a str,
    },
    /// Shows an answer.
    Answer,
}

/// What Enter does on `page`, in order: each value of a TRY, each answer.
pub fn actions(page: &Page) -> impl Iterator<Item = Action<'_>> {
    page.blocks.iter().flat_map(of_block)
}

fn of_block(block: &Block) -> Vec<Action<'_>> {
    match block {
        Block::Try { key, values, .. } => values.iter().map(|value| Action::Set { key, value }).collect(),
        Block::Ask { .. } => vec![Action::Answer],
        _ => Vec::new(),
    }
}

/// The page at `width` columns when the first `done` of its actions were taken: answers that were asked for are shown, and behind the
/// block that comes next stands what Enter does.
#[must_use]
pub fn lay(page: &Page, width: u16, done: usize) -> Laid {
    let mut laid = Laid::default();
    let mut before = 0;
    for block in &page.blocks {
        if !laid.lines.is_empty() {
            laid.lines.push(Line::new());
        }
        let first = laid.lines.len();
        let actions = of_block(block);
        let taken = done.saturating_sub(before).min(actions.len());
        laid.lines.extend(lines(block, width, taken > 0));
        if let Some(next) = actions.get(taken).filter(|_| done == before + taken) {
            let hint: Vec<Word> = hint(next).split(' ').map(|text| word(text, Role::Quiet)).collect();
            laid.lines.extend(wrapped(&hint, width, INDENT, INDENT));
            laid.next = first..laid.lines.len();
        }
        if taken > 0 || (done == 0 && before == 0 && !actions.is_empty()) {
            laid.reached = laid.lines.len();
        }
        before += actions.len();
    }
    laid
}

const INDENT: &str = "     ";

fn hint(action: &Action) -> String {
    match action {
        Action::Set { key, value } => format!("(Enter: {key} = {value})"),
        Action::Answer => "(Enter shows the answer)".to_owned(),
    }
}

fn lines(block: &Block, width: u16, answered: bool) -> Vec<Line> {
    match block {
        Block::Paragraph(text) => wrapped(&words(text), width, "", ""),
        Block::List(items) => items.iter().flat_map(|item| list_item(item, width)).collect(),
        Block::Code(code) => code.iter().map(|line| vec![word("  ", Role::Text), glued(line, Role::Code)]).collect(),
        Block::Table { head, rows } => table(head, rows),
        Block::Look(texts) => paragraphs(texts, width, "LOOK "),
        Block::Try { text, .. } => paragraphs(text, width, "TRY  "),
        Block::Ask { question, answer } => {
            let mut lines = paragraphs(question, width, "ASK  ");
            if answered {
                lines.push(Line::new());
                lines.extend(paragraphs(answer, width, INDENT));
            }
            lines
        }
    }
}

fn list_item(item: &Item, width: u16) -> Vec<Line> {
    let rest = " ".repeat(item.mark.len() + 1);
    wrapped(&words(&item.text), width, &format!("{} ", item.mark), &rest)
}

fn paragraphs(texts: &[Text], width: u16, first: &str) -> Vec<Line> {
    let begins = |place| if place == 0 { first } else { INDENT };
    texts.iter().enumerate().flat_map(|(place, text)| wrapped(&words(text), width, begins(place), INDENT)).collect()
}

/// Columns as wide as their widest cell, two blanks between them; the head is strong.
fn table(head: &[Text], rows: &[Vec<Text>]) -> Vec<Line> {
    let all = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    let widest = |column: usize| all().filter_map(|row| row.get(column)).map(|cell| width_of(&plain(cell))).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(|column| usize::from(widest(column))).collect();
    let line = |(place, row): (usize, &[Text])| {
        let role = if place == 0 { Role::Strong } else { Role::Text };
        let padded = |(cell, &width): (&Text, &usize)| glued(&format!("{:width$}  ", plain(cell)), role);
        row.iter().zip(&widths).map(padded).collect()
    };
    all().enumerate().map(line).collect()
}

/// The words of a lesson with the roles of the screen.
fn words(text: &Text) -> Vec<Word> {
    let role = |style| match style {
        Style::Plain => Role::Text,
        Style::Emphasis => Role::Emphasis,
        Style::Strong => Role::Strong,
        Style::Code => Role::Code,
    };
    text.iter().map(|word| Word { text: word.text.clone(), role: role(word.style), glued: word.glued }).collect()
}

/// Words in lines of at most `width` columns, the first beginning with `first`, the others with `rest`.
fn wrapped(words: &[Word], width: u16, first: &str, rest: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = vec![word(first, Role::Strong)];
    let mut used = width_of(first);
    for unit in words.chunk_by(|_, next| next.glued) {
        let length: u16 = unit.iter().map(|word| width_of(&word.text)).sum();
        let begins = line.len() == 1;
        if !begins && used + 1 + length > width {
            lines.push(std::mem::replace(&mut line, vec![word(rest, Role::Strong)]));
            used = width_of(rest);
        } else if !begins {
            line.push(glued(" ", Role::Text));
            used += 1;
        }
        used += length;
        line.extend(unit.iter().map(|word| Word { glued: true, ..word.clone() }));
    }
    lines.push(line);
    lines
}

/// A running text as lines of at most `width` columns.
#[must_use]
pub fn text_lines(text: &str, width: u16, role: Role) -> Vec<Line> {
    let words: Vec<Word> = text.split_whitespace().map(|text| word(text, role)).collect();
    wrapped(&words, width, "", "")
}

/// Words as one string.
#[must_use]
pub fn plain_line(words: &[Word]) -> String {
    words.iter().map(|word| word.text.as_str()).collect()
}

fn word(text: &str, role: Role) -> Word {
    Word { text: text.to_owned(), role, glued: false }
}

fn glued(text: &str, role: Role) -> Word {
    Word { text: text.to_owned(), role, glued: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::teach::Library;

    const PAGE: &str = "A stage that has **started** `p` forwards must hold *p* sets of activations, (see `r0`).

- one
- two that is long enough to be broken

| N | long head |
|---|---|
| 12 | x |

> LOOK at r0.

> TRY `batch.micro_batches = 4, 16`: does it grow?

> ASK which rank holds the fewest?
> ANSWER
> The last one: it starts its backward at once.
";

    fn page() -> Page {
        let front = "+++\ntitle = \"T\"\nnumber = 1\nmodule = \"M\"\nminutes = 1\ngoal = \"G\"\nview = \"timeline\"\nknobs = [{ key = \
                     \"batch.micro_batches\", values = [4, 16] }]\n+++\n# Title\n\n";
        let folder = crate::teach::lesson::Folder {
            name: "01-t".into(),
            origin: crate::teach::Origin::Shipped,
            lesson: format!("{front}{PAGE}"),
            scenarios: vec![crate::teach::ScenarioText { name: "scenario.toml".into(), text: String::new() }],
        };
        crate::teach::Lesson::parse(folder).expect("a lesson").pages.remove(0)
    }

    fn shown(width: u16, done: usize) -> String {
        let laid = lay(&page(), width, done);
        laid.lines.iter().map(|line| plain_line(line).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    const FRESH: &str = "\
A stage that has started p
forwards must hold p sets of
activations, (see r0).

- one
- two that is long enough to
  be broken

N   long head
12  x

LOOK at r0.

TRY  batch.micro_batches = 4,
     16: does it grow?
     (Enter:
     batch.micro_batches = 4)

ASK  which rank holds the
     fewest?";

    #[test]
    fn a_page_becomes_lines() {
        assert_eq!(shown(30, 0), FRESH);
    }

    #[test]
    fn enter_does_one_thing_after_the_other() {
        let page = page();
        let expected = [
            Action::Set { key: "batch.micro_batches", value: "4" },
            Action::Set { key: "batch.micro_batches", value: "16" },
            Action::Answer,
        ];
        assert!(actions(&page).eq(expected));
        let hints = ["micro_batches = 4)", "micro_batches = 16)", "(Enter shows the answer)"];
        for (done, hint) in hints.into_iter().enumerate() {
            assert!(shown(60, done).contains(hint), "{done}");
            assert!(!shown(60, done).contains("at once"), "{done}: the answer is hidden");
        }
        assert!(shown(60, 3).contains("at once") && !shown(60, 3).contains("(Enter"));
        assert!(lay(&page, 60, 3).reached > lay(&page, 60, 1).reached);
    }

    #[test]
    fn no_line_exceeds_the_width_unless_a_word_does() {
        for lesson in Library::shipped().lessons() {
            for (page, width) in lesson.pages.iter().flat_map(|page| (LINE..60).map(move |width| (page, width))) {
                for line in lay(page, width, usize::MAX).lines {
                    assert!(width_of(plain_line(&line).trim_end()) <= width, "{width}: {}", plain_line(&line));
                }
            }
        }
    }

    #[test]
    fn any_width_is_laid_out() {
        for width in 0..20 {
            assert!(!lay(&page(), width, 2).lines.is_empty());
        }
    }
}
