//! The static check of a program: what can be known without running it.
//!
//! Messages meet, in order and with what their receivers expect. Whatever two ops of a rank do to one buffer, the order of streams and
//! waits decides who comes first; a missing wait is a race. Frees are last uses, and nothing stays behind. Members of a collective agree.
//! Whether the program deadlocks depends on point-to-point semantics as well, and shows when it runs.

mod collectives;
mod messages;
mod order;
mod tell;

use std::fmt::{self, Display, Formatter};

use super::head::head;
use super::partners::Partners;
use super::tables::Program;
use crate::base::{OpId, Rank};

/// One thing that is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// Where.
    pub rank: Rank,
    /// The ops that it is wrong with, the earlier one first.
    pub ops: Vec<OpId>,
    /// What is wrong, in words.
    pub sentence: String,
    /// What would put it right.
    pub hint: String,
}

/// What can be wrong with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A send without a receive.
    UnmatchedSend,
    /// A receive without a send.
    UnmatchedReceive,
    /// A send and the receive that it meets name different buffers: data ends up where nobody expects it.
    SilentSwap,
    /// A send and the receive that it meets have different shapes.
    UnlikeEnds,
    /// A read of what was never written.
    UnwrittenRead,
    /// Two uses of a buffer, one of which changes or frees it, in no order.
    Race,
    /// A use behind a free.
    UseAfterFree,
    /// A second free.
    DoubleFree,
    /// A free of what the rank owns from the start.
    FreedState,
    /// Memory that is never given back.
    NeverFreed,
    /// A member of a collective issues no op of it.
    MissingMember,
    /// A rank issues an op of a collective twice, or of a collective that it is no member of.
    ExtraMember,
    /// Members of a collective bring different operands.
    UnlikeMembers,
    /// A wait for an op that is not issued before on the same rank.
    BadWait,
    /// An operand of another rank.
    ForeignOperand,
    /// An op in the list of another rank, or twice in a list.
    MisplacedOp,
    /// An op with operands that its kind does not take.
    WrongOperands,
}

impl FindingKind {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnmatchedSend => "unmatched-send",
            Self::UnmatchedReceive => "unmatched-receive",
            Self::SilentSwap => "silent-swap",
            Self::UnlikeEnds => "unlike-ends",
            Self::UnwrittenRead => "unwritten-read",
            Self::Race => "race",
            Self::UseAfterFree => "use-after-free",
            Self::DoubleFree => "double-free",
            Self::FreedState => "freed-state",
            Self::NeverFreed => "never-freed",
            Self::MissingMember => "missing-member",
            Self::ExtraMember => "extra-member",
            Self::UnlikeMembers => "unlike-members",
            Self::BadWait => "bad-wait",
            Self::ForeignOperand => "foreign-operand",
            Self::MisplacedOp => "misplaced-op",
            Self::WrongOperands => "wrong-operands",
        }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {}: {}; {}", self.kind.name(), self.rank.0, self.sentence, self.hint)
    }
}

/// Everything that is wrong with `program`, in time linear in its operands.
#[must_use]
pub fn check(program: &Program) -> Vec<Finding> {
    let mut findings = order::check(program);
    // What an op's kind takes is looked at there; the others rely on it.
    if !findings.iter().any(|finding| finding.kind == FindingKind::WrongOperands) {
        let partners = Partners::of(program);
        findings.extend(messages::check(program, &partners));
        findings.extend(collectives::check(program, &partners));
    }
    findings
}

/// An op as findings name it: its head and its id.
struct Named<'a>(&'a Program, OpId);

impl Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", head(self.0, self.1), self.1)
    }
}
