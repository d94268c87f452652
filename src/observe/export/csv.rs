//! A run as a table: one row per op that ran, rank by rank in issue order. Times are in the clock's unit.

use std::fmt::Write;

use crate::base::OpId;
use crate::observe::Run;
use crate::observe::kind::Kind;
use crate::program::OpKind;
use crate::program::head::head;

/// The columns.
const HEAD: &str = "op,rank,stream,kind,text,step,stage,pass,micro_batch,posted,start,end,event,bytes,peer";

/// The table, its head first.
#[must_use]
pub fn table(run: &Run) -> String {
    let mut text = format!("{HEAD}\n");
    for op in run.program.all() {
        row(run, &mut text, op);
    }
    text
}

fn row(run: &Run, text: &mut String, op: OpId) {
    let (Some(times), view) = (run.times(op), run.program.op(op)) else { return };
    let clock = run.trace.clock;
    let stream = &run.program.streams[view.stream.index()].name;
    let kind = Kind::of(run, op).name();
    let head = head(run.program, op);
    let slot = view
        .origin
        .slot
        .map_or_else(|| ",,".to_owned(), |slot| format!("{},{},{}", slot.stage, slot.pass.letter(), slot.micro_batch));
    let [posted, start, end] = [times.posted, times.start, times.end].map(|time| clock.in_unit(time));
    let event = run.trace.event_of(op).unwrap_or(0);
    let step = view.origin.step;
    let _ = write!(text, "{},{},{stream},{kind},{head},{step},{slot},{posted},{start},{end},{event},", op.0, view.rank.0);
    let peer = match view.kind {
        OpKind::Send(channel) => Some(run.program.channels[channel.index()].to),
        OpKind::Recv(channel) | OpKind::RecvReduce(channel) => Some(run.program.channels[channel.index()].from),
        _ => None,
    };
    let _ = match peer {
        Some(peer) => writeln!(text, "{},{}", run.message_bytes(op).0, peer.0),
        None => writeln!(text, ","),
    };
}
