//! The stepped driver: a virtual clock and one total order of events.
//!
//! Nothing is polled. An op that cannot start is parked on the op that it waits for, or, when only peers are missing, is started by the
//! last of them. At one time, ops are looked at in the order in which they were woken, ends being taken by rank: the same in every run.

use std::cmp::Reverse;

use super::apply::{apply, deliver};
use super::world::{State, World, blocked};
use crate::base::{OpId, Ticks};
use crate::program::trace::{Event, Outcome};
use crate::program::{OpKind, Trace, Wait};

/// Called with the world after an op has ended.
pub type OnEnd<'a> = &'a mut dyn FnMut(&World, OpId);

/// Goes on until one more event has started, and records it; `false` if nothing can start any more.
///
/// # Errors
/// If a kernel fails: its operands do not fit each other.
pub fn step(world: &mut World, trace: &mut Trace, on_end: OnEnd) -> candle_core::Result<bool> {
    while world.stopped.is_none() {
        if let Some(op) = world.candidates.pop_front() {
            if look_at(world, trace, op, on_end)? {
                return Ok(world.stopped.is_none());
            }
        } else if let Some(Reverse((time, _, op))) = world.pending.pop() {
            world.time = time;
            end(world, op, on_end)?;
        } else {
            break;
        }
    }
    Ok(false)
}

/// Starts `op` if it can start; otherwise sees to it that it is looked at again.
fn look_at(world: &mut World, trace: &mut Trace, op: OpId, on_end: OnEnd) -> candle_core::Result<bool> {
    let Some(wait) = blocked(world, op) else {
        if world.state(op) == State::Waiting {
            trace.posted(op, world.time);
        }
        return start(world, trace, op, on_end).map(|()| true);
    };
    trace.waits(op, wait);
    match wait {
        Wait::Stream(on) | Wait::Event(on) => park(world, op, on),
        Wait::Peer(_) | Wait::NoPeer(_) | Wait::Member(_) | Wait::NoMember(_) | Wait::Message(_) => post(world, trace, op, wait),
    }
    Ok(false)
}

fn park(world: &mut World, op: OpId, on: OpId) {
    world.parked_next[op.index()] = world.parked[on.index()].replace(op);
}

/// Only peers are missing: the last of them will start this op. A buffered message wakes its receiver when it arrives.
fn post(world: &mut World, trace: &mut Trace, op: OpId, wait: Wait) {
    if world.state(op) == State::Waiting {
        world.state[op.index()] = State::Posted;
        trace.posted(op, world.time);
        if let OpKind::Collective(collective) = world.machine.program.kind(op) {
            world.arrived[collective.index()] += 1;
        }
    }
    if let (Wait::Peer(peer) | Wait::Message(peer), true) = (wait, receives_buffered(world, op)) {
        park(world, op, peer);
    }
}

fn receives_buffered(world: &World, op: OpId) -> bool {
    let program = &world.machine.program;
    let kind = program.kind(op);
    kind.receives() && kind.channel().is_some_and(|channel| program.channels[channel.index()].buffered)
}

/// Starts the event that `op` completes: the op alone, both ends of a message, or all members of a collective.
fn start(world: &mut World, trace: &mut Trace, op: OpId, on_end: OnEnd) -> candle_core::Result<()> {
    let machine = world.machine.clone();
    let (program, links) = (&machine.program, &machine.links);
    trace.event(world.events, Event { time: world.time, op });
    world.events += 1;
    match program.kind(op) {
        OpKind::Run(_) | OpKind::Skipped(_) => {
            let cost = machine.costs.cost(program, op);
            begin(world, trace, op, cost);
            end_after(world, op, cost, on_end)
        }
        OpKind::Send(channel) if program.channels[channel.index()].buffered => {
            begin(world, trace, op, Ticks::ZERO);
            end(world, op, on_end)?;
            let arrives = world.time + machine.costs.cost(program, op);
            world.pending.push(Reverse((arrives, program.rank_of(op).0, op)));
            Ok(())
        }
        OpKind::Recv(channel) | OpKind::RecvReduce(channel) if program.channels[channel.index()].buffered => {
            begin(world, trace, op, Ticks::ZERO);
            end(world, op, on_end)
        }
        kind @ (OpKind::Send(_) | OpKind::Recv(_) | OpKind::RecvReduce(_)) => {
            let peer = links.peer(op).expect("a message that starts has two ends");
            let send = if kind.receives() { peer } else { op };
            let cost = machine.costs.cost(program, send);
            begin(world, trace, op, cost);
            begin(world, trace, peer, cost);
            end_after(world, send, cost, on_end)
        }
        OpKind::Collective(collective) => {
            let cost = machine.costs.cost(program, op);
            for &member in links.members(collective) {
                begin(world, trace, member, cost);
            }
            end_after(world, op, cost, on_end)
        }
    }
}

/// Marks `op` as running, and takes the memory of its results.
fn begin(world: &mut World, trace: &mut Trace, op: OpId, cost: Ticks) {
    world.state[op.index()] = State::Running;
    trace.starts(op, world.events, (world.time, world.time + cost));
    let machine = world.machine.clone();
    world.memory.start(&machine.program, op);
    let rank = machine.program.rank_of(op);
    let needed = world.memory.holding(rank).total;
    if let Some(limit) = machine.costs.memory().filter(|&limit| needed >= limit) {
        world.stopped = Some(Outcome::OutOfMemory { rank, op: Some(op), needed, limit });
    }
}

fn end_after(world: &mut World, op: OpId, cost: Ticks, on_end: OnEnd) -> candle_core::Result<()> {
    if cost == Ticks::ZERO {
        return end(world, op, on_end);
    }
    let rank = world.machine.program.rank_of(op).0;
    world.pending.push(Reverse((world.time + cost, rank, op)));
    Ok(())
}

/// Ends what `op` stands for: its value is there, its memory is given back, and whoever waited is looked at.
fn end(world: &mut World, op: OpId, on_end: OnEnd) -> candle_core::Result<()> {
    let machine = world.machine.clone();
    let (program, links) = (&machine.program, &machine.links);
    let kind = program.kind(op);
    let buffered = kind.channel().is_some_and(|channel| program.channels[channel.index()].buffered);
    match kind {
        OpKind::Send(_) if world.is_done(op) => {
            world.state[op.index()] = State::Delivered;
            wake(world, op);
        }
        OpKind::Send(_) if !buffered => {
            let receive = links.peer(op).expect("a message that ran has two ends");
            finish(world, op, on_end)?;
            finish(world, receive, on_end)?;
        }
        OpKind::Collective(collective) => {
            deliver(world, collective)?;
            for &member in links.members(collective) {
                finish(world, member, on_end)?;
            }
        }
        _ => finish(world, op, on_end)?,
    }
    Ok(())
}

fn finish(world: &mut World, op: OpId, on_end: OnEnd) -> candle_core::Result<()> {
    apply(world, op)?;
    world.state[op.index()] = State::Done;
    world.done += 1;
    on_end(world, op);
    let machine = world.machine.clone();
    world.memory.end(&machine.program, op);
    world.values.forget(&machine.program, op);
    if let Some(behind) = machine.links.behind(op) {
        world.candidates.push_back(behind);
    }
    wake(world, op);
    Ok(())
}

fn wake(world: &mut World, op: OpId) {
    let mut next = world.parked[op.index()].take();
    while let Some(parked) = next {
        next = world.parked_next[parked.index()].take();
        world.candidates.push_back(parked);
    }
}
