//! The ring: in every hop a rank computes the block that is there, passes its keys and values on to the right, and receives the next ones
//! from the left into a second buffer. Backward does the same once more, and the gradients of keys and values travel behind them, one hop
//! farther: home. They come while the next block is computed, and then its own are added to them. Source: Liu et al. 2023, "Ring attention with blockwise transformers", arXiv 2310.01889.
//!
//! A rank begins a hop when its block is computed and passed on, as implementations do that wait for both: there are two buffers, not three.

use super::{Backward, Work};
use crate::base::settings::{AttentionBug, AttentionTensor};
use crate::base::{ChannelId, OpId, StreamId};
use crate::program::tables::Channel;
use crate::program::{Kernel, KernelCost, OpKind};

/// Forward, then backward, on every rank.
pub(super) fn run(work: &mut Work) {
    for rank in 0..work.ranks() {
        let mut hops = Hops::new(work, rank);
        forward(work, &mut hops);
        backward(work, &mut hops);
    }
}

/// Forward on one rank, up to the output.
pub(in crate::compile) fn forward(work: &mut Work, hops: &mut Hops) {
    let ahead = ahead(work);
    let keys = Line::of(work, "kv", ahead);
    hops.forward(work, &keys);
    work.finish(hops.rank, hops.rank);
}

/// Backward on one rank, until the gradients of its keys and values are home.
pub(in crate::compile) fn backward(work: &mut Work, hops: &mut Hops) {
    let (keys, gradients) = (Line::of(work, "kv", 1), Line::of(work, "dkv", 1));
    hops.backward(work, &keys, &gradients);
}

/// How many places to the right keys go in forward.
fn ahead(work: &Work) -> usize {
    if work.attention.bug == Some(AttentionBug::WrongNeighbour) { work.ranks() - 1 } else { 1 }
}

/// What travels around the ring: streams of its sends and receives, and per rank the channel to the rank so many places `ahead`.
#[derive(Clone)]
pub(super) struct Line {
    out: StreamId,
    into: StreamId,
    ahead: usize,
    channels: Vec<ChannelId>,
}

impl Line {
    /// The line of these ranks, which is made when it is named first.
    fn of(work: &mut Work, name: &'static str, ahead: usize) -> Self {
        let key = (work.ranks[0], name, ahead);
        if let Some(line) = work.stock.lines.get(&key) {
            return line.clone();
        }
        let line = Self::new(work, name, ahead);
        work.stock.lines.insert(key, line.clone());
        line
    }

    fn new(work: &mut Work, name: &str, ahead: usize) -> Self {
        let ranks = work.ranks();
        if ranks == 1 {
            return Self { out: StreamId(0), into: StreamId(0), ahead, channels: Vec::new() };
        }
        let ahead_of = |from: usize| Channel { from: work.ranks[from], to: work.ranks[(from + ahead) % ranks], buffered: false };
        let channels = (0..ranks).map(|rank| work.program.channel(ahead_of(rank))).collect();
        let [out, into] = [".out", ".in"].map(|end| work.program.communication_stream(&format!("cp.{name}{end}")));
        Self { out, into, ahead, channels }
    }
}

/// One rank's way around the ring.
pub(in crate::compile) struct Hops {
    rank: usize,
    /// Whose keys are here, hop by hop.
    sources: Vec<usize>,
    /// The op that gave the other buffer back.
    released: Option<OpId>,
}

impl Hops {
    /// The way of a rank that has nothing to give back.
    pub(in crate::compile) fn new(work: &Work, rank: usize) -> Self {
        let sources = (0..work.ranks()).map(|hop| (rank + work.ranks() - hop) % work.ranks()).collect();
        Self { rank, sources, released: None }
    }

    fn forward(&mut self, work: &mut Work, keys: &Line) {
        for hop in 0..self.sources.len() {
            let sent = self.pass_keys(work, keys, hop);
            work.attend(self.rank, (self.rank, self.sources[hop]), hop == 0);
            self.release(work, hop, sent);
        }
    }

    fn backward(&mut self, work: &mut Work, keys: &Line, gradients: &Line) {
        for hop in 0..self.sources.len() {
            let (rank, source) = (self.rank, self.sources[hop]);
            // One hop short, a rank takes what it has last for its own.
            let is_short = work.attention.bug == Some(AttentionBug::ShortHop) && hop + 1 == self.sources.len();
            let gradient_of = if is_short { rank } else { source };
            let sent = self.pass_keys(work, keys, hop);
            let gradient =
                if hop == 0 { (AttentionTensor::KeyValueGradient, source) } else { (AttentionTensor::KeyValuePart, source) };
            work.attend_backward(rank, Backward { queries: rank, source, gradient }, [hop == 0, true]);
            self.release(work, hop, sent);
            if hop > 0 {
                self.receive(work, gradients, AttentionTensor::KeyValueGradient, gradient_of);
                work.add_part(rank, (rank, source), gradient_of);
            }
            if self.sources.len() > 1 && !is_short {
                self.send(work, gradients, AttentionTensor::KeyValueGradient, source);
            }
        }
        if self.sources.len() > 1 && work.attention.bug != Some(AttentionBug::ShortHop) {
            self.receive(work, gradients, AttentionTensor::KeyValueGradient, self.rank);
        }
    }

    /// Sends the keys that are here to the right, and receives the next ones; none come after the last.
    fn pass_keys(&mut self, work: &mut Work, keys: &Line, hop: usize) -> Option<OpId> {
        let &next = self.sources.get(hop + 1)?;
        let sent = self.send(work, keys, AttentionTensor::KeyValue, self.sources[hop]);
        let received = self.receive(work, keys, AttentionTensor::KeyValue, next);
        if let Some(released) = self.released {
            work.program.wait(received, released);
        }
        Some(sent)
    }

    /// Gives back the buffer of the keys that are here, when they are sent and no longer read. The rank's own stay.
    fn release(&mut self, work: &mut Work, hop: usize, sent: Option<OpId>) {
        if hop == 0 {
            self.released = None;
            return;
        }
        let kv = work.buffer(self.rank, AttentionTensor::KeyValue, self.sources[hop]);
        let op = work.run(self.rank, KernelCost::free(Kernel::Release), &[kv], &[]);
        if let Some(sent) = sent {
            work.program.wait(op, sent);
        }
        self.released = Some(op);
    }

    fn send(&self, work: &mut Work, line: &Line, tensor: AttentionTensor, slice: usize) -> OpId {
        let buffer = work.buffer(self.rank, tensor, slice);
        let kind = OpKind::Send(line.channels[self.rank]);
        work.program.append((work.ranks[self.rank], line.out), kind, (&[buffer], &[]), work.origin)
    }

    fn receive(&self, work: &mut Work, line: &Line, tensor: AttentionTensor, slice: usize) -> OpId {
        let buffer = work.buffer(self.rank, tensor, slice);
        let from = (self.rank + work.ranks() - line.ahead) % work.ranks();
        let kind = OpKind::Recv(line.channels[from]);
        work.program.append((work.ranks[self.rank], line.into), kind, (&[], &[buffer]), work.origin)
    }
}
