//! The head of an op: its short text, for screens, messages, and the rules of trouble.

use std::fmt::{self, Write as _};

use crate::base::model::Part;
use crate::base::{BufferId, OpId};

use super::name::Name;
use super::op::{Kernel, OpKind};
use super::tables::Program;
use super::trouble::Trouble;

/// An op's head: `1F5 forward blocks.3`, `send x4.5 -> r1`, `all-reduce bucket0`.
#[derive(Clone, Copy)]
pub struct Head<'program> {
    program: &'program Program,
    op: OpId,
}

/// The head of `op`.
#[must_use]
pub fn head(program: &Program, op: OpId) -> Head<'_> {
    Head { program, op }
}

/// An op behind its rank: "r0 `send x4.1 -> r1`".
#[must_use]
pub fn head_with_rank(program: &Program, op: OpId) -> String {
    format!("{} `{}`", program.whole_rank_of(op), head(program, op))
}

/// Whether a rule meets `op`: by rank, step, and the words that the head starts with.
#[must_use]
pub fn fits(program: &Program, op: OpId, rule: &Trouble) -> bool {
    let view = program.op(op);
    let here = rule.rank.is_none_or(|rank| rank == view.rank) && rule.step.is_none_or(|step| step == view.origin.step);
    here && begins(program, op, &rule.op)
}

/// Whether the head of `op` begins with these words.
#[must_use]
pub fn begins(program: &Program, op: OpId, words: &str) -> bool {
    Words::new(words).begin(program, op)
}

/// The first words of heads. Many ops are asked, and most differ in their verb, or in the buffer of their message: no text is made of those.
#[derive(Clone, Copy, Debug)]
pub struct Words<'words> {
    all: &'words str,
    first: &'words str,
    /// The second word, if it is the name of a buffer.
    name: Option<Name>,
}

impl<'words> Words<'words> {
    /// These words.
    #[must_use]
    pub fn new(all: &'words str) -> Self {
        let mut each = all.split(' ');
        let first = each.next().unwrap_or_default();
        let name = each.next().and_then(|word| Name::parse(word).filter(|name| name.to_string() == word));
        Self { all, first, name }
    }

    /// Whether the head of `op` begins with them.
    #[must_use]
    pub fn begin(&self, program: &Program, op: OpId) -> bool {
        match verb(program, op).filter(|_| !self.all.is_empty()) {
            Some(verb) if verb != self.first => false,
            Some(verb) if verb == self.all => true,
            Some(_) if self.name.is_some_and(|name| message(program, op).is_some_and(|there| there != name)) => false,
            _ => starts_with_words(head(program, op), self.all),
        }
    }
}

/// What the message is called whose end `op` is.
fn message(program: &Program, op: OpId) -> Option<Name> {
    let buffer = match program.kind(op).original() {
        OpKind::Send(_) => program.reads(op).first(),
        OpKind::Recv(_) | OpKind::RecvReduce(_) => program.writes(op).first(),
        _ => None,
    };
    buffer.map(|buffer| program.buffers[buffer.index()].name)
}

/// The first word of the head of `op`; `None` where that is its slot.
fn verb(program: &Program, op: OpId) -> Option<&'static str> {
    match program.kind(op).original() {
        OpKind::Run(kernel) => {
            let has_slot = program.op(op).origin.slot.is_some();
            (!has_slot).then(|| program.kernels[kernel.index()].kernel.words().0)
        }
        OpKind::Send(_) => Some("send"),
        OpKind::Recv(_) => Some("recv"),
        OpKind::RecvReduce(_) => Some("recv-reduce"),
        OpKind::Collective(collective) => Some(program.collectives[collective.index()].kind.name()),
        OpKind::Skipped(_) => unreachable!("a skipped op stands for one that is not skipped"),
    }
}

/// Whether `text` begins with `words`, whole words only: `0F3` does not meet `0F31`. Many ops are asked, and most are no match from the
/// first letters on: no more of the text is written than that takes.
fn starts_with_words(text: impl fmt::Display, words: &str) -> bool {
    let mut start = Start { awaited: words.as_bytes(), found: words.is_empty().then_some(true) };
    if start.found.is_none() {
        // An error is how it says that it has seen enough.
        let _ = write!(start, "{text}");
    }
    start.found.unwrap_or(start.awaited.is_empty())
}

/// Compares the start of a text with words while it is written.
struct Start<'words> {
    /// What has not come yet.
    awaited: &'words [u8],
    /// Whether the text starts with the words, once that is known.
    found: Option<bool>,
}

impl fmt::Write for Start<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (now, later) = self.awaited.split_at(self.awaited.len().min(text.len()));
        let (same, behind) = text.as_bytes().split_at(now.len());
        self.awaited = later;
        self.found = match behind.first() {
            _ if same != now => Some(false),
            Some(next) => Some(*next == b' '),
            None => None,
        };
        if self.found.is_some() { Err(fmt::Error) } else { Ok(()) }
    }
}

impl fmt::Display for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = self.program.op(self.op);
        let verb = verb(self.program, self.op).unwrap_or_default();
        match op.kind.original() {
            OpKind::Run(kernel) => {
                if let Some(slot) = op.origin.slot {
                    write!(f, "{slot} ")?;
                }
                write!(f, "{}", self.program.kernels[kernel.index()].kernel)
            }
            OpKind::Send(channel) => {
                self.message(f, verb, op.reads)?;
                write!(f, " -> {}", self.program.whole(self.program.channels[channel.index()].to))
            }
            OpKind::Recv(channel) | OpKind::RecvReduce(channel) => {
                self.message(f, verb, op.writes)?;
                write!(f, " <- {}", self.program.whole(self.program.channels[channel.index()].from))
            }
            OpKind::Collective(collective) => {
                let collective = &self.program.collectives[collective.index()];
                write!(f, "{verb} {}", collective.label)
            }
            OpKind::Skipped(_) => unreachable!("a skipped op stands for one that is not skipped"),
        }
    }
}

impl Head<'_> {
    /// Verb and buffer of a message's end; an end without a buffer is told by the check.
    fn message(&self, f: &mut fmt::Formatter<'_>, verb: &str, operands: &[BufferId]) -> fmt::Result {
        f.write_str(verb)?;
        operands.first().map_or(Ok(()), |buffer| write!(f, " {}", self.program.buffers[buffer.index()].name))
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, part) = self.words();
        match part {
            Some(part) => write!(f, "{verb} {part}"),
            None => f.write_str(verb),
        }
    }
}

impl Kernel {
    /// Its verb, and the part that it works on.
    #[must_use]
    pub fn words(self) -> (&'static str, Option<Part>) {
        match self {
            Self::LoadTokens => ("load-tokens", None),
            Self::LoadTargets => ("load-targets", None),
            Self::Forward(part) => ("forward", Some(part)),
            Self::BackwardInput(part) => ("backward-input", Some(part)),
            Self::BackwardWeight(part) => ("backward-weight", Some(part)),
            Self::Recompute(part) => ("recompute", Some(part)),
            Self::RecomputeAttention(part) => ("recompute-attention", Some(part)),
            Self::ZeroGradients => ("zero-gradients", None),
            Self::Accumulate => ("accumulate", None),
            Self::Average(part) => ("average", Some(part)),
            Self::Optimizer(part) => ("optimizer", Some(part)),
            Self::AverageShard => ("average-shard", None),
            Self::OptimizerShard => ("optimizer-shard", None),
            Self::Stash(part) => ("stash", Some(part)),
            Self::TakeShard => ("take-shard", None),
            Self::Flatten => ("flatten", None),
            Self::Unflatten => ("unflatten", None),
            Self::Attend => ("attend", None),
            Self::FinishAttention => ("finish-attention", None),
            Self::AttendBackward => ("attend-backward", None),
            Self::AddGradients => ("add-gradients", None),
            Self::Release => ("release", None),
            Self::Route => ("route", None),
            Self::Balance => ("balance", None),
            Self::Dispatch => ("dispatch", None),
            Self::Experts => ("experts", None),
            Self::Combine => ("combine", None),
            Self::CombineBackward => ("combine-backward", None),
            Self::ExpertsBackward => ("experts-backward", None),
            Self::RouteBackward => ("route-backward", None),
        }
    }

    /// Every kernel, those that work on a part with `part`.
    #[must_use]
    pub fn all(part: Part) -> [Self; 30] {
        [
            Self::LoadTokens,
            Self::LoadTargets,
            Self::Forward(part),
            Self::BackwardInput(part),
            Self::BackwardWeight(part),
            Self::Recompute(part),
            Self::RecomputeAttention(part),
            Self::ZeroGradients,
            Self::Accumulate,
            Self::Average(part),
            Self::Optimizer(part),
            Self::AverageShard,
            Self::OptimizerShard,
            Self::Stash(part),
            Self::TakeShard,
            Self::Flatten,
            Self::Unflatten,
            Self::Attend,
            Self::FinishAttention,
            Self::AttendBackward,
            Self::AddGradients,
            Self::Release,
            Self::Route,
            Self::Balance,
            Self::Dispatch,
            Self::Experts,
            Self::Combine,
            Self::CombineBackward,
            Self::ExpertsBackward,
            Self::RouteBackward,
        ]
    }

    /// The kernel with this verb, on `part` where it works on one.
    #[must_use]
    pub fn from_words(verb: &str, part: Option<Part>) -> Option<Self> {
        let all = Self::all(part.unwrap_or(Part::Embedding));
        all.into_iter().find(|kernel| kernel.words() == (verb, part))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::Block(layer) => write!(f, "blocks.{layer}"),
            Self::Module(layer, module) => write!(f, "{}.{module}", module.part(*layer)),
            Self::Head => f.write_str("head"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_meet_whole_words() {
        let check =
            |text: &str, words: &str, expected: bool| assert_eq!(starts_with_words(text, words), expected, "{text} / {words}");
        check("0F3 forward blocks.1", "0F3", true);
        check("0F31 forward blocks.1", "0F3", false);
        check("all-reduce bucket1", "all-reduce", true);
        check("all-reduce bucket10", "all-reduce bucket1", false);
        check("send x3.1 -> r1", "", true);
    }

    /// A text that is written in pieces.
    struct Pieces(Vec<String>);

    impl fmt::Display for Pieces {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.iter().try_for_each(|piece| f.write_str(piece))
        }
    }

    proptest::proptest! {
        #[test]
        fn pieces_begin_as_their_whole_text_does(pieces in proptest::collection::vec("[ab ü]{0,3}", 0..5), words in "[ab ü]{0,5}") {
            let text = pieces.concat();
            let expected = text.strip_prefix(&words).is_some_and(|rest| words.is_empty() || rest.is_empty() || rest.starts_with(' '));
            proptest::prop_assert_eq!(starts_with_words(Pieces(pieces), &words), expected, "{:?}", text);
        }
    }
}
