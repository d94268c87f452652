//! A made-up run, so that the screen can be looked at and tested before there is one: 1F1B by a small rule of its own.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::coverage::Coverage;
use super::model::{Knob, Listed, RunModel};
use super::picture::{Event, Kind, Picture, Row, Span};
use super::update::{Effect, Message, Opened};
use crate::base::units::{Clock, Ticks};

const TEXT: &str = include_str!("demo.md");

/// Two lessons to choose from.
#[must_use]
pub fn lessons() -> Vec<Listed> {
    let listed = |number, name: &str, title: &str, chapter: &str, about: &str| Listed {
        number,
        name: name.into(),
        title: title.into(),
        chapter: chapter.into(),
        about: about.into(),
    };
    vec![
        listed(2, "ring", "Ring all-reduce", "Data parallel", "How eight ranks sum what they hold, and nobody sends it all."),
        listed(4, "ddp", "Buckets and overlap", "Data parallel", "Gradients leave in buckets while the backward still runs."),
        listed(
            10,
            "gpipe",
            "Naive pipeline and GPipe",
            "Pipeline parallel",
            "Micro-batches fill the pipeline; the bubble remains.",
        ),
        listed(
            11,
            "1f1b",
            "1F1B",
            "Pipeline parallel",
            "The same bubble as GPipe, but never more than `p` micro-batches held.\n\n- run it with 4 ranks\n- see why `r0` waits",
        ),
    ]
}

/// Answers the screen's effects with the made-up run.
pub fn perform(effect: Effect, sender: &Sender<Message>) {
    let message = match effect {
        Effect::Open { lesson } => {
            let opened = Opened { title: format!("{lesson} on four stages"), text: TEXT.into(), knobs: knobs() };
            _ = sender.send(Message::Opened(Box::new(opened)));
            Message::Ran(Box::new(run(4, 8)))
        }
        Effect::Rerun { knobs } => {
            let number = |key: &str| knobs.iter().find(|knob| knob.0 == key).and_then(|knob| knob.1.parse().ok());
            let ranks = number("parallel.pipeline").unwrap_or(4);
            Message::Ran(Box::new(run(ranks, number("batch.micro_batches").unwrap_or(8))))
        }
        Effect::Export { format } => Message::Say(format!("there is nothing to export as {format} yet")),
        _ => return,
    };
    _ = sender.send(message);
}

fn knobs() -> Vec<Knob> {
    let knob = |key: &str, label: &str, value: &str, choices: &[&str]| Knob {
        key: key.into(),
        label: label.into(),
        value: value.into(),
        choices: choices.iter().map(|&choice| choice.to_owned()).collect(),
    };
    vec![
        knob("parallel.pipeline", "pipeline stages", "4", &["2", "3", "4", "6", "8", "12", "16"]),
        knob("batch.micro_batches", "micro-batches", "8", &["4", "8", "12", "16", "32"]),
    ]
}

/// 1F1B with `ranks` stages and `batches` micro-batches.
#[must_use]
pub fn run(ranks: u32, batches: u32) -> RunModel {
    let picture = picture(ranks, batches);
    let held = (0..ranks).map(|rank| held(&picture, rank)).collect();
    let facts = vec!["[MODEL clock]".into(), format!("{ranks} ranks"), format!("mb={batches}")];
    let coverage = Coverage::of(&picture);
    RunModel::new(Arc::new(picture), Arc::new(coverage), facts, Arc::new(held))
}

/// Forward takes one slot, backward two, messages nothing.
fn picture(ranks: u32, batches: u32) -> Picture {
    let mut picture = Picture { clock: Clock::Slots { ticks_per_slot: 2 }, ranks, ..Picture::empty() };
    let orders: Vec<Vec<(bool, u32)>> = (0..ranks).map(|rank| order(ranks, rank, batches)).collect();
    let mut done = [vec![vec![None; batches as usize]; ranks as usize], vec![vec![None; batches as usize]; ranks as usize]];
    let mut next = vec![0; ranks as usize];
    let mut free = vec![0_u64; ranks as usize];
    for rank in 0..ranks {
        for (stream, compute) in [("comp", true), ("net", false)] {
            picture.rows.push(Row { rank, stream: stream.into(), compute, spans: Vec::new() });
        }
    }
    loop {
        let ready = (0..ranks as usize).filter_map(|rank| {
            let &(backward, batch) = orders[rank].get(next[rank])?;
            let from: Option<u64> = match (backward, rank) {
                (false, 0) => Some(0),
                (false, _) => done[0][rank - 1][batch as usize],
                (true, _) if rank + 1 == ranks as usize => done[0][rank][batch as usize],
                (true, _) => done[1][rank + 1][batch as usize],
            };
            Some((free[rank].max(from?), rank, backward, batch))
        });
        let Some((start, rank, backward, batch)) = ready.min() else { break };
        let end = start + if backward { 4 } else { 2 };
        place(&mut picture, rank, (free[rank], start, end), backward, batch);
        done[usize::from(backward)][rank][batch as usize] = Some(end);
        free[rank] = end;
        next[rank] += 1;
    }
    finish(&mut picture);
    picture
}

fn order(ranks: u32, rank: u32, batches: u32) -> Vec<(bool, u32)> {
    let warmup = (ranks - 1 - rank).min(batches);
    let mut order: Vec<(bool, u32)> = (0..warmup).map(|batch| (false, batch)).collect();
    for batch in 0..batches {
        if warmup + batch < batches {
            order.push((false, warmup + batch));
        }
        order.push((true, batch));
    }
    order
}

fn place(picture: &mut Picture, rank: usize, (free, start, end): (u64, u64, u64), backward: bool, batch: u32) {
    let kind = if backward { Kind::Backward } else { Kind::Forward };
    let label = text(picture, &format!("{}{batch}", if backward { 'B' } else { 'F' }));
    let waits_for = if backward { rank + 1 } else { rank.saturating_sub(1) };
    let what = if backward { "grad" } else { "act" };
    let last = picture.ranks as usize - 1;
    let reason = text(picture, &format!("needs {what} mb{batch} from r{waits_for}"));
    let compute = &mut picture.rows[2 * rank].spans;
    if free < start && !compute.is_empty() {
        compute.push(Span { start: free, end: start, kind: Kind::Bubble, text: reason, event: 0 });
    }
    compute.push(Span { start, end, kind, text: label, event: 0 });
    if free < start {
        picture.rows[2 * rank + 1].spans.push(Span { start: free, end: start, kind: Kind::Waiting, text: reason, event: 0 });
    }
    let peer = if backward { rank.checked_sub(1) } else { Some(rank + 1).filter(|&peer| peer <= last) };
    if let Some(peer) = peer {
        let kind = if backward { Kind::SendGradient } else { Kind::SendActivation };
        let label = text(picture, &format!("send {what} mb{batch} to r{peer}"));
        picture.rows[2 * rank + 1].spans.push(Span { start: end, end, kind, text: label, event: 0 });
    }
}

fn text(picture: &mut Picture, text: &str) -> u32 {
    picture.texts.push(text.into());
    u32::try_from(picture.texts.len() - 1).unwrap_or(0)
}

/// Puts the spans in order, numbers the events, finds the end.
fn finish(picture: &mut Picture) {
    let mut events = Vec::new();
    for (row, lane) in picture.rows.iter_mut().enumerate() {
        lane.spans.sort_by_key(|span| (span.start, span.end));
        for (place, span) in lane.spans.iter().enumerate().filter(|(_, span)| !span.kind.is_idle()) {
            events.push((span.end, row, place));
        }
    }
    events.sort_unstable();
    for (number, &(time, row, place)) in events.iter().enumerate() {
        picture.rows[row].spans[place].event = u32::try_from(number).unwrap_or(u32::MAX);
        picture.events.push(Event { time, row: u32::try_from(row).unwrap_or(0) });
    }
    picture.end = Ticks(events.last().map_or(0, |event| event.0));
}

fn held(picture: &Picture, rank: u32) -> Vec<(u64, u32)> {
    let mut changes: Vec<(u64, i32)> = Vec::new();
    for span in &picture.rows[2 * rank as usize].spans {
        match span.kind {
            Kind::Forward => changes.push((span.start, 1)),
            Kind::Backward => changes.push((span.end, -1)),
            _ => {}
        }
    }
    changes.sort_unstable();
    let mut count = 0_u32;
    let step = |(tick, change): (u64, i32)| {
        count = count.saturating_add_signed(change);
        (tick, count)
    };
    changes.into_iter().map(step).collect()
}
