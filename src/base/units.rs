//! Quantities that know their unit: time in integer ticks, memory and traffic in integer bytes.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// A point in time or a duration, in the clock's ticks: nanoseconds, or a fixed fraction of a slot (see [`Clock`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticks(pub u64);

/// An amount of memory or of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bytes(pub u64);

/// What one tick means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "unit", rename_all = "kebab-case")]
pub enum Clock {
    /// Unit costs: a textbook slot is this many ticks, chosen so that every share of a slot is whole.
    Slots {
        /// Ticks in one slot; at least 1.
        ticks_per_slot: u64,
    },
    /// A hardware table: one tick is a nanosecond.
    #[serde(rename = "ns")]
    Nanoseconds,
}

impl Clock {
    /// The unit's word in reports: `slots` or `ns`.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Slots { .. } => "slots",
            Self::Nanoseconds => "ns",
        }
    }

    /// `ticks` in the clock's unit; slots may be fractions.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a report's number; times stay far below 2^53 ticks")]
    pub fn in_unit(self, ticks: Ticks) -> f64 {
        match self {
            Self::Slots { ticks_per_slot } => ticks.0 as f64 / ticks_per_slot as f64,
            Self::Nanoseconds => ticks.0 as f64,
        }
    }

    /// A time in the clock's unit, in words: `33 slots`, `1.25 ms`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and far below 2^64 ns")]
    pub fn in_words(self, time: f64) -> String {
        match self {
            Self::Slots { .. } => format!("{} {}", short_number(time), self.unit()),
            Self::Nanoseconds => show_nanoseconds(time.round() as u64),
        }
    }

    /// `ticks` as a short text with its unit: `33u` (slots), `1.25 ms`.
    #[must_use]
    pub fn show(self, ticks: Ticks) -> String {
        match self {
            Self::Slots { .. } => format!("{}u", short_number(self.in_unit(ticks))),
            Self::Nanoseconds => show_nanoseconds(ticks.0),
        }
    }
}

/// The greatest common divisor.
#[must_use]
pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// At most two decimals, without trailing zeros: `33`, `28.5`, `0.67`.
#[must_use]
pub fn short_number(value: f64) -> String {
    number_of(value, 2)
}

/// At most so many decimals, without trailing zeros.
fn number_of(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[expect(clippy::cast_precision_loss, reason = "a report's number")]
fn show_nanoseconds(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{} us", short_number(value / 1e3)),
        1_000_000..=999_999_999 => format!("{} ms", short_number(value / 1e6)),
        _ => format!("{} s", short_number(value / 1e9)),
    }
}

/// Units of memory, each 1024 of the one before.
const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

impl Bytes {
    /// The amount that `text` says, as it is printed or without a unit: `512`, `1.5 MiB`; in part bytes it is rounded.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and far below 2^64")]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "" => 0,
            unit => UNITS.iter().position(|known| known.eq_ignore_ascii_case(unit))?,
        };
        let number: f64 = digits.trim().parse().ok()?;
        let bytes = number * 1024_f64.powi(i32::try_from(unit).ok()?);
        (0.0..1e18).contains(&bytes).then_some(Self(bytes.round() as u64))
    }

    /// This and another amount, with as many decimals as tell the two apart.
    #[must_use]
    pub fn beside(self, other: Self) -> [String; 2] {
        let both = |decimals| [self, other].map(|bytes| bytes.shown(decimals));
        (2..12).map(both).find(|[one, other]| one != other).unwrap_or_else(|| both(2))
    }

    /// `74.513 GiB of 74.506 GiB`.
    #[must_use]
    pub fn out_of(self, whole: Self) -> String {
        self.beside(whole).join(" of ")
    }

    /// In the largest unit of which there is one, with at most so many decimals.
    #[expect(clippy::cast_precision_loss, reason = "a report's number")]
    fn shown(self, decimals: usize) -> String {
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        format!("{} {}", number_of(value, decimals), UNITS[unit])
    }
}

impl fmt::Display for Bytes {
    /// Binary units, as allocators count: `512 B`, `1.5 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.shown(2))
    }
}

macro_rules! quantity {
    ($name:ident) => {
        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0);
        }
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0 * times)
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                Self(iter.map(|quantity| quantity.0).sum())
            }
        }
    };
}

quantity!(Ticks);
quantity!(Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_with_their_unit() {
        let slots = Clock::Slots { ticks_per_slot: 6 };
        let check = |shown: String, expected: &str| assert_eq!(shown, expected);
        check(slots.show(Ticks(33 * 6)), "33u");
        check(slots.show(Ticks(3)), "0.5u");
        check(Clock::Nanoseconds.show(Ticks(999)), "999 ns");
        check(Clock::Nanoseconds.show(Ticks(1_250_000)), "1.25 ms");
        check(Bytes(0).to_string(), "0 B");
        check(Bytes(1536).to_string(), "1.5 KiB");
        check(Bytes(33_554_432).to_string(), "32 MiB");
    }

    #[test]
    fn amounts_are_read_as_they_are_printed() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(Bytes::parse(text), expected.map(Bytes), "{text}");
        check("0", Some(0));
        check("512 B", Some(512));
        check("1.5 KiB", Some(1536));
        check("32mib", Some(33_554_432));
        for wrong in ["", "MiB", "-1", "1 MB/s", "1e30", "nan", "inf", "1 2"] {
            check(wrong, None);
        }
    }
}
