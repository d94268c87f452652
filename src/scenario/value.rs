//! A key's value: from TOML to the type that the key's row asks for, checked against its range or its choices.

use toml::de::DeValue;

use super::keys::{Key, Kind, Unwritten};
use super::problem::Problem;
use super::words::{grouped, nearest, number, shortened};

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    Number(f64),
    Bool(bool),
    Text(String),
    Integers(Vec<i64>),
}

/// The longest text that a key takes, in characters.
const LONGEST_TEXT: usize = 200;

impl Key {
    /// What may be written: a range, the choices, or the type.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Integer(min, max) => range(min, max),
            Kind::Integers(min, max) => format!("a list such as [2, 2], each {}", range(min, max)),
            Kind::Number(min, max) => format!("{} to {}", number(min), number(max)),
            Kind::Bool => "true, false".to_owned(),
            Kind::Text => "a text".to_owned(),
            Kind::Choice(choices) => choices().join(", "),
        }
    }

    /// What the key means when it is not written, if that is a value of its own.
    pub(super) fn unwritten_value(&self) -> Option<Value> {
        let Unwritten::Is(text) = self.unwritten else { return None };
        match self.kind {
            Kind::Integer(..) => text.parse().ok().map(Value::Integer),
            Kind::Number(..) => text.parse().ok().map(Value::Number),
            Kind::Bool => text.parse().ok().map(Value::Bool),
            Kind::Text | Kind::Choice(_) => Some(Value::Text(text.to_owned())),
            Kind::Integers(..) => None,
        }
    }

    /// The checked value of `value`, which was written as `raw`.
    pub(super) fn read(&self, value: &DeValue, raw: &str) -> Result<Value, Problem> {
        match (self.kind, value) {
            (Kind::Integer(min, max), DeValue::Integer(_)) => self.integer(value, raw, min, max).map(Value::Integer),
            (Kind::Number(min, max), DeValue::Integer(_) | DeValue::Float(_)) => self.number(value, raw, min, max),
            (Kind::Bool, DeValue::Boolean(flag)) => Ok(Value::Bool(*flag)),
            (Kind::Text, DeValue::String(text)) => self.text(text, raw),
            (Kind::Choice(choices), DeValue::String(text)) => self.choice(text, raw, &choices()),
            (Kind::Integers(min, max), DeValue::Array(items)) => {
                let item = |item: &toml::Spanned<DeValue>| match item.get_ref() {
                    value @ DeValue::Integer(_) => self.integer(value, raw, min, max),
                    _ => Err(self.wrong_type(value, raw)),
                };
                items.iter().map(item).collect::<Result<_, _>>().map(Value::Integers)
            }
            _ => Err(self.wrong_type(value, raw)),
        }
    }

    fn integer(&self, value: &DeValue, raw: &str, min: i64, max: i64) -> Result<i64, Problem> {
        let parsed = value.as_integer().and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok());
        match parsed {
            Some(integer) if integer < min => Err(self.refuse(raw, "too small")),
            Some(integer) if integer <= max => Ok(integer),
            None if raw.starts_with('-') => Err(self.refuse(raw, "too small")),
            _ => Err(self.refuse(raw, "too large")),
        }
    }

    fn number(&self, value: &DeValue, raw: &str, min: f64, max: f64) -> Result<Value, Problem> {
        let text = match value {
            DeValue::Float(float) => Some(float.as_str()),
            DeValue::Integer(integer) if integer.radix() == 10 => Some(integer.as_str()),
            _ => None,
        };
        match text.and_then(|text| text.parse::<f64>().ok()) {
            Some(number) if number < min => Err(self.refuse(raw, "too small")),
            Some(number) if number > max => Err(self.refuse(raw, "too large")),
            Some(number) if number.is_finite() => Ok(Value::Number(number)),
            _ => Err(self.refuse(raw, "no decimal number")),
        }
    }

    fn text(&self, text: &str, raw: &str) -> Result<Value, Problem> {
        if text.trim().is_empty() {
            return Err(self.refuse(raw, "empty"));
        }
        if text.chars().any(char::is_control) || text.chars().nth(LONGEST_TEXT).is_some() {
            return Err(self.refuse(raw, "no short line").allowed(format!("one line of at most {LONGEST_TEXT} characters")));
        }
        Ok(Value::Text(text.to_owned()))
    }

    fn choice(&self, text: &str, raw: &str, choices: &[&str]) -> Result<Value, Problem> {
        if choices.contains(&text) {
            return Ok(Value::Text(text.to_owned()));
        }
        let problem = self.refuse(raw, "none of the choices");
        Err(match nearest(text, choices.iter().copied()) {
            Some(name) => problem.hint(format!("did you mean `{name}`?")),
            None => problem,
        })
    }

    fn refuse(&self, raw: &str, why: &str) -> Problem {
        let message = format!("`{}` is {}: {why}", self.name, shortened(raw));
        Problem::new(message).allowed(self.allowed())
    }

    fn wrong_type(&self, value: &DeValue, raw: &str) -> Problem {
        let is = type_name(value);
        let needs = match self.kind {
            Kind::Integer(..) => "a whole number",
            Kind::Number(..) => "a number",
            Kind::Bool => "true or false",
            Kind::Text | Kind::Choice(_) => "a text",
            Kind::Integers(..) => "a list of whole numbers",
        };
        let message = format!("`{}` is {is}, {}: it needs {needs}", self.name, shortened(raw));
        let problem = Problem::new(message).allowed(self.allowed());
        match value {
            DeValue::String(text) if text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok() => {
                problem.hint(format!("without quotes: {}", shortened(text)))
            }
            _ => problem,
        }
    }
}

fn type_name(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn range(min: i64, max: i64) -> String {
    format!("{} to {}", grouped(min.into()), grouped(max.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::keys::KEYS;

    #[test]
    fn every_default_is_allowed() {
        for key in KEYS {
            let Unwritten::Is(text) = key.unwritten else { continue };
            let quoted = matches!(key.kind, Kind::Text | Kind::Choice(_));
            let raw = if quoted { format!("\"{text}\"") } else { text.to_owned() };
            let value = DeValue::parse(&raw).expect("a default is TOML");
            assert_eq!(key.read(value.get_ref(), &raw).ok(), key.unwritten_value(), "{}", key.path());
        }
    }
}
