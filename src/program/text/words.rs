//! The words of a line: how texts are cut, quoted and read.

use super::TextError;
use crate::base::Rank;
use crate::base::words::{nearest, shortened};

/// Words that structure a line of an op; a name that looks like one of them is quoted.
const STRUCTURE: [&str; 6] = ["after", "free", "by", "skipped", "->", "<-"];

/// `text` as one word: bare where nobody can mistake it, quoted otherwise.
pub(super) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.+-/<>~".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) && !STRUCTURE.contains(&text) {
        return text.to_owned();
    }
    let escaped = |c: char| -> String {
        if c == ' ' || c == '\'' || (c.is_ascii_graphic() && c != '"' && c != '\\') {
            c.to_string()
        } else {
            c.escape_default().to_string()
        }
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// One word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    quoted: bool,
}

/// What is wrong with a word: the word, what is wrong, what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub text: String,
    pub wrong: String,
    pub hint: Option<String>,
}

/// Why a line could not be read.
pub(super) type Read<T> = Result<T, Problem>;

impl Problem {
    pub(super) fn new(text: impl Into<String>, wrong: impl Into<String>) -> Self {
        Self { text: text.into(), wrong: wrong.into(), hint: None }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// `text` is none of `names`: the nearest one, or all if they are few.
    pub(super) fn unknown<'n>(what: &str, text: &str, names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let problem = Self::new(text, format!("is no {what}"));
        match nearest(text, names.iter().copied()) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None if names.is_empty() => problem,
            None => problem.hint(format!("known are {}", names.join(", "))),
        }
    }

    pub(super) fn at(self, line: usize) -> TextError {
        TextError { line, text: shortened(&self.text), problem: self.wrong, hint: self.hint }
    }
}

/// A line, read word by word.
#[derive(Clone, Debug)]
pub(super) struct Words {
    words: Vec<Word>,
    next: usize,
}

impl Words {
    /// Cuts `line` into words, up to a comment.
    pub(super) fn cut(line: &str) -> Read<Self> {
        let mut words = Vec::new();
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let (word, behind) = if rest.starts_with('"') { quoted(rest)? } else { bare(rest) };
            words.push(word);
            rest = behind.trim_start();
        }
        Ok(Self { words, next: 0 })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next == self.words.len()
    }

    /// The next word, if it is bare.
    pub(super) fn peek(&self) -> Option<&str> {
        self.words.get(self.next).filter(|word| !word.quoted).map(|word| word.text.as_str())
    }

    /// Takes the next word, bare or quoted: a `what`.
    pub(super) fn any(&mut self, what: &str) -> Read<String> {
        let word = self.words.get(self.next).ok_or_else(|| self.missing(what))?;
        self.next += 1;
        Ok(word.text.clone())
    }

    /// Takes the next word if it is bare and `accept` makes something of it.
    pub(super) fn take<T>(&mut self, accept: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let result = self.peek().and_then(accept);
        self.next += usize::from(result.is_some());
        result
    }

    /// Takes the next word if it is `wanted`.
    pub(super) fn eat(&mut self, wanted: &str) -> bool {
        self.take(|word| (word == wanted).then_some(())).is_some()
    }

    /// Takes the next word, of which `accept` must make a `what`.
    pub(super) fn expect<T>(&mut self, what: &str, accept: impl FnOnce(&str) -> Option<T>) -> Read<T> {
        let problem = match self.words.get(self.next) {
            Some(word) => Problem::new(&word.text, format!("is no {what}")),
            None => self.missing(what),
        };
        self.take(accept).ok_or(problem)
    }

    /// Takes the next word, which must be one of `names`.
    pub(super) fn one_of(&mut self, what: &str, names: &[&'static str]) -> Read<&'static str> {
        let given = self.peek().map(str::to_owned);
        let found = self.expect(what, |text| names.iter().copied().find(|name| *name == text));
        found.map_err(|problem| match given {
            Some(given) => Problem::unknown(what, &given, names.iter().copied()),
            None => problem.hint(format!("one of {}", names.join(", "))),
        })
    }

    /// Nothing may follow.
    pub(super) fn end(&self) -> Read<()> {
        match self.words.get(self.next) {
            None => Ok(()),
            Some(word) => Err(Problem::new(&word.text, "is one word too many")),
        }
    }

    fn missing(&self, what: &str) -> Problem {
        let last = self.words.last().map_or("", |word| &word.text);
        Problem::new(last, format!("is the last word of the line, but a {what} must follow"))
    }
}

fn bare(text: &str) -> (Word, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (Word { text: word.to_owned(), quoted: false }, rest)
}

/// Reads the quoted word that `text` starts with.
fn quoted(text: &str) -> Read<(Word, &str)> {
    let mut word = String::new();
    let mut rest = text[1..].chars();
    loop {
        match rest.next() {
            Some('"') => return Ok((Word { text: word, quoted: true }, rest.as_str())),
            Some('\\') => word.push(escape(&mut rest).ok_or_else(|| {
                Problem::new(text, "has an unknown escape").hint("known are \\\" \\\\ \\n \\r \\t \\' and \\u{hex}")
            })?),
            Some(c) => word.push(c),
            None => return Err(Problem::new(text, "has no closing quote")),
        }
    }
}

fn escape(rest: &mut std::str::Chars) -> Option<char> {
    match rest.next()? {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        c @ ('"' | '\\' | '\'') => Some(c),
        'u' => {
            let (digits, behind) = rest.as_str().strip_prefix('{')?.split_once('}')?;
            *rest = behind.chars();
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)
        }
        _ => None,
    }
}

/// Digits alone, without a sign.
pub(super) fn whole<T: std::str::FromStr>(text: &str) -> Option<T> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A finite number.
pub(super) fn real(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// `prefix` and a number: `r3`, `%12`.
pub(super) fn numbered(prefix: &'static str) -> impl Fn(&str) -> Option<u32> {
    move |text| whole(text.strip_prefix(prefix)?)
}

/// A rank, such as `r3`.
pub(super) fn rank(text: &str) -> Option<Rank> {
    numbered("r")(text).map(Rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_prints_and_reads(text in "\\PC{0,12}|.{0,12}|after|->") {
            let line = format!("{} # comment", word(&text));
            let mut words = Words::cut(&line).expect("a line");
            prop_assert_eq!(words.any("word").expect("a word"), text);
            prop_assert!(words.is_empty());
        }

        #[test]
        fn any_line_is_cut_or_refused(line in ".{0,60}|[\"\\\\u{}0-9a ]{0,20}") {
            let _ = Words::cut(&line);
        }
    }
}
