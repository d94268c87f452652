//! A lesson's text: Markdown to pages of blocks, blocks to lines of styled words.
//!
//! A thematic break (`---`) begins a page. A block quote that begins with TRY or ASK is a task or a question; in a question
//! the first paragraph asks, the rest is the answer, which stays hidden until it is asked for. Any other quote says where
//! to look.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::pen::width_of;
use super::theme::Role;

/// The longest line of lesson text, in columns.
pub const LINE: u16 = 48;

/// A lesson's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Its pages, at least one.
    pub pages: Vec<Page>,
}

/// One page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The first heading on it.
    pub title: String,
    /// What stands on it, the title not included.
    pub blocks: Vec<Block>,
}

/// A piece of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A heading below the page's title.
    Heading(Vec<Word>),
    /// Running text.
    Paragraph(Vec<Word>),
    /// A list item: its mark (`-`, `2.`), its depth from 0.
    Item(String, usize, Vec<Word>),
    /// Lines to be shown as they are.
    Code(Vec<String>),
    /// Something to look at.
    Look(Vec<Word>),
    /// Something to do.
    Try(Vec<Word>),
    /// A question.
    Ask(Vec<Word>),
    /// The answer to the question before it.
    Answer(Vec<Word>),
}

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

impl Document {
    /// The pages of a Markdown text.
    #[must_use]
    pub fn parse(markdown: &str) -> Self {
        let mut reader = Reader::default();
        for event in Parser::new_ext(markdown, Options::empty()) {
            reader.take(event);
        }
        reader.end_page();
        if reader.document.pages.is_empty() {
            reader.document.pages.push(Page::default());
        }
        reader.document
    }
}

impl Page {
    /// The page's lines at `width` columns; answers only if they were asked for.
    #[must_use]
    pub fn lines(&self, width: u16, answered: bool) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut previous: Option<&Block> = None;
        for block in &self.blocks {
            let hidden = matches!(block, Block::Answer(_)) && !answered;
            let list = |block: &Block| matches!(block, Block::Item(..));
            if previous.is_some_and(|previous| !(list(previous) && list(block))) && !hidden {
                lines.push(Line::new());
            }
            if !hidden {
                lines.extend(block.lines(width));
                previous = Some(block);
            }
        }
        if !answered && self.asks() {
            lines.extend(wrapped(&[word("(Enter shows the answer)", Role::Quiet)], width, "     ", "     "));
        }
        lines
    }

    /// Whether an answer is hidden here.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::Answer(_)))
    }
}

impl Block {
    fn lines(&self, width: u16) -> Vec<Line> {
        match self {
            Self::Heading(words) | Self::Paragraph(words) => wrapped(words, width, "", ""),
            Self::Item(mark, depth, words) => {
                let indent = "  ".repeat(*depth);
                let rest = " ".repeat(indent.len() + mark.len() + 1);
                wrapped(words, width, &format!("{indent}{mark} "), &rest)
            }
            Self::Code(lines) => lines.iter().map(|line| vec![word("  ", Role::Text), glued(line, Role::Code)]).collect(),
            Self::Look(words) => wrapped(words, width, "> ", "  "),
            Self::Try(words) => wrapped(words, width, "TRY  ", "     "),
            Self::Ask(words) => wrapped(words, width, "ASK  ", "     "),
            Self::Answer(words) => wrapped(words, width, "     ", "     "),
        }
    }
}

/// Words in lines of at most `width` columns, the first beginning with `first`, the others with `rest`.
fn wrapped(words: &[Word], width: u16, first: &str, rest: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = vec![word(first, Role::Strong)];
    let mut used = width_of(first);
    for unit in units(words) {
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

/// Words that must stay together.
fn units(words: &[Word]) -> impl Iterator<Item = &[Word]> {
    words.chunk_by(|_, next| next.glued)
}

fn word(text: &str, role: Role) -> Word {
    Word { text: text.to_owned(), role, glued: false }
}

fn glued(text: &str, role: Role) -> Word {
    Word { text: text.to_owned(), role, glued: true }
}

/// Gathers blocks from the parser's events.
#[derive(Default)]
struct Reader {
    document: Document,
    page: Page,
    words: Vec<Word>,
    /// The roles of the open inline tags.
    roles: Vec<Role>,
    /// The last text ended without a blank.
    touching: bool,
    /// The open lists: the number of the next item, or none for bullets.
    lists: Vec<Option<u64>>,
    /// The mark of the open item.
    item: Option<(String, usize)>,
    /// The paragraphs of the open quote.
    quote: Option<Vec<Vec<Word>>>,
    code: Option<String>,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.text(&text, self.roles.last().copied().unwrap_or(Role::Text)),
            },
            Event::Code(text) => self.code_word(&text),
            Event::SoftBreak | Event::HardBreak => self.touching = false,
            Event::Rule => self.end_page(),
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Strong | Tag::Link { .. } => self.roles.push(Role::Strong),
            Tag::Emphasis => self.roles.push(Role::Emphasis),
            Tag::List(first) => {
                self.end_block();
                self.lists.push(*first);
            }
            Tag::Item => {
                let depth = self.lists.len().saturating_sub(1);
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}.", *number - 1)
                    }
                    _ => "-".to_owned(),
                };
                self.item = Some((mark, depth));
            }
            Tag::BlockQuote(_) => self.quote = Some(Vec::new()),
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => self.code = Some(String::new()),
            Tag::Paragraph | Tag::Heading { .. } => self.touching = false,
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Strong | TagEnd::Emphasis | TagEnd::Link => _ = self.roles.pop(),
            TagEnd::Heading(_) => self.end_heading(),
            TagEnd::Paragraph | TagEnd::Item => self.end_block(),
            TagEnd::List(_) => _ = self.lists.pop(),
            TagEnd::BlockQuote(_) => self.end_quote(),
            TagEnd::CodeBlock => {
                let lines = self.code.take().unwrap_or_default();
                self.page.blocks.push(Block::Code(lines.lines().map(str::to_owned).collect()));
            }
            _ => {}
        }
    }

    /// Splits a text into words and remembers which touch their neighbours.
    fn text(&mut self, text: &str, role: Role) {
        for (index, piece) in text.split_whitespace().enumerate() {
            let touches = index == 0 && self.touching && !text.starts_with(char::is_whitespace);
            self.words.push(Word { text: piece.to_owned(), role, glued: touches });
        }
        if !text.is_empty() {
            self.touching = !text.ends_with(char::is_whitespace);
        }
    }

    /// Code is one word: it is not broken across lines.
    fn code_word(&mut self, text: &str) {
        self.words.push(Word { text: text.to_owned(), role: Role::Code, glued: self.touching });
        self.touching = true;
    }

    fn end_heading(&mut self) {
        let words = std::mem::take(&mut self.words);
        if self.page.title.is_empty() && self.page.blocks.is_empty() {
            self.page.title = plain(&words);
        } else {
            let strong = words.into_iter().map(|word| Word { role: Role::Strong, ..word }).collect();
            self.page.blocks.push(Block::Heading(strong));
        }
    }

    fn end_block(&mut self) {
        self.touching = false;
        if self.words.is_empty() {
            return;
        }
        let words = std::mem::take(&mut self.words);
        match (&mut self.quote, self.item.take()) {
            (Some(paragraphs), _) => paragraphs.push(words),
            (None, Some((mark, depth))) => self.page.blocks.push(Block::Item(mark, depth, words)),
            (None, None) => self.page.blocks.push(Block::Paragraph(words)),
        }
    }

    fn end_quote(&mut self) {
        let mut paragraphs = self.quote.take().unwrap_or_default().into_iter();
        let Some(mut first) = paragraphs.next() else { return };
        let keyword = first.first().map(|word| word.text.trim_end_matches(':').to_owned()).unwrap_or_default();
        let rest: fn(Vec<Word>) -> Block = match keyword.as_str() {
            "TRY" => Block::Try,
            "ASK" => Block::Answer,
            _ => Block::Look,
        };
        if matches!(keyword.as_str(), "TRY" | "ASK") {
            first.remove(0);
        }
        self.page.blocks.push(if keyword == "ASK" { Block::Ask(first) } else { rest(first) });
        self.page.blocks.extend(paragraphs.map(rest));
    }

    fn end_page(&mut self) {
        self.end_block();
        if self.page != Page::default() {
            self.document.pages.push(std::mem::take(&mut self.page));
        }
    }
}

/// Words as one string.
#[must_use]
pub fn plain(words: &[Word]) -> String {
    let mut text = String::new();
    for word in words {
        if !word.glued && !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&word.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LESSON: &str = "# Why backward goes first

A stage that has **started** `p` forwards must hold *p* sets of activations, (see `r0`).

- one
- two that is long enough to be broken
  1. inner

> Look at r0.

> **TRY** press `o` and set 16.

> ASK: which rank holds the fewest?
>
> The last one: it starts its backward at once.

---

## Second

    code  as is
";

    fn page_text(page: &Page, width: u16, answered: bool) -> String {
        page.lines(width, answered).iter().map(|line| plain(line).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_page_becomes_lines() {
        let document = Document::parse(LESSON);
        assert_eq!(document.pages.len(), 2);
        assert_eq!(document.pages[0].title, "Why backward goes first");
        assert_eq!(page_text(&document.pages[0], 30, false), FIRST);
        assert_eq!(document.pages[1].title, "Second");
        assert_eq!(page_text(&document.pages[1], 30, false), "  code  as is");
    }

    const FIRST: &str = "\
A stage that has started p
forwards must hold p sets of
activations, (see r0).

- one
- two that is long enough to
  be broken
  1. inner

> Look at r0.

TRY  press o and set 16.

ASK  which rank holds the
     fewest?
     (Enter shows the answer)";

    #[test]
    fn an_answer_is_hidden_until_it_is_asked_for() {
        let document = Document::parse(LESSON);
        let page = &document.pages[0];
        assert!(page.asks());
        assert!(!page_text(page, 40, false).contains("at once"));
        assert!(page_text(page, 40, true).contains("at once"));
        assert!(!page_text(page, 40, true).contains("(Enter"));
    }

    #[test]
    fn no_line_exceeds_the_width_unless_a_word_does() {
        let document = Document::parse(LESSON);
        for width in 22..60 {
            for line in document.pages[0].lines(width, true) {
                assert!(width_of(&plain(&line)) <= width, "{width}: {}", plain(&line));
            }
        }
    }

    #[test]
    fn any_text_has_a_page() {
        for text in ["", "---", "# ", "> ", "- ", "> ASK", "```\n", "<b>x</b>", "\u{0}"] {
            let document = Document::parse(text);
            assert!(!document.pages.is_empty(), "{text:?}");
            document.pages.iter().for_each(|page| _ = page.lines(0, true));
        }
    }
}
