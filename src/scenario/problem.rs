//! Problems of a scenario: each with its place, the value, what is allowed and a hint; all of a file at once.

use std::fmt;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// Everything that is wrong with a scenario, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The texts that problems point into: the file first, then one per `--set`.
    sources: Vec<Source>,
    /// The first problems, at most [`Problems::SHOWN`].
    pub list: Vec<Problem>,
    /// How many there are in all.
    pub total: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands; `None` if nothing that was written is to blame.
    pub place: Option<Place>,
    /// Line of the place, from 1; 0 without a place.
    pub line: usize,
    /// Column of the place in characters, from 1; 0 without a place.
    pub column: usize,
    /// The key's path, such as `pipeline.schedule`; empty if no key is meant.
    pub key: String,
    /// The value as written; empty if nothing was written.
    pub value: String,
    /// What is wrong, with the value.
    pub message: String,
    /// What is allowed; empty if the message says it.
    pub allowed: String,
    /// What to do; empty if nothing better is known than what is allowed.
    pub hint: String,
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which text: 0 is the file, then one per `--set`.
    pub source: usize,
    /// From which start byte (included) to which end byte (excluded).
    pub span: (usize, usize),
}

/// A text with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's path, or what stands for it.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Problems {
    /// How many problems are kept and shown.
    pub const SHOWN: usize = 50;

    /// The problems `list` of the texts `sources`.
    #[must_use]
    pub(super) fn new(sources: Vec<Source>, mut list: Vec<Problem>) -> Self {
        list.sort_by(|a, b| a.place.cmp(&b.place));
        let total = list.len();
        list.truncate(Self::SHOWN);
        for problem in &mut list {
            let Some(place) = &problem.place else { continue };
            let before = &sources[place.source].text[..place.span.0];
            problem.line = before.matches('\n').count() + 1;
            problem.column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        }
        Self { sources, list, total }
    }

    /// A single problem of a file that has no text to point into.
    #[must_use]
    pub(crate) fn of_file(name: &str, problem: Problem) -> Self {
        Self::of_whole_file(name, vec![problem])
    }

    /// Several problems of a file that has no text to point into, the first ones.
    #[must_use]
    pub(crate) fn of_whole_file(name: &str, list: Vec<Problem>) -> Self {
        Self::new(vec![Source { name: name.to_owned(), text: String::new() }], list)
    }

    /// The problems as text for a terminal, `width` columns wide, without a last line break; with colours if `coloured`.
    #[must_use]
    pub fn render(&self, coloured: bool, width: usize) -> String {
        let renderer = if coloured { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.decor_style(DecorStyle::Ascii).term_width(width);
        let mut blocks: Vec<String> = self.list.iter().map(|problem| renderer.render(&[self.group(problem)])).collect();
        if self.total > self.list.len() {
            blocks.push(format!("and {} more problems", self.total - self.list.len()));
        }
        blocks.join("\n\n")
    }

    fn group<'a>(&'a self, problem: &'a Problem) -> Group<'a> {
        let title = Level::ERROR.primary_title(problem.message.as_str());
        let mut group = match &problem.place {
            Some(place) => title.element(snippet(&self.sources[place.source], place, problem.line)),
            None => title.element(Origin::path(self.sources[0].name.as_str())),
        };
        if !problem.allowed.is_empty() {
            group = group.element(Level::NOTE.with_name("allowed").message(problem.allowed.as_str()));
        }
        if !problem.hint.is_empty() {
            group = group.element(Level::HELP.message(problem.hint.as_str()));
        }
        group
    }
}

/// The place's first line alone: a file of a mebibyte is not searched again for each problem.
fn snippet<'a>(source: &'a Source, place: &Place, line: usize) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    let (text, span) = line_of(&source.text, place.span);
    let mark = AnnotationKind::Primary.span(span);
    Snippet::source(text).line_start(line).path(source.name.as_str()).annotation(mark)
}

/// The line that holds the start of `span`, with `span` in it, cut at the line's end.
fn line_of(text: &str, (start, end): (usize, usize)) -> (&str, Range<usize>) {
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
    let line = text[line_start..line_end].trim_end_matches('\r');
    let inside = |at: usize| at.min(line_start + line.len()) - line_start;
    (line, inside(start)..inside(end))
}

impl Problem {
    /// A problem without a place.
    #[must_use]
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// The same at `place`.
    #[must_use]
    pub(super) fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// The same about the key `path`, whose value was written as `value`.
    #[must_use]
    pub(super) fn about(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.key = path.into();
        self.value = value.into();
        self
    }

    /// The same with what is allowed.
    #[must_use]
    pub(crate) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = allowed.into();
        self
    }

    /// The same with a hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Problems {
    /// Without colours, 100 columns wide.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false, 100))
    }
}

impl std::error::Error for Problems {}
