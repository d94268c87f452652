//! The ring: in every hop a rank computes the block that is there, passes its keys and values on to the right, and receives the next ones
//! from the left into a second buffer. Backward does the same once more, and the gradients of keys and values travel behind them, one hop
//! farther: home. Source: Liu et al. 2023, "Ring attention with blockwise transformers", arXiv 2310.01889.
//!
//! A rank begins a hop when its block is computed and passed on, as implementations do that wait for both: there are two buffers, not three.

use super::{Backward, ORIGIN, Work};
use crate::base::settings::{AttentionBug, AttentionTensor};
use crate::base::{ChannelId, OpId, Rank, StreamId};
use crate::program::tables::Channel;
use crate::program::{Kernel, KernelCost, OpKind};

/// Forward, then backward, on every rank.
pub(super) fn run(work: &mut Work) {
    let ahead = if work.attention.bug == Some(AttentionBug::WrongNeighbour) { work.ranks() - 1 } else { 1 };
    let forward = Line::new(work, "kv", ahead);
    let keys = if ahead == 1 { forward.clone() } else { Line::new(work, "kv", 1) };
    let gradients = Line::new(work, "dkv", 1);
    for rank in 0..work.ranks() {
        let sources = (0..work.ranks()).map(|hop| (rank + work.ranks() - hop) % work.ranks()).collect::<Vec<_>>();
        let mut hops = Hops { rank, sources, released: None };
        hops.forward(work, &forward);
        work.finish(rank, rank);
        hops.backward(work, &keys, &gradients);
    }
}

/// What travels around the ring: streams of its sends and receives, and per rank the channel to the rank so many places `ahead`.
#[derive(Clone)]
struct Line {
    out: StreamId,
    into: StreamId,
    ahead: usize,
    channels: Vec<ChannelId>,
}

impl Line {
    fn new(work: &mut Work, name: &str, ahead: usize) -> Self {
        let ranks = work.ranks();
        let ahead_of = |from: usize| Channel { from: Rank::new(from), to: Rank::new((from + ahead) % ranks), buffered: false };
        let channels =
            if ranks == 1 { Vec::new() } else { (0..ranks).map(|rank| work.program.channel(ahead_of(rank))).collect() };
        let [out, into] = if ranks == 1 {
            [StreamId(0); 2]
        } else {
            [".out", ".in"].map(|end| work.program.communication_stream(&format!("cp.{name}{end}")))
        };
        Self { out, into, ahead, channels }
    }
}

/// One rank's way around the ring.
struct Hops {
    rank: usize,
    /// Whose keys are here, hop by hop.
    sources: Vec<usize>,
    /// The op that gave the other buffer back.
    released: Option<OpId>,
}

impl Hops {
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
            if hop > 0 {
                self.receive(work, gradients, AttentionTensor::KeyValueGradient, gradient_of);
            }
            work.attend_backward(rank, Backward { queries: rank, source, gradient_of }, [hop == 0; 2]);
            self.release(work, hop, sent);
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
        work.program.append((Rank::new(self.rank), line.out), kind, (&[buffer], &[]), ORIGIN)
    }

    fn receive(&self, work: &mut Work, line: &Line, tensor: AttentionTensor, slice: usize) -> OpId {
        let buffer = work.buffer(self.rank, tensor, slice);
        let from = (self.rank + work.ranks() - line.ahead) % work.ranks();
        let kind = OpKind::Recv(line.channels[from]);
        work.program.append((Rank::new(self.rank), line.into), kind, (&[], &[buffer]), ORIGIN)
    }
}
