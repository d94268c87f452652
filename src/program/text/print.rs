//! Printing: a whole program, or one op as its line says it.

use std::fmt::{self, Display, Formatter, Write};

use super::lookup::Lookup;
use super::sections::SECTIONS;
use super::words::word;
use crate::base::{BufferId, ChannelId, CollectiveId, KernelId, OpId, Rank};
use crate::program::name::Name;
use crate::program::op::{Op, OpKind, PassName};
use crate::program::tables::Program;

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for section in &SECTIONS {
            let mut text = String::new();
            write!(text, "{}", Lines(|f: &mut Formatter<'_>| (section.print)(self, f)))?;
            if !text.is_empty() {
                writeln!(f, "{}\n{text}", section.name)?;
            }
        }
        let lookup = Lookup::new(self);
        for (rank, order) in self.order.iter().enumerate() {
            if rank > 0 {
                writeln!(f)?;
            }
            writeln!(f, "rank {rank}")?;
            RankText { program: self, lookup: &lookup, rank: Rank::new(rank) }.print(f, order)?;
        }
        Ok(())
    }
}

/// A closure that prints.
struct Lines<F>(F);

impl<F: Fn(&mut Formatter<'_>) -> fmt::Result> Display for Lines<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
}

/// The text of one rank's ops.
struct RankText<'a> {
    program: &'a Program,
    lookup: &'a Lookup,
    rank: Rank,
}

impl RankText<'_> {
    /// One line for each op, in columns: id, stream, slot, what it does.
    fn print(&self, f: &mut Formatter<'_>, order: &[OpId]) -> fmt::Result {
        let longest = |text: &dyn Fn(Op) -> String| order.iter().map(|&op| text(self.program.op(op)).len()).max().unwrap_or(0);
        let id = |op: Op| op.id.to_string();
        let stream = |op: Op| word(&self.program.streams[op.stream.index()].name);
        let slot = |op: Op| op.origin.slot.map_or(String::new(), |slot| slot.to_string());
        let widths = [longest(&id), longest(&stream), longest(&slot)];
        let mut step = 0;
        for &op in order {
            let op = self.program.op(op);
            if op.origin.step != step {
                step = op.origin.step;
                writeln!(f, "  step {step}")?;
            }
            let columns = [id(op), stream(op), slot(op)];
            for (text, &width) in columns.iter().zip(&widths).filter(|(_, width)| **width > 0) {
                write!(f, "  {text:<width$}")?;
            }
            self.op(f, op)?;
            writeln!(f)?;
        }
        Ok(())
    }

    fn op(&self, f: &mut Formatter<'_>, op: Op) -> fmt::Result {
        if let OpKind::Skipped(_) = op.kind {
            write!(f, "  skipped")?;
        }
        let kind = op.kind.original();
        write!(f, "  ")?;
        match kind {
            OpKind::Run(kernel) => self.run(f, op, kernel)?,
            OpKind::Send(channel) => {
                write!(f, "send")?;
                self.operands(f, op.reads)?;
                write!(f, " ->")?;
                self.channel(f, channel, (op.rank, self.program.channels[channel.index()].to))?;
            }
            OpKind::Recv(channel) | OpKind::RecvReduce(channel) => {
                let verb = if matches!(kind, OpKind::Recv(_)) { "recv" } else { "recv-reduce" };
                write!(f, "{verb}")?;
                self.operands(f, op.writes)?;
                write!(f, " <-")?;
                let from = self.program.channels[channel.index()].from;
                self.channel(f, channel, (from, op.rank))?;
            }
            OpKind::Collective(collective) => self.collective(f, op, collective)?,
            OpKind::Skipped(_) => unreachable!("a skipped op stands for one that is not skipped"),
        }
        self.tail(f, op)
    }

    fn run(&self, f: &mut Formatter<'_>, op: Op, id: KernelId) -> fmt::Result {
        let kernel = self.program.kernels[id.index()].kernel;
        write!(f, "{kernel}")?;
        if self.lookup.kernels.get(&kernel) != Some(&id) {
            write!(f, " {id}")?;
        }
        self.changes(f, op.reads, op.writes, op.writes.is_empty())
    }

    /// The other end's rank, and the channel if it is not the first from `ends.0` to `ends.1`.
    fn channel(&self, f: &mut Formatter<'_>, id: ChannelId, ends: (Rank, Rank)) -> fmt::Result {
        write!(f, " {}", if ends.0 == self.rank { ends.1 } else { ends.0 })?;
        if self.lookup.channels.get(&ends) == Some(&id) { Ok(()) } else { write!(f, " {id}") }
    }

    /// Operands that are read and written alike are named once.
    fn collective(&self, f: &mut Formatter<'_>, op: Op, id: CollectiveId) -> fmt::Result {
        let collective = &self.program.collectives[id.index()];
        write!(f, "{} {}", collective.kind.name(), word(&collective.label))?;
        let key = (collective.kind, collective.label.as_str(), op.origin.step);
        if self.lookup.collective(self.program, op.rank, key) != Some(id) {
            write!(f, " {id}")?;
        }
        self.changes(f, op.reads, op.writes, op.reads == op.writes)
    }

    /// What it waits for, what it frees, and who made it.
    fn tail(&self, f: &mut Formatter<'_>, op: Op) -> fmt::Result {
        for (place, on) in self.program.waits(op.id).enumerate() {
            write!(f, "{} {on}", if place == 0 { "  after" } else { "" })?;
        }
        let frees: Vec<BufferId> = self.program.frees(op.id).collect();
        if !frees.is_empty() {
            write!(f, "  free")?;
            self.operands(f, &frees)?;
        }
        if op.origin.pass == PassName::Hand { Ok(()) } else { write!(f, "  by {}", op.origin.pass.name()) }
    }

    /// What is read and what is written; the latter may go without saying.
    fn changes(&self, f: &mut Formatter<'_>, reads: &[BufferId], writes: &[BufferId], is_clear: bool) -> fmt::Result {
        if !reads.is_empty() {
            write!(f, " ")?;
            self.operands(f, reads)?;
        }
        if is_clear {
            return Ok(());
        }
        write!(f, " ->")?;
        self.operands(f, writes)
    }

    /// Operands, each with a blank before it; neighbours as a range.
    fn operands(&self, f: &mut Formatter<'_>, buffers: &[BufferId]) -> fmt::Result {
        let named: Vec<Operand> = buffers.iter().map(|&buffer| self.operand(buffer)).collect();
        let next = |operand: Operand| match operand {
            Operand::Own(name) => name.next().map(Operand::Own),
            _ => None,
        };
        super::runs(&named, next).try_for_each(|run| match run {
            [first, .., last] if run.len() > 2 => write!(f, " {first}..{last}"),
            _ => run.iter().try_for_each(|operand| write!(f, " {operand}")),
        })
    }

    fn operand(&self, buffer: BufferId) -> Operand {
        let entry = self.program.buffers[buffer.index()];
        match self.lookup.buffers.get(&(entry.rank, entry.name)) {
            Some(&first) if first == buffer && entry.rank == self.rank => Operand::Own(entry.name),
            Some(&first) if first == buffer => Operand::Of(entry.name, entry.rank),
            _ => Operand::Id(buffer),
        }
    }
}

/// How an operand is told.
#[derive(Clone, Copy, PartialEq)]
enum Operand {
    /// By its name, on the op's own rank.
    Own(Name),
    /// By its name on another rank.
    Of(Name, Rank),
    /// By its id, where its name means another buffer.
    Id(BufferId),
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(name) => write!(f, "{name}"),
            Self::Of(name, rank) => write!(f, "{name}@{rank}"),
            Self::Id(buffer) => write!(f, "{buffer}"),
        }
    }
}
