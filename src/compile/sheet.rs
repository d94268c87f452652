//! Messages where a sheet says: each end stands where its author put it, whether that is wise or not.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{BufferId, OpId, Rank};
use crate::program::plan::{Cell, Slot};
use crate::program::sheet::{Action, End, Message};
use crate::program::tables::COMPUTE;
use crate::program::{Name, PassName, Program};

use super::messages::{Copies, Edges, first_slot, origin};

/// The ops of `rank` with sends, receives and waits in the order of its row.
pub(super) fn with_messages(
    program: &mut Program,
    edges: &mut Edges,
    copies: &Copies,
    joined: &BTreeSet<Slot>,
    (rank, mut order, row): (Rank, &[OpId], &[Option<Action>]),
) -> Vec<OpId> {
    let ends = ends(program, copies, order);
    let mut walk = Walk {
        program,
        edges,
        ends,
        rank,
        row,
        next: 0,
        step: 0,
        at: None,
        before: None,
        sent: BTreeMap::new(),
        awaited: vec![],
    };
    let mut issued = Vec::with_capacity(order.len() * 2);
    while let Some((slot, behind)) = first_slot(walk.program, joined, order) {
        order = behind;
        walk.up_to(slot[0], &mut issued);
        for on in std::mem::take(&mut walk.awaited) {
            walk.program.wait(slot[0], on);
        }
        issued.extend_from_slice(slot);
        walk.before = slot.iter().rev().copied().find(|&op| walk.program.stream_of(op) == COMPUTE).or(walk.before);
    }
    walk.rest(&mut issued);
    issued
}

/// The ends of messages on one rank: of a step, the peer, the buffer here, and the op that writes or reads it.
type Ends = BTreeMap<(u32, End, Message), (Rank, BufferId, OpId)>;

fn ends(program: &Program, copies: &Copies, order: &[OpId]) -> Ends {
    let mut ends = Ends::new();
    for &op in order {
        let view = program.op(op);
        let Some(Slot { stage, micro_batch, .. }) = view.origin.slot else { continue };
        let mut note = |end, peer, buffer: BufferId| {
            let is_forward = matches!(program.buffers[buffer.index()].name, Name::Activation(..));
            let key = (view.origin.step, end, Message { is_forward, stage, micro_batch });
            ends.entry(key).or_insert((peer, buffer, op));
        };
        for &local in view.reads {
            copies.sender(local).into_iter().for_each(|from| note(End::Recv, from, local));
        }
        for &source in view.writes {
            copies.reader(source).into_iter().for_each(|(to, _)| note(End::Send, to, source));
        }
    }
    ends
}

/// A walk along a row of the sheet, once for every step.
struct Walk<'a> {
    program: &'a mut Program,
    edges: &'a mut Edges,
    ends: Ends,
    rank: Rank,
    row: &'a [Option<Action>],
    /// The next cell of the row.
    next: usize,
    step: u32,
    /// The cell that was issued last.
    at: Option<Cell>,
    /// The latest compute op.
    before: Option<OpId>,
    /// Sends of this step.
    sent: BTreeMap<Message, OpId>,
    /// Sends that the next op waits for.
    awaited: Vec<OpId>,
}

impl Walk<'_> {
    /// Issues what stands in the row before `op`.
    fn up_to(&mut self, op: OpId, issued: &mut Vec<OpId>) {
        let origin = self.program.op(op).origin;
        if origin.step != self.step || origin.pass == PassName::Optimizer {
            self.rest(issued);
        }
        if origin.step != self.step {
            (self.step, self.next, self.at) = (origin.step, 0, None);
            self.sent.clear();
        }
        let Some(slot) = origin.slot else { return };
        let is_of = |cell: Cell| cell.slots().any(|other| other == slot);
        while !self.at.is_some_and(is_of) && self.next < self.row.len() {
            self.cell(issued);
        }
    }

    /// Issues what is left of the row.
    fn rest(&mut self, issued: &mut Vec<OpId>) {
        while self.next < self.row.len() {
            self.cell(issued);
        }
    }

    fn cell(&mut self, issued: &mut Vec<OpId>) {
        let action = self.row[self.next];
        self.next += 1;
        match action {
            Some(Action::Compute(cell)) => self.at = Some(cell),
            Some(Action::Message(End::WaitSend, message)) => self.awaited.extend(self.sent.get(&message)),
            Some(Action::Message(end, message)) => {
                let Some(&(peer, buffer, of)) = self.ends.get(&(self.step, end, message)) else { return };
                let origin = origin(self.program, of);
                let op = if end == End::Send {
                    self.edges.send(self.program, (self.rank, peer), buffer, self.before, origin)
                } else {
                    self.edges.receive(self.program, (peer, self.rank), buffer, self.before, origin)
                };
                if end == End::Send {
                    self.sent.insert(message, op);
                }
                issued.push(op);
            }
            Some(Action::Shard(..)) | None => {}
        }
    }
}
