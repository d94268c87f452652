//! A key's value: from TOML to the type that the key's row asks for, checked against its range or its choices.

use toml::de::DeValue;

use super::keys::{Key, Kind, Unwritten};
use super::presets;
use super::problem::Problem;
use crate::base::words::{grouped, nearest, number, shortened};

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    Number(f64),
    Bool(bool),
    Text(String),
    Integers(Vec<i64>),
}

impl Value {
    pub fn integer(self) -> Option<i64> {
        if let Self::Integer(integer) = self { Some(integer) } else { None }
    }

    /// A whole number as a size.
    pub fn size(self) -> Option<usize> {
        self.integer().and_then(|integer| usize::try_from(integer).ok())
    }

    /// A whole number as a count.
    pub fn count(self) -> Option<u32> {
        self.integer().and_then(|integer| u32::try_from(integer).ok())
    }

    pub fn number(self) -> Option<f64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    /// As it is written in a file.
    pub fn toml(&self) -> String {
        match self {
            Self::Integer(integer) => integer.to_string(),
            Self::Number(number) => format!("{number:?}"),
            Self::Bool(flag) => flag.to_string(),
            Self::Text(text) => toml::Value::String(text.clone()).to_string(),
            Self::Integers(list) => format!("{list:?}"),
        }
    }

    pub fn flag(self) -> Option<bool> {
        if let Self::Bool(flag) = self { Some(flag) } else { None }
    }

    pub fn text(self) -> Option<String> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// A list of whole numbers as sizes.
    pub fn sizes(self) -> Option<Vec<usize>> {
        let Self::Integers(list) = self else { return None };
        list.into_iter().map(|integer| usize::try_from(integer).ok()).collect()
    }
}

/// The longest text that a key takes, in characters.
const LONGEST_TEXT: usize = 200;

impl Key {
    /// What may be written: a range, the choices, or the type.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Integer(min, max) => self.with_unit(range(min, max)),
            Kind::Integers(min, max) => format!("a list such as [2, 2], each {}", range(min, max)),
            Kind::Number(min, max) => self.with_unit(format!("{} to {}", number(min), number(max))),
            Kind::Bool => "true, false".to_owned(),
            Kind::BoolOr(min, max) => format!("true, false, or {}", range(min, max)),
            Kind::Text => "a text".to_owned(),
            Kind::Sheet => "the name of a file, or the rows of a plan, a line each".to_owned(),
            Kind::Choice(choices) => choices().join(", "),
            Kind::Preset => format!("{}, or a number of parameters such as 7b or 7.5b", presets::names().join(", ")),
        }
    }

    fn with_unit(&self, range: String) -> String {
        if self.unit.is_empty() { range } else { format!("{range} {}", self.unit) }
    }

    /// What the key means when it is not written, if that is a value of its own.
    pub(super) fn unwritten_value(&self) -> Option<Value> {
        let Unwritten::Is(text) = self.unwritten else { return None };
        match self.kind {
            Kind::Integer(..) => text.parse().ok().map(Value::Integer),
            Kind::Number(..) => text.parse().ok().map(Value::Number),
            Kind::Bool | Kind::BoolOr(..) => text.parse().ok().map(Value::Bool),
            Kind::Text | Kind::Sheet | Kind::Choice(_) | Kind::Preset => Some(Value::Text(text.to_owned())),
            Kind::Integers(..) => None,
        }
    }

    /// The checked value of `value`, which was written as `raw`.
    pub(super) fn read(&self, value: &DeValue, raw: &str) -> Result<Value, Box<Problem>> {
        match (self.kind, value) {
            (Kind::Integer(min, max) | Kind::BoolOr(min, max), DeValue::Integer(_)) => {
                self.integer(value, raw, min, max).map(Value::Integer)
            }
            (Kind::Number(min, max), DeValue::Integer(_) | DeValue::Float(_)) => self.number(value, raw, min, max),
            (Kind::Bool | Kind::BoolOr(..), DeValue::Boolean(flag)) => Ok(Value::Bool(*flag)),
            (Kind::Sheet, DeValue::String(text)) if text.contains('\n') => Ok(Value::Text(text.clone().into_owned())),
            (Kind::Text | Kind::Sheet, DeValue::String(text)) => self.text(text, raw),
            (Kind::Choice(choices), DeValue::String(text)) => self.choice(text, raw, &choices()),
            (Kind::Preset, DeValue::String(text)) if presets::model(text).is_some() => Ok(Value::Text(text.clone().into_owned())),
            (Kind::Preset, DeValue::String(text)) => self.choice(text, raw, &presets::names()),
            (Kind::Integers(min, max), DeValue::Array(items)) => {
                let item = |item: &toml::Spanned<DeValue>| match item.get_ref() {
                    value @ DeValue::Integer(_) => self.integer(value, raw, min, max),
                    _ => Err(self.refuse(raw, "not a list of whole numbers")),
                };
                items.iter().map(item).collect::<Result<_, _>>().map(Value::Integers)
            }
            _ => Err(self.wrong_type(value, raw)),
        }
    }

    fn integer(&self, value: &DeValue, raw: &str, min: i64, max: i64) -> Result<i64, Box<Problem>> {
        let parsed = value.as_integer().and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok());
        match parsed {
            Some(integer) if integer < min => Err(self.refuse(raw, "too small")),
            Some(integer) if integer <= max => Ok(integer),
            None if raw.starts_with('-') => Err(self.refuse(raw, "too small")),
            _ => Err(self.refuse(raw, "too large")),
        }
    }

    fn number(&self, value: &DeValue, raw: &str, min: f64, max: f64) -> Result<Value, Box<Problem>> {
        let text = match value {
            DeValue::Float(float) => Some(float.as_str()),
            DeValue::Integer(integer) if integer.radix() == 10 => Some(integer.as_str()),
            _ => None,
        };
        match text.and_then(|text| text.parse::<f64>().ok()) {
            Some(number) if number < min => Err(self.refuse(raw, "too small")),
            Some(number) if number > max => Err(self.refuse(raw, "too large")),
            Some(number) if number.is_finite() => Ok(Value::Number(number)),
            _ => Err(self.refuse(raw, "not a decimal number")),
        }
    }

    fn text(&self, text: &str, raw: &str) -> Result<Value, Box<Problem>> {
        if text.trim().is_empty() {
            return Err(self.refuse(raw, "empty"));
        }
        let problem =
            |why| Err(Box::new(self.problem(raw, why).allowed(format!("one line of at most {LONGEST_TEXT} characters"))));
        if text.chars().any(is_unprintable) {
            return problem("not one line of plain text");
        }
        if text.chars().nth(LONGEST_TEXT).is_some() {
            return problem("too long");
        }
        Ok(Value::Text(text.to_owned()))
    }

    fn choice(&self, text: &str, raw: &str, choices: &[&str]) -> Result<Value, Box<Problem>> {
        if choices.contains(&text) {
            return Ok(Value::Text(text.to_owned()));
        }
        let problem = self.problem(raw, "none of the choices");
        Err(Box::new(match nearest(text, choices.iter().copied()) {
            Some(name) => problem.hint(format!("did you mean `{name}`?")),
            None => problem,
        }))
    }

    fn refuse(&self, raw: &str, why: &str) -> Box<Problem> {
        Box::new(self.problem(raw, why))
    }

    fn problem(&self, raw: &str, why: &str) -> Problem {
        let message = format!("`{} = {}` is {why}", self.name, shortened(raw));
        Problem::new(message).allowed(self.allowed())
    }

    fn wrong_type(&self, value: &DeValue, raw: &str) -> Box<Problem> {
        let is = type_name(value);
        let needs = match self.kind {
            Kind::Integer(..) => "a whole number",
            Kind::Number(..) => "a number",
            Kind::Bool => "true or false",
            Kind::BoolOr(..) => "true, false or a whole number",
            Kind::Text | Kind::Sheet | Kind::Choice(_) | Kind::Preset => "a text",
            Kind::Integers(..) => "a list of whole numbers",
        };
        let message = format!("`{} = {}` is {is}, not {needs}", self.name, shortened(raw));
        let problem = Problem::new(message).allowed(self.allowed());
        Box::new(match value {
            DeValue::String(text) if text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok() => {
                problem.hint(format!("without quotes: {}", shortened(text)))
            }
            DeValue::Float(float) => match whole(float.as_str()) {
                Some(whole) => problem.hint(format!("with all its digits: {whole}")),
                None => problem,
            },
            _ => problem,
        })
    }
}

fn type_name(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(float) if whole(float.as_str()).is_some() => "a number in the form of a fraction",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The whole number that was written as `1e9` or `4.0`.
#[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
fn whole(text: &str) -> Option<i64> {
    let value: f64 = text.parse().ok()?;
    (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64)
}

fn range(min: i64, max: i64) -> String {
    format!("{} to {}", grouped(min.into()), grouped(max.into()))
}

/// Characters that steer a terminal, or turn the direction of text around.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::keys::KEYS;

    #[test]
    fn every_default_and_every_example_is_allowed() {
        for key in KEYS {
            let (Unwritten::Is(text) | Unwritten::Like(text, _)) = key.unwritten;
            let quoted = matches!(key.kind, Kind::Text | Kind::Sheet | Kind::Choice(_) | Kind::Preset);
            let raw = if quoted { format!("\"{text}\"") } else { text.to_owned() };
            let value = DeValue::parse(&raw).expect("a default is TOML");
            let read = key.read(value.get_ref(), &raw).unwrap_or_else(|problem| panic!("{}: {problem:?}", key.path()));
            if let Some(unwritten) = key.unwritten_value() {
                assert_eq!(read, unwritten, "{}", key.path());
            }
        }
    }
}
