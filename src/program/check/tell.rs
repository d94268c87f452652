//! What the walk finds, in words: made only when something is wrong.

use super::order::{Life, Place, Use, Walk};
use super::{Finding, FindingKind, Named};
use crate::base::{BufferId, OpId, Rank};

impl Walk<'_> {
    /// Whether `op`, an op of `home`, stands where it must not, which is told.
    #[inline]
    pub(super) fn is_misplaced(&mut self, op: OpId, home: Rank) -> bool {
        if home == self.rank && self.places[op.index()] == 0 {
            return false;
        }
        self.misplaced(op, home);
        true
    }

    fn misplaced(&mut self, op: OpId, home: Rank) {
        let named = Named(self.program, op);
        let sentence = if home == self.rank {
            format!("{named} stands twice in the list of its rank")
        } else {
            format!("{named} of {home} stands in the list of {}", self.rank)
        };
        self.tell(FindingKind::MisplacedOp, vec![op], sentence, "an op stands once, in the list of its own rank");
    }

    pub(super) fn wrong_operands(&mut self, op: OpId) {
        let (reads, writes) = (self.program.reads(op).len(), self.program.writes(op).len());
        let sentence = format!("{} reads {reads} buffers and writes {writes}, which its kind does not", Named(self.program, op));
        let hint = "a send reads buffers, a receive writes some, a receive-reduce reads and writes the same, a collective writes as many as it reads, but a shard is one buffer";
        self.tell(FindingKind::WrongOperands, vec![op], sentence, hint);
    }

    pub(super) fn bad_wait(&mut self, op: OpId, on: OpId) {
        let other = self.program.rank_of(on);
        let why = if other == self.rank { "which is not issued before it".to_owned() } else { format!("an op of {other}") };
        let sentence = format!("{} waits for {}, {why}", Named(self.program, op), Named(self.program, on));
        let hint = "a wait names an earlier op of the same rank; ranks wait for each other through messages and collectives";
        self.tell(FindingKind::BadWait, vec![on, op], sentence, hint);
    }

    /// Two uses of `buffer` in no order. One pair of ops is told once, whatever it shares.
    pub(super) fn race(&mut self, op: OpId, earlier: Place, buffer: BufferId, (first, second): (Use, Use)) {
        let earlier = self.program.order[self.rank.index()][earlier as usize - 1];
        if self.findings.last().is_some_and(|last| last.kind == FindingKind::Race && last.ops == [earlier, op]) {
            return;
        }
        let (a, b) = (Named(self.program, earlier), Named(self.program, op));
        let name = self.program.buffers[buffer.index()].name;
        let sentence = format!("{b} {} {name} while {a} may still {} it", second.does(), first.stem());
        self.tell(FindingKind::Race, vec![earlier, op], sentence, format!("let it wait: `after {earlier}`"));
    }

    /// A use of a buffer that is not there, or not the rank's.
    pub(super) fn misuse(&mut self, op: OpId, buffer: BufferId, life: Life, how: Use) {
        let name = self.program.buffers[buffer.index()].name;
        let does = how.does();
        let (kind, wrong, hint) = match how {
            _ if life.rank != self.rank => {
                (FindingKind::ForeignOperand, format!("which is memory of {}", life.rank), "let a message bring it")
            }
            Use::Free if life.freed => {
                (FindingKind::DoubleFree, "which is freed already".to_owned(), "free it once, at its last use")
            }
            _ if life.freed => (FindingKind::UseAfterFree, "which is freed before".to_owned(), "free it at its last use"),
            Use::Free => (FindingKind::FreedState, "which stays to the end".to_owned(), "only what comes and goes is freed"),
            _ => (FindingKind::UnwrittenRead, "which nothing has written".to_owned(), "issue the op that writes it before"),
        };
        self.tell(kind, vec![op], format!("{} {does} {name}, {wrong}", Named(self.program, op)), hint);
    }

    /// Buffers that were used and never freed, told at their latest use.
    pub(super) fn left_behind(&mut self) {
        for index in 0..self.lives.len() {
            let Life { rank, write, read, stays, freed, .. } = self.lives[index];
            let latest = write.max(read);
            if stays || freed || latest == 0 {
                continue;
            }
            self.rank = rank;
            let op = self.program.order[rank.index()][latest as usize - 1];
            let name = self.program.buffers[index].name;
            let sentence = format!("{name} is never freed; its last use is {}", Named(self.program, op));
            self.tell(FindingKind::NeverFreed, vec![op], sentence, format!("let that op free it: `free {name}`"));
        }
    }

    fn tell(&mut self, kind: FindingKind, ops: Vec<OpId>, sentence: String, hint: impl Into<String>) {
        self.findings.push(Finding { kind, rank: self.rank, ops, sentence, hint: hint.into() });
    }
}

impl Use {
    fn does(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Free => "frees",
        }
    }

    fn stem(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Free => "free",
        }
    }
}
