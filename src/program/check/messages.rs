//! Do messages meet? Every send a receive on its channel, in order, with the buffer and the shape that the receiver expects.

use super::{Finding, FindingKind, Named};
use crate::base::{Bytes, ChannelId, OpId};
use crate::program::op::Buffer;
use crate::program::partners::Partners;
use crate::program::tables::{Channel, Program};

/// What is wrong with messages. Of several ends of one channel that do not fit, the first is told: it shifts those behind it.
pub(super) fn check(program: &Program, partners: &Partners) -> Vec<Finding> {
    let channels = program.channels.iter().enumerate();
    channels.flat_map(|(index, channel)| ends(program, partners, ChannelId::new(index), *channel)).collect()
}

fn ends(program: &Program, partners: &Partners, id: ChannelId, channel: Channel) -> impl Iterator<Item = Finding> {
    let (sends, receives) = (partners.sends(id), partners.receives(id));
    let unlike = sends.iter().zip(receives).find_map(|(&send, &receive)| meet(program, send, receive));
    let met = sends.len().min(receives.len());
    let alone = match (sends.get(met), receives.get(met)) {
        (Some(&send), _) => Some(unmatched(program, FindingKind::UnmatchedSend, send, channel)),
        (_, Some(&receive)) => Some(unmatched(program, FindingKind::UnmatchedReceive, receive, channel)),
        (None, None) => None,
    };
    unlike.into_iter().chain(alone)
}

/// What is wrong with a send and the receive that it meets.
fn meet(program: &Program, send: OpId, receive: OpId) -> Option<Finding> {
    let carried = |end: OpId| program.carried(end).iter().map(|buffer| &program.buffers[buffer.index()]);
    let alike = |buffer: &Buffer| (buffer.layout, buffer.name);
    if carried(send).map(alike).eq(carried(receive).map(alike)) {
        return None;
    }
    let is_like = carried(send).map(|buffer| buffer.layout).eq(carried(receive).map(|buffer| buffer.layout));
    let sizes = if is_like {
        ": equal shapes, other data, and nothing would notice".to_owned()
    } else {
        shapes(program, carried(send), carried(receive))
    };
    let finding = Finding {
        kind: if is_like { FindingKind::SilentSwap } else { FindingKind::UnlikeEnds },
        rank: program.rank_of(receive),
        ops: vec![send, receive],
        sentence: format!("{} meets {}{}", Named(program, send), Named(program, receive), sizes),
        hint: "the k-th send of a channel meets its k-th receive: issue both ends in the same order".to_owned(),
    };
    Some(finding)
}

/// The sizes of what is sent and what is expected.
fn shapes<'a>(program: &Program, sent: impl Iterator<Item = &'a Buffer>, expected: impl Iterator<Item = &'a Buffer>) -> String {
    let bytes = |buffer: &Buffer| program.layouts[buffer.layout.index()].bytes();
    let (sent, expected): (Bytes, Bytes) = (sent.map(bytes).sum(), expected.map(bytes).sum());
    format!(": {sent} are sent where {expected} of another shape are expected")
}

fn unmatched(program: &Program, kind: FindingKind, op: OpId, channel: Channel) -> Finding {
    let (missing, peer) = match kind {
        FindingKind::UnmatchedSend => ("receive", channel.to),
        _ => ("send", channel.from),
    };
    Finding {
        kind,
        rank: program.rank_of(op),
        ops: vec![op],
        sentence: format!("{} has no {missing} on {peer}", Named(program, op)),
        hint: format!("issue one on {peer}, or leave this end out"),
    }
}
