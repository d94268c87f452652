//! Breakpoints: conditions on which a run that goes on stops, forward or back. They are words, so that they hold for the next run as well,
//! and each is looked up in a recorded run once: the events at which it is met.

use std::fmt;

use super::ledger::Ledger;
use super::run::Run;
use crate::base::{Bytes, OpId, Rank};
use crate::program::head::Words;
use crate::program::op::Origin;
use crate::program::plan::{Pass, Slot};

/// When to stop.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakpoint {
    /// Only what this rank does, by its number among all; `None`: any.
    pub rank: Option<Rank>,
    /// What is to happen.
    pub condition: Condition,
}

/// What is to happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Any op starts.
    Any,
    /// An op starts whose head begins with these words; of the ops of a slot that is named alone, the first.
    Op(String),
    /// A slot of this micro-batch of a step begins.
    MicroBatch(u32),
    /// So much time has passed, in the clock's unit: slots or nanoseconds.
    Time(f64),
    /// The rank comes to hold more than this.
    Memory(Bytes),
    /// The first op starts whose result is no number.
    Nan,
}

impl Breakpoint {
    /// What may be written.
    pub const FORMS: [(&'static str, &'static str); 6] = [
        ("r2", "any op of the rank starts"),
        ("op 1B3", "a slot begins, or an op by its words: op send x4; r2 op 1B3"),
        ("mb 3", "the micro-batch is taken up, on any rank; r0 mb 3"),
        ("time 14", "so many slots or nanoseconds have passed"),
        ("memory 1.5 MiB", "a rank comes to hold more; r0 memory 600 KiB"),
        ("nan", "the first result that is no number"),
    ];

    /// The breakpoint that `text` describes.
    ///
    /// # Errors
    /// What is wrong with it, and what may be written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (first, behind) = split(text);
        let rank = first.strip_prefix('r').and_then(|digits| digits.parse().ok()).map(Rank);
        let rest = if rank.is_some() { behind } else { text };
        let condition = condition(rest, rank).map_err(|problem| {
            let forms = Self::FORMS.map(|(form, _)| form).join(", ");
            format!("{problem}; a breakpoint is {forms}")
        })?;
        Ok(Self { rank, condition })
    }

    /// The events of `run` at which it is met, in order. `nan` is the first op whose result is no number. Linear in the ops.
    #[must_use]
    #[expect(clippy::stable_sort_primitive, reason = "ranks' events come in order each, and this sort keeps such runs")]
    pub fn hits(&self, run: &Run, ledger: &Ledger, nan: Option<OpId>) -> Vec<usize> {
        let events = &run.trace.events;
        let mut hits = match &self.condition {
            Condition::Time(time) => {
                let before = events.partition_point(|event| run.trace.clock.in_unit(event.time) < *time);
                if before < events.len() { vec![before + 1] } else { Vec::new() }
            }
            Condition::Memory(limit) => self.ranks(run).flat_map(|rank| exceeding(ledger, rank, *limit)).collect(),
            Condition::Nan => nan.filter(|&op| self.is_of(run, op)).and_then(|op| run.trace.event_of(op)).into_iter().collect(),
            Condition::Any => self.started(run, |_| true),
            Condition::Op(words) => self.named(run, words),
            Condition::MicroBatch(number) => self.entered(run, |slot| slot.micro_batch == *number),
        };
        hits.sort();
        hits.dedup();
        hits
    }

    /// The events that start what is named by words: the first op of a slot, or every op whose head begins so.
    fn named(&self, run: &Run, words: &str) -> Vec<usize> {
        if let Some(pattern) = slot_pattern(words) {
            return self.entered(run, |slot| pattern.fits(slot));
        }
        let words = Words::new(words);
        self.started(run, |op| words.begin(run.program, op))
    }

    fn is_of(&self, run: &Run, op: OpId) -> bool {
        self.rank.is_none_or(|rank| run.program.followed(rank) == Some(run.program.rank_of(op)))
    }

    fn ranks<'a>(&self, run: &'a Run) -> impl Iterator<Item = Rank> + use<'a> {
        let only = self.rank.map(|rank| run.program.followed(rank));
        (0..run.program.ranks()).map(Rank::new).filter(move |&rank| only.is_none_or(|only| only == Some(rank)))
    }

    /// The events that start the ops that `fits`.
    fn started(&self, run: &Run, fits: impl Fn(OpId) -> bool) -> Vec<usize> {
        let ops = self.ranks(run).flat_map(|rank| &run.program.order[rank.index()]).copied();
        ops.filter(|&op| fits(op)).filter_map(|op| run.trace.event_of(op)).collect()
    }

    /// The events that start the first op of each slot that `fits`.
    fn entered(&self, run: &Run, fits: impl Fn(Slot) -> bool) -> Vec<usize> {
        let mut events = Vec::new();
        for rank in self.ranks(run) {
            let mut before: Option<(Slot, u32)> = None;
            for &op in &run.program.order[rank.index()] {
                let Origin { slot, step, .. } = run.program.op(op).origin;
                let Some(here) = slot.filter(|&slot| fits(slot)).map(|slot| (slot, step)) else { continue };
                if before.replace(here) != Some(here) {
                    events.extend(run.trace.event_of(op));
                }
            }
        }
        events
    }
}

fn split(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, rest.trim())
}

fn condition(text: &str, rank: Option<Rank>) -> Result<Condition, String> {
    let (word, rest) = split(text);
    match (word, rest) {
        ("", _) if rank.is_some() => Ok(Condition::Any),
        ("", _) => Err("nothing is said".to_owned()),
        ("nan", "") => Ok(Condition::Nan),
        ("op", words) if !words.is_empty() => Ok(Condition::Op(words.to_owned())),
        ("mb", number) => number.parse().map(Condition::MicroBatch).map_err(|_| format!("`{number}` is no micro-batch")),
        ("time", time) => {
            let time = time.trim_end_matches('u').parse::<f64>().ok().filter(|time| time.is_finite() && *time >= 0.0);
            time.map(Condition::Time).ok_or_else(|| format!("`{rest}` is no time"))
        }
        ("memory", size) => {
            Bytes::parse(size).map(Condition::Memory).ok_or_else(|| format!("`{size}` is no size, such as 1.5 MiB"))
        }
        _ if slot_pattern(word).is_some() => Ok(Condition::Op(text.to_owned())),
        _ => Err(format!("`{text}` says nothing of a run")),
    }
}

/// Slots named as in a sheet, or without their stage, as on the screen.
struct SlotPattern {
    stage: Option<u32>,
    pass: Pass,
    micro_batch: u32,
}

impl SlotPattern {
    fn fits(&self, slot: Slot) -> bool {
        self.stage.is_none_or(|stage| stage == slot.stage) && (self.pass, self.micro_batch) == (slot.pass, slot.micro_batch)
    }
}

/// `1B3`, `B3`: a slot alone.
fn slot_pattern(text: &str) -> Option<SlotPattern> {
    let place = text.find(|character: char| !character.is_ascii_digit())?;
    let (stage, rest) = text.split_at(place);
    let pass = Pass::ALL.into_iter().find(|pass| rest.starts_with(pass.letter()))?;
    let stage = if stage.is_empty() { None } else { Some(stage.parse().ok()?) };
    Some(SlotPattern { stage, pass, micro_batch: rest.get(1..)?.parse().ok()? })
}

/// The events at which `rank` comes to hold more than `limit`.
fn exceeding(ledger: &Ledger, rank: Rank, limit: Bytes) -> Vec<usize> {
    let samples = &ledger.rank(rank).samples;
    let crosses = samples.windows(2).filter(|pair| pair[0].total() <= limit && pair[1].total() > limit);
    crosses.map(|pair| pair[1].event as usize).filter(|&event| event > 0).collect()
}

impl fmt::Display for Breakpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(f, "{rank}{}", if self.condition == Condition::Any { "" } else { " " })?;
        }
        match &self.condition {
            Condition::Any => Ok(()),
            Condition::Op(words) => write!(f, "op {words}"),
            Condition::MicroBatch(number) => write!(f, "mb {number}"),
            Condition::Time(time) => write!(f, "time {time}"),
            // A rounded size would be another one.
            Condition::Memory(limit) if Bytes::parse(&limit.to_string()) == Some(*limit) => write!(f, "memory {limit}"),
            Condition::Memory(limit) => write!(f, "memory {} B", limit.0),
            Condition::Nan => write!(f, "nan"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_and_printed_again() {
        let check = |text: &str, printed: &str| {
            let read = Breakpoint::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
            assert_eq!(read.to_string(), printed, "{text}");
            assert_eq!(Breakpoint::parse(printed).as_ref(), Ok(&read), "{printed}");
        };
        check("r2", "r2");
        check(" r2   op recv x4.5 ", "r2 op recv x4.5");
        check("1B3", "op 1B3");
        check("r0 B3", "r0 op B3");
        check("mb 3", "mb 3");
        check("r1 mb 0", "r1 mb 0");
        check("time 14.5u", "time 14.5");
        check("memory 1536", "memory 1.5 KiB");
        check("r3 memory 2 MiB", "r3 memory 2 MiB");
        check("memory 1537", "memory 1537 B");
        check("nan", "nan");
    }

    #[test]
    fn what_is_no_breakpoint_says_so() {
        for text in ["", " ", "rx", "mb", "mb x", "time", "time -1", "time nan", "memory", "memory much", "nan 3", "op", "hello"]
        {
            let problem = Breakpoint::parse(text).expect_err(text);
            assert!(problem.contains("a breakpoint is r2, op 1B3"), "{text}: {problem}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = Breakpoint::parse(&text);
        }
    }
}
