//! A scenario as written: the keys of a file and of `--set`, each of the right type, with the place where it stands.

use std::borrow::Cow;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key, Kind, SECTIONS, Section};
use super::problem::{Place, Problem, Problems, Source};
use super::value::Value;
use crate::base::words::{nearest, shortened};
use crate::program::sheet::Sheet;

/// What was written, and the problems found so far.
#[derive(Debug)]
pub(super) struct Written {
    sources: Vec<Source>,
    entries: Vec<Entry>,
    /// Values of keys that were not written and that something written settles.
    implied: Vec<(&'static Key, Value)>,
    /// The plan, where a sheet gives it.
    pub sheet: Option<Arc<Sheet>>,
    headers: Vec<(Section, Place)>,
    /// How many `[[trouble]]` sections there are.
    pub troubles: usize,
    problems: Vec<Problem>,
}

/// One written key. `index` counts `[[trouble]]` sections and is 0 elsewhere.
#[derive(Debug)]
struct Entry {
    key: &'static Key,
    index: usize,
    place: Place,
    /// `None` if the value was refused.
    value: Option<Value>,
}

/// More sections of `[[trouble]]` than anyone needs.
const MOST_TROUBLES: usize = 1_000;

impl Written {
    /// Reads the file `name` and the overrides, each `section.key=value`.
    ///
    /// # Errors
    /// If the text is no TOML: what follows a syntax error means nothing.
    pub fn read(name: &str, text: &str, overrides: &[String]) -> Result<Self, Problems> {
        let sources = std::iter::once((name, text)).chain(overrides.iter().map(|text| ("--set", text.as_str())));
        let sources = sources.map(|(name, text)| Source { name: name.to_owned(), text: text.to_owned() }).collect();
        let mut written = Self {
            sources,
            entries: Vec::new(),
            implied: Vec::new(),
            sheet: None,
            headers: Vec::new(),
            troubles: 0,
            problems: Vec::new(),
        };

        let (table, errors) = DeTable::parse_recoverable(text);
        if let Some(error) = errors.iter().find(|error| error.message() != DUPLICATE) {
            written.syntax_error(error);
            return Err(written.into_problems());
        }
        written.duplicates(&errors);
        written.table(Section::Top, 0, table.get_ref());
        for source in 1..=overrides.len() {
            written.set(source);
        }
        Ok(written)
    }

    /// All problems, if there are any.
    pub fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// The problems with the texts that they point into.
    pub fn into_problems(self) -> Problems {
        Problems::new(self.sources, self.problems)
    }

    /// The value of `key`, written or by default. `None`: it was refused, or it is unwritten and depends on other keys.
    pub fn value(&self, key: &Key, index: usize) -> Option<Value> {
        match self.entry(key, index) {
            Some(entry) => entry.value.clone(),
            None => self.implied(key).cloned().or_else(|| key.unwritten_value()),
        }
    }

    /// Whether `key` was written, rightly or wrongly.
    pub fn has(&self, key: &Key, index: usize) -> bool {
        self.entry(key, index).is_some()
    }

    /// Whether `key` has the value that it has where it is not written.
    pub fn is_default(&self, key: &Key) -> bool {
        self.value(key, 0) == key.unwritten_value()
    }

    /// Where `section` is written first: its header, or the first of its keys.
    pub fn section(&self, section: Section) -> Option<&Place> {
        let headers = self.headers.iter().filter(|(header, _)| *header == section).map(|(_, place)| place);
        headers.chain(self.entries.iter().filter(|entry| entry.key.section == section).map(|entry| &entry.place)).next()
    }

    /// The value of a key that something else settles.
    pub fn implied(&self, key: &Key) -> Option<&Value> {
        self.implied.iter().find(|(implied, _)| std::ptr::eq(*implied, key)).map(|(_, value)| value)
    }

    /// Settles the value of a key that was not written.
    pub fn imply(&mut self, key: &'static Key, value: Value) {
        self.implied.push((key, value));
    }

    /// The name of the file, beside itself, if it is a sheet and no scenario.
    pub fn sheet_in_place(&self) -> Option<String> {
        let name = std::path::Path::new(self.name()).file_name()?;
        let in_place = self.sheet.is_some() && !self.has(&super::keys::pipeline::CSV, 0);
        in_place.then(|| name.to_string_lossy().into_owned())
    }

    /// The name of the file, or what stands for it.
    pub fn name(&self) -> &str {
        &self.sources[0].name
    }

    /// The path of a file that stands beside this one.
    pub fn beside(&self, name: &str) -> String {
        let folder = std::path::Path::new(self.name()).parent().unwrap_or(std::path::Path::new(""));
        folder.join(name).to_string_lossy().into_owned()
    }

    /// Notes a problem with how `keys` go together. It stands at the first of them that was written.
    pub fn refuse(&mut self, keys: &[&'static Key], problem: Problem) {
        self.refuse_at(keys, 0, problem);
    }

    /// The same for the `[[trouble]]` section `index`; without one of the keys, at its header.
    pub fn refuse_at(&mut self, keys: &[&'static Key], index: usize, problem: Problem) {
        let entry = keys.iter().find_map(|key| self.entry(key, index));
        let section = keys.first().map(|key| key.section);
        let header = self.headers.iter().filter(|(header, _)| Some(*header) == section).nth(index).map(|(_, place)| place);
        let mut beside = self.entries.iter().filter(|entry| Some(entry.key.section) == section && entry.index == index);
        let problem = match (entry, header.or_else(|| beside.next().map(|entry| &entry.place))) {
            (Some(entry), _) => problem.about(entry.key.path(), self.slice(&entry.place)).at(entry.place.clone()),
            (None, Some(place)) => problem.at(place.clone()),
            (None, None) => problem,
        };
        self.problems.push(problem);
    }

    /// Notes a problem at `place`.
    pub fn refuse_place(&mut self, place: Place, problem: Problem) {
        self.problems.push(problem.at(place));
    }

    fn entry(&self, key: &Key, index: usize) -> Option<&Entry> {
        self.entries.iter().find(|entry| std::ptr::eq(entry.key, key) && entry.index == index)
    }

    fn slice(&self, place: &Place) -> &str {
        &self.sources[place.source].text[place.span.0..place.span.1]
    }
}

/// The words of the `toml` crate for a key or a table that is written twice.
const DUPLICATE: &str = "duplicate key";

// Reading a file.
impl Written {
    fn syntax_error(&mut self, error: &toml::de::Error) {
        let place = self.file_place(error.span().unwrap_or_default());
        self.problems.push(Problem::new(format!("this is not TOML: {}", error.message())).at(place));
    }

    fn duplicates(&mut self, errors: &[toml::de::Error]) {
        for error in errors {
            let place = self.file_place(error.span().unwrap_or_default());
            let name = shortened(self.slice(&place));
            let problem = Problem::new(format!("`{name}` is written twice")).hint("keep one of them");
            self.problems.push(problem.about(name, "").at(place));
        }
    }

    fn table(&mut self, section: Section, index: usize, table: &DeTable) {
        for (name, value) in table {
            if let Some(child) = section.child(name.get_ref()) {
                self.child(child, name, value);
            } else if let Some(key) = Key::find(section, name.get_ref()) {
                let place = self.file_place(value.span());
                self.enter(key, index, place, value.get_ref());
            } else {
                self.unknown(section, name, value.get_ref());
            }
        }
    }

    fn child(&mut self, section: Section, name: &Spanned<Cow<str>>, value: &Spanned<DeValue>) {
        let header = self.file_place(name.span());
        match value.get_ref() {
            DeValue::Table(table) if section != Section::Trouble => {
                self.headers.push((section, header));
                self.table(section, 0, table);
            }
            DeValue::Array(items) if section == Section::Trouble => self.trouble(items),
            _ => {
                let message = format!("`{}` is not written as a section", section.path());
                self.refuse_place(header, Problem::new(message).hint(format!("write {} and its keys below", section.header())));
            }
        }
    }

    fn trouble(&mut self, items: &toml::de::DeArray) {
        for item in items {
            let place = self.file_place(item.span());
            match item.get_ref() {
                DeValue::Table(_) if self.troubles == MOST_TROUBLES => {
                    self.refuse_place(place, Problem::new(format!("more than {MOST_TROUBLES} sections of [[trouble]]")));
                    return;
                }
                DeValue::Table(table) => {
                    self.headers.push((Section::Trouble, place));
                    self.table(Section::Trouble, self.troubles, table);
                    self.troubles += 1;
                }
                _ => {
                    let problem = Problem::new("a trouble is a section").hint("write [[trouble]] and its keys below");
                    self.refuse_place(place, problem);
                }
            }
        }
    }

    fn unknown(&mut self, section: Section, name: &Spanned<Cow<str>>, value: &DeValue) {
        let place = self.file_place(name.span());
        let key = shortened(name.get_ref());
        let is_section = section == Section::Top
            && !matches!(value, DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_));
        let problem = if is_section { unknown_section(&key) } else { unknown_key(section, &key) };
        self.refuse_place(place, problem.about(key, ""));
    }

    fn enter(&mut self, key: &'static Key, index: usize, place: Place, value: &DeValue) {
        let raw = self.slice(&place).to_owned();
        let value = match key.read(value, &raw) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.problems.push(problem.about(key.path(), raw).at(place.clone()));
                None
            }
        };
        self.entries.retain(|entry| !(std::ptr::eq(entry.key, key) && entry.index == index));
        self.entries.push(Entry { key, index, place, value });
    }

    fn file_place(&self, span: std::ops::Range<usize>) -> Place {
        let text = &self.sources[0].text;
        let start = text.floor_char_boundary(span.start);
        Place { source: 0, span: (start, text.ceil_char_boundary(span.end).max(start)) }
    }
}

// Reading `--set`.
impl Written {
    fn set(&mut self, source: usize) {
        let text = self.sources[source].text.clone();
        let whole = Place { source, span: (0, text.len()) };
        let Some((path, value)) = text.split_once('=') else {
            let problem = Problem::new(format!("`{}` sets nothing", shortened(&text)));
            return self.refuse_place(whole, problem.hint("write --set section.key=value"));
        };
        let (path, value) = (path.trim(), value.trim());
        match self.find(path) {
            Ok((key, index)) => {
                self.troubles = self.troubles.max(index + usize::from(key.section == Section::Trouble));
                let end = text.trim_end().len();
                self.enter(key, index, Place { source, span: (end - value.len(), end) }, &override_value(key, value));
            }
            Err(problem) => {
                let start = text.len() - text.trim_start().len();
                self.refuse_place(Place { source, span: (start, start + path.len()) }, problem.about(path, value));
            }
        }
    }

    /// The key of a path: `title`, `pipeline.schedule`, `hardware.inside.alpha`, `trouble.0.rank`.
    fn find(&self, path: &str) -> Result<(&'static Key, usize), Box<Problem>> {
        let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
        let (section, index) = match section.strip_prefix("trouble.").map(str::parse::<usize>) {
            Some(Ok(index)) if index > self.troubles.min(MOST_TROUBLES - 1) => {
                let message = format!("there is no trouble {index}: the scenario has {}", self.troubles);
                return Err(Box::new(Problem::new(message).hint(format!("`trouble.{}` adds one", self.troubles))));
            }
            Some(Ok(index)) => ("trouble", index),
            _ if section == "trouble" => {
                let hint = format!("write trouble.0.{name} for the first one");
                return Err(Box::new(Problem::new("which trouble? There may be several").hint(hint)));
            }
            _ => (section, 0),
        };
        let key = Section::find(section).and_then(|section| Key::find(section, name));
        key.map(|key| (key, index)).ok_or_else(|| Box::new(unknown_path(path)))
    }
}

/// On a command line texts come without quotes; what is no TOML is a text.
fn override_value<'v>(key: &Key, text: &'v str) -> DeValue<'v> {
    let is_bare = matches!(key.kind, Kind::Text | Kind::Sheet | Kind::Choice(_) | Kind::Preset) && !text.starts_with(['"', '\'']);
    let parsed = if is_bare { None } else { DeValue::parse(text).ok() };
    parsed.map_or(DeValue::String(Cow::Borrowed(text)), Spanned::into_inner)
}

fn unknown_section(name: &str) -> Problem {
    let paths: Vec<&str> = SECTIONS.iter().map(|(_, path, _)| *path).filter(|path| !path.is_empty()).collect();
    let problem = Problem::new(format!("unknown section [{name}]")).allowed(paths.join(", "));
    match nearest(name, paths) {
        Some(path) => problem.hint(format!("did you mean [{path}]?")),
        None => problem,
    }
}

fn unknown_key(section: Section, name: &str) -> Problem {
    let names: Vec<&str> = section.keys().map(|key| key.name).collect();
    let problem = Problem::new(format!("unknown key `{name}` {}", section.place())).allowed(names.join(", "));
    let elsewhere = KEYS.iter().find(|key| key.name == name).map(|key| key.section);
    match (elsewhere, nearest(name, names)) {
        (Some(section), _) => problem.hint(format!("`{name}` belongs {}", section.place())),
        (None, Some(near)) => problem.hint(format!("did you mean `{near}`?")),
        (None, None) => problem,
    }
}

fn unknown_path(path: &str) -> Problem {
    let paths: Vec<String> = KEYS.iter().map(|key| key.path()).collect();
    let name = path.rsplit('.').next().unwrap_or(path);
    let by_name = nearest(name, KEYS.iter().map(|key| key.name)).and_then(|near| KEYS.iter().find(|key| key.name == near));
    // A name alone is not what was meant if a section stands before it that there is not, nor one like it.
    let section = path.strip_suffix(name).map(|section| section.trim_end_matches('.')).filter(|section| !section.is_empty());
    let has_section = |section: &str| nearest(section, SECTIONS.iter().map(|(_, path, _)| *path)).is_some();
    let by_name = by_name.filter(|key| key.name == name || section.is_none_or(has_section));
    let near = nearest(path, paths.iter().map(String::as_str)).map(str::to_owned).or(by_name.map(|key| key.path()));
    let problem = Problem::new(format!("unknown key `{}`", shortened(path)));
    match near {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint("`ranklab show scenario` lists all keys"),
    }
}
