//! A lesson's pages: Markdown to blocks. What is not part of the format is a problem; see [`super::lesson`].

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::directive::{self, Directive};
use super::front::Front;
use super::lesson::{SCENARIO, ScenarioText};
use super::page::{Block, Item, Page, Style, Text, Word, plain};
use super::problem::{Problem, line_at};

/// What the pages may refer to.
pub(super) struct Source<'a> {
    pub file: &'a str,
    pub front: &'a Front,
    pub scenarios: &'a [ScenarioText],
}

/// The pages of `body`, whose first line is `line` of the file.
pub(super) fn pages(source: &Source, body: &str, line: usize) -> Result<Vec<Page>, Vec<Problem>> {
    let mut problems = Vec::new();
    let pages = split(body, line).into_iter().map(|(text, line)| page(source, text, line, &mut problems)).collect();
    if problems.is_empty() { Ok(pages) } else { Err(problems) }
}

/// Pages with their first lines. A line `---` separates pages, unless it stands in fenced code.
fn split(body: &str, first: usize) -> Vec<(&str, usize)> {
    let mut pages = Vec::new();
    let (mut start, mut at, mut start_line, mut fenced) = (0, 0, first, false);
    for (line, number) in body.split_inclusive('\n').zip(first..) {
        fenced ^= line.trim_start().starts_with("```");
        if line.trim_end() == "---" && !fenced {
            pages.push((&body[start..at], start_line));
            (start, start_line) = (at + line.len(), number + usize::from(line.ends_with('\n')));
        }
        at += line.len();
    }
    pages.push((&body[start..], start_line));
    pages
}

fn page(source: &Source, text: &str, line: usize, problems: &mut Vec<Problem>) -> Page {
    let mut reader = Reader {
        source,
        text,
        first_line: line,
        events: Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter().collect::<Vec<_>>().into_iter().peekable(),
        at: 0,
        problems,
    };
    let mut page = Page { view: source.front.view, scenario: SCENARIO.to_owned(), ..Page::default() };
    let mut seen = [false; 3];
    while let Some(event) = reader.next() {
        reader.block(event, &mut page, &mut seen);
    }
    if page.title.is_empty() {
        reader.at = text.len() - text.trim_start().len();
        reader.problem("a page begins with its title", "# Title");
    }
    page
}

type Events<'t> = std::iter::Peekable<std::vec::IntoIter<(Event<'t>, Range<usize>)>>;

/// Reads one page's events. Every method leaves it behind what it has read.
struct Reader<'r, 't> {
    source: &'r Source<'r>,
    text: &'t str,
    first_line: usize,
    events: Events<'t>,
    /// Where the latest event stands in the text.
    at: usize,
    problems: &'r mut Vec<Problem>,
}

impl<'t> Reader<'_, 't> {
    fn next(&mut self) -> Option<Event<'t>> {
        let (event, range) = self.events.next()?;
        self.at = range.start;
        Some(event)
    }

    fn problem(&mut self, message: impl Into<String>, hint: impl Into<String>) {
        let line = line_at(self.text, self.at, self.first_line);
        self.problems.push(Problem::new(self.source.file, line, message).hint(hint));
    }

    fn block(&mut self, event: Event<'t>, page: &mut Page, seen: &mut [bool; 3]) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => self.title(level, page),
            Event::Start(Tag::Paragraph) => page.blocks.push(Block::Paragraph(self.text(TagEnd::Paragraph))),
            Event::Start(Tag::List(first)) => page.blocks.push(Block::List(self.list(first))),
            Event::Start(Tag::CodeBlock(_)) => page.blocks.push(Block::Code(self.code())),
            Event::Start(Tag::Table(_)) => page.blocks.push(self.table()),
            Event::Start(Tag::BlockQuote(_)) => page.blocks.extend(self.quote()),
            Event::Start(Tag::HtmlBlock) => self.comments(page, seen),
            Event::Start(tag) => self.refuse(&tag),
            Event::Rule => self.problem("a rule within a page", "pages are separated by a line ---"),
            _ => self.problem("this does not belong here", "paragraphs, lists, tables, code, quotes and comments"),
        }
    }

    fn title(&mut self, level: HeadingLevel, page: &mut Page) {
        let at = self.at;
        let title = plain(&self.text(TagEnd::Heading(level)));
        self.at = at;
        if level != HeadingLevel::H1 || !page.title.is_empty() || !page.blocks.is_empty() {
            self.problem(format!("`{title}` is a second heading"), "a page has one, at its head: # Title");
        } else if title.is_empty() {
            self.problem("an empty title", "# Title");
        } else {
            page.title = title;
        }
    }

    /// Words up to `end`; nothing but words may stand there.
    fn text(&mut self, end: TagEnd) -> Text {
        let mut inline = Inline::default();
        while let Some(event) = self.next() {
            if event == Event::End(end) {
                break;
            }
            self.inline(event, &mut inline);
        }
        inline.words
    }

    fn inline(&mut self, event: Event<'t>, inline: &mut Inline) {
        match event {
            Event::Text(text) => inline.text(&text),
            Event::Code(text) => inline.code(&text),
            Event::SoftBreak => inline.touching = false,
            Event::Start(Tag::Strong) => inline.styles.push(Style::Strong),
            Event::Start(Tag::Emphasis) => inline.styles.push(Style::Emphasis),
            Event::End(TagEnd::Strong | TagEnd::Emphasis) => _ = inline.styles.pop(),
            Event::Start(tag) => self.refuse(&tag),
            Event::HardBreak => self.problem("a line break", "lines are broken where the screen ends"),
            _ => self.problem("this is no text", "words, *emphasis*, **strong**, `code`"),
        }
    }

    fn list(&mut self, first: Option<u64>) -> Vec<Item> {
        let mut items = Vec::new();
        let mut number = first;
        while let Some(event) = self.next() {
            match event {
                Event::Start(Tag::Item) => {
                    let mark = number.map_or_else(|| "-".to_owned(), |number| format!("{number}."));
                    number = number.map(|number| number.saturating_add(1));
                    let texts = self.texts(TagEnd::Item);
                    if texts.len() > 1 {
                        self.problem("an item with two paragraphs", "one paragraph an item");
                    }
                    items.extend(texts.into_iter().next().map(|text| Item { mark, text }));
                }
                _ => break,
            }
        }
        items
    }

    /// The paragraphs up to `end`. A line that begins with ANSWER begins a paragraph.
    fn texts(&mut self, end: TagEnd) -> Vec<Text> {
        let mut texts = Vec::new();
        let mut inline = Inline::default();
        while let Some(event) = self.next() {
            match event {
                Event::End(tag) if tag == end => break,
                Event::Start(Tag::Paragraph) => {}
                Event::End(TagEnd::Paragraph) => texts.push(inline.take()),
                Event::SoftBreak if self.answers() => texts.push(inline.take()),
                event => self.inline(event, &mut inline),
            }
        }
        texts.push(inline.take());
        texts.retain(|text| !text.is_empty());
        texts
    }

    fn answers(&mut self) -> bool {
        matches!(self.events.peek(), Some((Event::Text(text), _)) if text.split_whitespace().next() == Some("ANSWER"))
    }

    fn code(&mut self) -> Vec<String> {
        let mut code = String::new();
        while let Some(event) = self.next() {
            match event {
                Event::Text(text) => code.push_str(&text),
                _ => break,
            }
        }
        code.lines().map(str::to_owned).collect()
    }

    fn table(&mut self) -> Block {
        let (mut head, mut rows) = (Vec::new(), Vec::new());
        while let Some(event) = self.next() {
            match event {
                Event::Start(Tag::TableHead) => head = self.cells(TagEnd::TableHead),
                Event::Start(Tag::TableRow) => rows.push(self.cells(TagEnd::TableRow)),
                _ => break,
            }
        }
        Block::Table { head, rows }
    }

    fn cells(&mut self, end: TagEnd) -> Vec<Text> {
        let mut cells = Vec::new();
        while let Some(event) = self.next() {
            match event {
                Event::Start(Tag::TableCell) => cells.push(self.text(TagEnd::TableCell)),
                Event::End(tag) if tag == end => break,
                _ => {}
            }
        }
        cells
    }

    /// A quote: LOOK, TRY or ASK.
    fn quote(&mut self) -> Option<Block> {
        let at = self.at;
        let mut texts = self.texts(TagEnd::BlockQuote(None));
        self.at = at;
        let keyword = texts.first_mut().map(|text| text.remove(0).text).unwrap_or_default();
        texts.retain(|text| !text.is_empty());
        match keyword.as_str() {
            "LOOK" | "TRY" | "ASK" if texts.is_empty() => {
                self.problem(format!("{keyword} says nothing"), "text follows the word");
                None
            }
            "LOOK" => Some(Block::Look(texts)),
            "TRY" => self.try_block(texts),
            "ASK" => self.ask(texts),
            _ => {
                self.problem(format!("a quote begins with `{keyword}`"), "LOOK, TRY or ASK");
                None
            }
        }
    }

    /// TRY begins with a code span: `key = value, value`.
    fn try_block(&mut self, text: Vec<Text>) -> Option<Block> {
        let setting: Text = text[0].iter().take_while(|word| word.style == Style::Code).cloned().collect();
        let setting = plain(&setting);
        let Some((key, values)) = setting.split_once('=') else {
            self.problem("TRY needs a knob and its values", "TRY `batch.micro_batches = 4, 16`: what changes?");
            return None;
        };
        let key = key.trim();
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        let Some(knob) = self.source.front.knobs.iter().find(|knob| knob.key == key) else {
            let known: Vec<&str> = self.source.front.knobs.iter().map(|knob| knob.key.as_str()).collect();
            self.problem(format!("`{key}` is no knob of this lesson"), format!("knobs: {}", known.join(", ")));
            return None;
        };
        if let Some(value) = values.iter().find(|value| !knob.values.contains(value)) {
            self.problem(format!("the knob `{key}` does not offer `{value}`"), format!("values: {}", knob.values.join(", ")));
            return None;
        }
        Some(Block::Try { key: key.to_owned(), values, text })
    }

    fn ask(&mut self, mut texts: Vec<Text>) -> Option<Block> {
        let begins = |text: &Text| text[0].text == "ANSWER" && text[0].style == Style::Plain;
        let place = texts.iter().position(begins).unwrap_or(texts.len());
        let mut answer = texts.split_off(place);
        if let Some(first) = answer.first_mut() {
            first.remove(0);
        }
        answer.retain(|text| !text.is_empty());
        if texts.is_empty() || answer.is_empty() {
            self.problem("ASK needs a question and its answer", "the question, a line ANSWER, the answer");
            return None;
        }
        Some(Block::Ask { question: texts, answer })
    }

    fn comments(&mut self, page: &mut Page, seen: &mut [bool; 3]) {
        let at = self.at;
        let mut html = String::new();
        while let Some(Event::Html(text)) = self.next() {
            html.push_str(&text);
        }
        self.at = at;
        match directive::parse(&html) {
            Ok(directives) => directives.into_iter().for_each(|directive| self.direct(directive, page, seen)),
            Err((message, hint)) => self.problem(message, hint),
        }
    }

    fn direct(&mut self, directive: Directive, page: &mut Page, seen: &mut [bool; 3]) {
        let (place, key) = match directive {
            Directive::Stop(stop) => {
                page.stop = Some(stop);
                (0, "stop")
            }
            Directive::View(view) => {
                page.view = view;
                (1, "view")
            }
            Directive::Scenario(name) => {
                if !self.source.scenarios.iter().any(|scenario| scenario.name == name) {
                    let known: Vec<&str> = self.source.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
                    self.problem(format!("the lesson has no scenario `{name}`"), format!("it has {}", known.join(", ")));
                }
                page.scenario = name;
                (2, "scenario")
            }
        };
        if std::mem::replace(&mut seen[place], true) {
            self.problem(format!("`{key}` stands twice on this page"), "once a page");
        }
    }

    /// Notes that `tag` is not part of the format, and skips to its end.
    fn refuse(&mut self, tag: &Tag<'t>) {
        let what = match tag {
            Tag::Link { .. } => "a link",
            Tag::Image { .. } => "an image",
            Tag::List(_) => "a list within a list or a quote",
            Tag::CodeBlock(_) | Tag::Table(_) | Tag::BlockQuote(_) => "code, a table or a quote within another block",
            Tag::Heading { .. } => "a heading within another block",
            _ => "this",
        };
        self.problem(format!("{what} is not part of a lesson"), "paragraphs, lists, tables, code, quotes and comments");
        let mut depth = 1;
        while depth > 0
            && let Some(event) = self.next()
        {
            match event {
                Event::Start(_) => depth += 1,
                Event::End(_) => depth -= 1,
                _ => {}
            }
        }
    }
}

/// Words in the making.
#[derive(Default)]
struct Inline {
    words: Text,
    styles: Vec<Style>,
    /// What was read last ended without a blank.
    touching: bool,
}

impl Inline {
    fn text(&mut self, text: &str) {
        let style = self.styles.last().copied().unwrap_or_default();
        self.push(text, style);
    }

    fn code(&mut self, text: &str) {
        self.push(text, Style::Code);
    }

    fn push(&mut self, text: &str, style: Style) {
        for (index, piece) in text.split_whitespace().enumerate() {
            let glued = index == 0 && self.touching && !text.starts_with(char::is_whitespace);
            self.words.push(Word { text: piece.to_owned(), style, glued });
        }
        if !text.is_empty() {
            self.touching = !text.ends_with(char::is_whitespace);
        }
    }

    fn take(&mut self) -> Text {
        self.touching = false;
        std::mem::take(&mut self.words)
    }
}
