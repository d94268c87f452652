//! The stepped driver: a virtual clock and one total order of events.
//!
//! Nothing is polled. An op that cannot start is parked on the op that it waits for, or, when only peers are missing, is started by the
//! last of them. At one time, ops are looked at in the order in which they were woken, ends being taken by rank: the same in every run.

use super::Result;
use super::apply::apply;
use super::collectives::deliver;
use super::sharing::Arrival;
use super::value::Values;
use super::world::{Machine, State, World, blocked};
use crate::base::prefetch::prefetch;
use crate::base::{OpId, Ticks};
use crate::program::trace::{Event, Outcome};
use crate::program::{OpKind, Trace, Wait};

/// Called with the world after an op has ended.
pub type OnEnd<'a> = &'a mut dyn FnMut(&World, OpId);

/// Goes on until one more event has started, and records it; `false` if nothing can start any more.
///
/// # Errors
/// If a kernel fails: its operands do not fit each other.
pub fn step(world: &mut World, trace: &mut Trace, on_end: OnEnd) -> Result<bool> {
    let machine = world.machine.clone();
    Stepper { machine: &machine, world, trace, on_end }.step()
}

/// Goes on until nothing can start any more.
///
/// # Errors
/// As [`step`].
pub fn finish(world: &mut World, trace: &mut Trace, on_end: OnEnd) -> Result<()> {
    let machine = world.machine.clone();
    let mut stepper = Stepper { machine: &machine, world, trace, on_end };
    while stepper.step()? {}
    Ok(())
}

/// A world that moves, and what it moves by.
struct Stepper<'a> {
    /// The world's own.
    machine: &'a Machine,
    world: &'a mut World,
    trace: &'a mut Trace,
    on_end: OnEnd<'a>,
}

impl Stepper<'_> {
    fn step(&mut self) -> Result<bool> {
        while self.world.stopped.is_none() {
            if let Some(op) = self.world.candidates.pop_front() {
                if self.look_at(op)? {
                    return Ok(self.world.stopped.is_none());
                }
            } else if let Some((time, op)) = self.next_end() {
                self.world.time = time;
                self.end(op)?;
            } else {
                break;
            }
        }
        Ok(false)
    }

    /// What ends next, and when.
    fn next_end(&mut self) -> Option<(Ticks, OpId)> {
        if self.machine.network.is_some() { self.next_shared() } else { self.world.agenda.pop() }
    }

    /// The same where transfers share their links: their ends move, and the agenda has old ones, too.
    fn next_shared(&mut self) -> Option<(Ticks, OpId)> {
        let Machine { program, links, network, .. } = self.machine;
        let World { time: now, agenda, sharing, .. } = &mut *self.world;
        let (sharing, network) = (sharing.as_mut()?, network.as_ref()?);
        loop {
            if agenda.next() != Some(*now) {
                sharing.settle(*now, agenda);
            }
            let (time, op) = agenda.pop()?;
            let kind = program.kind(op);
            if !matches!(kind, OpKind::Send(_) | OpKind::Collective(_)) {
                return Some((time, op));
            }
            match sharing.arrives(op, time) {
                Arrival::Stale => continue,
                Arrival::Begins => {
                    *now = time;
                    if sharing.begin((program.rank_of(op), op), network.transfer(program, op), time, agenda) {
                        continue;
                    }
                }
                Arrival::Ends => sharing.end(op),
            }
            match kind {
                OpKind::Collective(collective) => links.members(collective).iter().for_each(|&end| self.trace.ends(end, time)),
                _ if kind.channel().is_some_and(|channel| program.channels[channel.index()].buffered) => {}
                _ => std::iter::once(op).chain(links.peer(op)).for_each(|end| self.trace.ends(end, time)),
            }
            return Some((time, op));
        }
    }

    /// Gets closer what the ops behind `op` will touch. The one after the next was asked for when the op before this one began, so that its
    /// neighbours can be read now; by the time that it is looked at, all else of it is near, too.
    fn look_ahead(&self, op: OpId) {
        let links = &self.machine.links;
        let Some(next) = links.behind(op) else { return };
        self.world.memory.iter().for_each(|memory| memory.prefetch_pieces(next));
        if let Some(peer) = links.peer(next) {
            prefetch(self.world.ops.get(peer.index()));
        }
        if let Some(after) = links.behind(next) {
            self.get_closer(after);
        }
    }

    /// Gets closer all that looking at `op` and starting it touches.
    fn get_closer(&self, op: OpId) {
        let Machine { program, links, costs, .. } = self.machine;
        program.prefetch(op);
        links.prefetch(op);
        costs.prefetch(op);
        self.world.memory.iter().for_each(|memory| memory.prefetch(op));
        self.trace.prefetch(op);
        prefetch(self.world.ops.get(op.index()));
    }

    /// Starts `op` if it can start; otherwise sees to it that it is looked at again.
    fn look_at(&mut self, op: OpId) -> Result<bool> {
        let Some(wait) = blocked(self.world, op) else {
            if self.world.state(op) == State::Waiting {
                self.trace.posted(op, self.world.time);
            }
            return self.start(op).map(|()| true);
        };
        self.trace.waits(op, wait);
        match wait {
            Wait::Stream(on) | Wait::Event(on) => self.park(op, on),
            Wait::Peer(_) | Wait::NoPeer(_) | Wait::Member(_) | Wait::NoMember(_) | Wait::Message(_) => self.post(op, wait),
        }
        Ok(false)
    }

    fn park(&mut self, op: OpId, on: OpId) {
        self.world.ops[op.index()].next = self.world.ops[on.index()].parked.replace(op.into());
    }

    /// Only peers are missing: the last of them will start this op. A buffered message wakes its receiver when it arrives.
    fn post(&mut self, op: OpId, wait: Wait) {
        let kind = self.machine.program.kind(op);
        if self.world.state(op) == State::Waiting {
            self.world.ops[op.index()].state = State::Posted;
            self.trace.posted(op, self.world.time);
            if let OpKind::Collective(collective) = kind {
                self.world.arrived[collective.index()] += 1;
            }
        }
        if let (Wait::Peer(peer) | Wait::Message(peer), true) = (wait, kind.receives() && self.is_buffered(kind)) {
            self.park(op, peer);
        }
    }

    /// Whether a message's end belongs to a buffered channel.
    fn is_buffered(&self, kind: OpKind) -> bool {
        kind.channel().is_some_and(|channel| self.machine.program.channels[channel.index()].buffered)
    }

    /// Starts the event that `op` completes: the op alone, both ends of a message, or all members of a collective.
    fn start(&mut self, op: OpId) -> Result<()> {
        let Machine { program, links, costs, network } = self.machine;
        self.trace.event(self.world.events, Event { time: self.world.time, op });
        self.world.events += 1;
        let kind = program.kind(op);
        match kind {
            OpKind::Run(_) | OpKind::Skipped(_) => {
                let cost = costs.cost(op);
                self.begin(op, cost);
                self.end_after(op, cost)
            }
            OpKind::Send(_) if self.is_buffered(kind) => {
                self.begin(op, Ticks::ZERO);
                self.end(op)?;
                match network {
                    None => self.end_later(op, costs.cost(op)),
                    Some(network) => self.end_later(op, network.latency(program, op)),
                }
                Ok(())
            }
            OpKind::Recv(_) | OpKind::RecvReduce(_) if self.is_buffered(kind) => {
                self.begin(op, Ticks::ZERO);
                self.end(op)
            }
            OpKind::Send(_) | OpKind::Recv(_) | OpKind::RecvReduce(_) => {
                let peer = links.peer(op).expect("a message that starts has two ends");
                let send = if kind.receives() { peer } else { op };
                let cost = costs.cost(send);
                self.begin(op, cost);
                self.begin(peer, cost);
                match network {
                    None => self.end_after(send, cost),
                    Some(network) => {
                        self.end_later(send, network.latency(program, send));
                        Ok(())
                    }
                }
            }
            OpKind::Collective(collective) => {
                let cost = costs.cost(op);
                links.members(collective).iter().for_each(|&member| self.begin(member, cost));
                match network {
                    Some(network) if cost > Ticks::ZERO => {
                        self.end_later(op, network.latency(program, op));
                        Ok(())
                    }
                    _ => self.end_after(op, cost),
                }
            }
        }
    }

    /// Marks `op` as running, and takes the memory of its results.
    fn begin(&mut self, op: OpId, cost: Ticks) {
        self.look_ahead(op);
        let Machine { program, costs, .. } = self.machine;
        let world = &mut *self.world;
        world.ops[op.index()].state = State::Running;
        self.trace.starts(op, world.events, (world.time, world.time + cost));
        let Some(memory) = &mut world.memory else { return };
        let rank = program.rank_of(op);
        if memory.start(program, op)
            && let Some(limit) = costs.memory(rank)
        {
            let needed = memory.holding(rank).total;
            if needed >= limit {
                world.stopped = Some(Outcome::OutOfMemory { rank, op: Some(op), needed, limit });
            }
        }
    }

    fn end_after(&mut self, op: OpId, cost: Ticks) -> Result<()> {
        if cost == Ticks::ZERO {
            return self.end(op);
        }
        self.end_later(op, cost);
        Ok(())
    }

    fn end_later(&mut self, op: OpId, cost: Ticks) {
        let rank = self.machine.program.rank_of(op);
        self.world.agenda.push(self.world.time + cost, rank, op);
    }

    /// Ends what `op` stands for: its value is there, its memory is given back, and whoever waited is looked at.
    fn end(&mut self, op: OpId) -> Result<()> {
        let Machine { program, links, .. } = self.machine;
        let kind = program.kind(op);
        match kind {
            OpKind::Send(_) if self.world.is_done(op) => {
                self.world.ops[op.index()].state = State::Delivered;
                self.wake(op);
                Ok(())
            }
            OpKind::Send(_) if !self.is_buffered(kind) => {
                let receive = links.peer(op).expect("a message that ran has two ends");
                self.complete(op)?;
                self.complete(receive)
            }
            OpKind::Collective(collective) => {
                deliver(self.world, collective)?;
                links.members(collective).iter().try_for_each(|&member| self.complete(member))
            }
            _ => self.complete(op),
        }
    }

    fn complete(&mut self, op: OpId) -> Result<()> {
        let Machine { program, links, .. } = self.machine;
        let is_real = matches!(self.world.values, Values::Real { .. });
        if is_real {
            apply(self.world, op)?;
        }
        self.world.ops[op.index()].state = State::Done;
        self.world.done += 1;
        (self.on_end)(self.world, op);
        if let Some(memory) = &mut self.world.memory {
            memory.end(program, op);
        }
        if is_real {
            self.world.values.forget(program, op);
        }
        if let Some(behind) = links.behind(op) {
            self.world.candidates.push_back(behind);
        }
        self.wake(op);
        Ok(())
    }

    fn wake(&mut self, op: OpId) {
        let mut next = self.world.ops[op.index()].parked.take();
        while let Some(parked) = next {
            next = self.world.ops[OpId::from(parked).index()].next.take();
            self.world.candidates.push_back(parked.into());
        }
    }
}
