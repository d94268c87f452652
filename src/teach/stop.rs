//! Where in a run a page's picture stands.

use crate::base::Rank;
use crate::program::head::fits;
use crate::program::trouble::{Trouble, TroubleKind};
use crate::program::{Program, Trace};

/// A place in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// Before the first event.
    Start,
    /// After the last event.
    End,
    /// After so many events.
    Event(usize),
    /// After the last event up to this time, in the clock's unit: slots or nanoseconds.
    Time(f64),
    /// After the event that starts this op.
    Op {
        /// The rank.
        rank: usize,
        /// The words that the op's head starts with, as in a trouble rule: `0B0`, `send x2.3`. The first such op is meant.
        words: String,
    },
}

impl Eq for Stop {}

impl Stop {
    /// What a lesson may say.
    pub const ALLOWED: &'static str = "start, end, event N, time T, or op rR WORDS, such as op r0 0B0";

    /// The stop that `text` names.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        match (word, rest) {
            ("start", "") => Some(Self::Start),
            ("end", "") => Some(Self::End),
            ("event", number) => number.parse().ok().map(Self::Event),
            ("time", time) => time.parse().ok().filter(|time: &f64| time.is_finite() && *time >= 0.0).map(Self::Time),
            ("op", op) => {
                let (rank, words) = op.split_once(' ')?;
                let rank = rank.strip_prefix('r')?.parse().ok()?;
                Some(Self::Op { rank, words: words.trim().to_owned() })
            }
            _ => None,
        }
    }

    /// The number of events after which the run stands there; `None` if the run has no such place.
    #[must_use]
    pub fn position(&self, program: &Program, trace: &Trace) -> Option<usize> {
        let events = trace.events.len();
        match self {
            Self::Start => Some(0),
            Self::End => Some(events),
            Self::Event(event) => (*event <= events).then_some(*event),
            Self::Time(time) => Some(trace.events.partition_point(|event| trace.clock.in_unit(event.time) <= *time)),
            Self::Op { rank, words } => {
                let order = program.order.get(*rank)?;
                let rule = named(*rank, words);
                let op = order.iter().copied().find(|&op| fits(program, op, &rule))?;
                trace.event_of(op)
            }
        }
    }
}

/// Ops are named as trouble rules name them.
fn named(rank: usize, words: &str) -> Trouble {
    Trouble { kind: TroubleKind::SlowRank, rank: Some(Rank::new(rank)), op: words.to_owned(), step: None, factor: 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_read() {
        let check = |text: &str, expected: Option<Stop>| assert_eq!(Stop::parse(text), expected, "{text}");
        check("start", Some(Stop::Start));
        check("end", Some(Stop::End));
        check("event 71", Some(Stop::Event(71)));
        check("time 14.5", Some(Stop::Time(14.5)));
        check("op r3 send x2.3", Some(Stop::Op { rank: 3, words: "send x2.3".to_owned() }));
        for wrong in
            ["", "ende", "end 3", "event", "event -1", "time x", "time NaN", "time -1", "op", "op 3 F", "op r3", "op rx F"]
        {
            check(wrong, None);
        }
    }
}
