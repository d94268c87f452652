//! The messages of a sheet: where it says anything about them, every message between two ranks has both its ends, in places that can be.

use std::collections::BTreeMap;

use super::check::{Place, Walk};
use super::{Action, Dialect, End, Message, ShardAction};
use crate::program::plan::Pass;

/// Notes what is wrong with the messages and the shards of a sheet whose slots are in order.
pub(super) fn check(walk: &mut Walk) {
    let sheet = walk.sheet;
    let mut ends: BTreeMap<(End, Message), Place> = BTreeMap::new();
    for (row, cells) in sheet.rows.iter().enumerate() {
        let mut reducing: BTreeMap<u32, Place> = BTreeMap::new();
        for (column, action) in cells.iter().enumerate() {
            let place = (row, column);
            match *action {
                Some(Action::Message(end, message)) => one_end(walk, &mut ends, place, (end, message)),
                Some(Action::Shard(action, stage)) => shard(walk, &mut reducing, place, (action, stage)),
                None if sheet.has_messages() => {
                    walk.refuse(place, "is a bubble beside messages", "no empty cells: who waits is seen");
                }
                _ => {}
            }
        }
        for (stage, place) in reducing {
            walk.refuse(place, "is never waited for", format!("{stage}WAIT_REDUCE_GRAD later in its row"));
        }
    }
    if sheet.has_messages() && walk.errors.is_empty() {
        all_there(walk, &ends);
    }
}

fn one_end(walk: &mut Walk, ends: &mut BTreeMap<(End, Message), Place>, place: Place, (end, message): (End, Message)) {
    let Message { is_forward, stage, micro_batch } = message;
    let home = walk.homes.get(&stage).map(|home| home.0);
    let peer = message.turned(end).and_then(|peer| walk.homes.get(&peer.stage)).map(|home| home.0);
    let Some(peer) = peer else {
        return walk.refuse(place, "has no stage at its other end", "messages between neighbouring stages");
    };
    if home != Some(place.0) {
        return walk.refuse(
            place,
            format!("stands on a rank without stage {stage}"),
            "sends name the sender's stage, receives the receiver's",
        );
    }
    if peer == place.0 {
        return walk.refuse(place, "is a message from a rank to itself", "none: the value is there already");
    }
    if let Some((_, column)) = ends.insert((end, message), place) {
        return walk.refuse(place, format!("stands a second time; the first is in column {}", column + 1), "each end once");
    }
    let pass = if is_forward { Pass::F } else { Pass::I };
    let done = walk.done.get(&(stage, micro_batch)).copied().unwrap_or_default();
    let slot = done[pass as usize].or(if is_forward { None } else { done[Pass::B as usize] });
    let Some(slot) = slot else {
        return walk.refuse(place, "is of a micro-batch that nobody runs", "messages of the plan's micro-batches");
    };
    match end {
        End::Send if place.1 < slot.1 => {
            walk.refuse(place, "is sent before it is computed", "the send behind the slot that makes its value");
        }
        End::Recv if place.1 > slot.1 => {
            walk.refuse(place, "is received after it is needed", "the receive before the slot that needs it");
        }
        End::WaitSend if !ends.contains_key(&(End::Send, message)) => {
            walk.refuse(place, "waits for a send that was not issued", "the wait behind its send");
        }
        _ => {}
    }
}

fn shard(walk: &mut Walk, reducing: &mut BTreeMap<u32, Place>, place: Place, (action, stage): (ShardAction, u32)) {
    if walk.homes.get(&stage).is_none_or(|home| home.0 != place.0) {
        return walk.refuse(place, format!("stands on a rank without stage {stage}"), "a stage of this rank");
    }
    match action {
        ShardAction::ReduceGrad if !reducing.is_empty() => {
            walk.refuse(place, "reduces gradients while others are being reduced", "one at a time, waited for before the next");
        }
        ShardAction::ReduceGrad => {
            reducing.insert(stage, place);
        }
        ShardAction::WaitReduceGrad if reducing.remove(&stage).is_none() => {
            walk.refuse(place, "waits for gradients that nobody reduces", format!("{stage}REDUCE_GRAD before it"));
        }
        _ => {}
    }
}

/// Whether every value that another rank needs is sent, received, and, since 2.15, waited for.
fn all_there(walk: &mut Walk, ends: &BTreeMap<(End, Message), Place>) {
    let slots: Vec<_> = walk.done.iter().map(|(&key, &done)| (key, done)).collect();
    for ((stage, micro_batch), done) in slots {
        for is_forward in [true, false] {
            let message = Message { is_forward, stage, micro_batch };
            let Some(peer) = message.turned(End::Send) else { continue };
            let Some(home) = walk.homes.get(&peer.stage) else { continue };
            let pass = if is_forward { Pass::F } else { Pass::I };
            let Some(place) = done[pass as usize].or(done[Pass::B as usize]).filter(|place| place.0 != home.0) else { continue };
            let named = |end, message| Action::Message(end, message).to_string();
            if !ends.contains_key(&(End::Send, message)) {
                walk.refuse(place, "makes a value that is never sent", format!("{} behind it", named(End::Send, message)));
            } else if !ends.contains_key(&(End::Recv, peer)) {
                let at = ends[&(End::Send, message)];
                walk.refuse(at, "is never received", format!("{} in row {}", named(End::Recv, peer), home.0 + 1));
            } else if walk.sheet.dialect == Dialect::MessagesAndWaits && !ends.contains_key(&(End::WaitSend, message)) {
                let at = ends[&(End::Send, message)];
                walk.refuse(at, "is never waited for", format!("{} behind it", named(End::WaitSend, message)));
            }
        }
    }
}
