//! Chrome's trace format, which ui.perfetto.dev opens: a process per rank, a thread per stream, arrows for messages, counters for memory.
//!
//! Its clock counts microseconds. A slot is drawn as a millisecond; `otherData` says so.

use serde::Serialize;

use crate::base::units::Clock;
use crate::base::{OpId, Rank, Ticks};
use crate::observe::kind::{Kind, label};
use crate::observe::ledger::{Account, Ledger};
use crate::observe::report::Given;
use crate::observe::rows::{Row, Span};
use crate::observe::{Lanes, Run};
use crate::program::Role;
use crate::program::head::head;
use crate::program::tables::COMPUTE;

/// The whole document.
#[must_use]
pub fn trace(run: &Run, lanes: &Lanes, ledger: &Ledger, given: &Given) -> String {
    let mut document = Document { run, text: String::from("{\"traceEvents\":[\n"), first: true };
    for rank in &lanes.ranks {
        document.name_rank(rank.rank);
        document.name_stream(rank.rank, 0, "compute");
        document.row(rank.rank, 0, &rank.compute);
        for (stream, row) in rank.streams.iter().filter(|(_, row)| !row.spans.is_empty()) {
            let thread = thread(stream.0);
            let name = &run.program.streams[stream.index()].name;
            document.name_stream(rank.rank, thread, if *stream == COMPUTE { "messages" } else { name });
            document.row(rank.rank, thread, row);
        }
        document.memory(rank.rank, ledger.rank(rank.rank));
    }
    for (id, arrow) in (1..).zip(&lanes.arrows) {
        document.arrow(id, arrow.send, arrow.receive);
    }
    let other = OtherData {
        schema: "ranklab.trace/1",
        title: &given.title,
        clock: "modelled",
        costs: &given.costs,
        unit: lanes.clock.unit(),
        microseconds_per_unit: match lanes.clock {
            Clock::Slots { .. } => SLOT,
            Clock::Nanoseconds => 1e-3,
        },
        outcome: run.trace.outcome.name(),
    };
    format!("{}\n],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{}}}\n", document.text, to_json(&other))
}

/// Microseconds that a slot is drawn as.
const SLOT: f64 = 1000.0;

#[derive(Serialize)]
struct OtherData<'a> {
    schema: &'a str,
    title: &'a str,
    clock: &'a str,
    costs: &'a str,
    unit: &'a str,
    microseconds_per_unit: f64,
    outcome: &'a str,
}

/// One entry; the format's own names.
#[derive(Default, Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'a str,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Name { name: &'a str },
    Order { sort_index: u32 },
    Op(OpArgs),
    Bytes(Bytes),
}

#[derive(Serialize)]
struct OpArgs {
    op: String,
    event: u32,
    step: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    micro_batch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<u32>,
}

/// Roles with something in them at some time of the rank.
type Bytes = std::collections::BTreeMap<&'static str, u64>;

struct Document<'run, 'a> {
    run: &'run Run<'a>,
    text: String,
    first: bool,
}

impl Document<'_, '_> {
    fn add(&mut self, event: &Event) {
        self.text.push_str(if std::mem::take(&mut self.first) { "" } else { ",\n" });
        self.text.push_str(&to_json(event));
    }

    fn name_rank(&mut self, rank: Rank) {
        let name = format!("rank {}", rank.0);
        let names = Some(Args::Name { name: &name });
        self.add(&Event { name: "process_name", ph: "M", pid: rank.0, args: names, ..Event::default() });
        let order = Some(Args::Order { sort_index: rank.0 });
        self.add(&Event { name: "process_sort_index", ph: "M", pid: rank.0, args: order, ..Event::default() });
    }

    fn name_stream(&mut self, rank: Rank, tid: u32, name: &str) {
        let args = Some(Args::Name { name });
        self.add(&Event { name: "thread_name", ph: "M", pid: rank.0, tid, args, ..Event::default() });
    }

    /// Slots with their ops inside; messages and collectives; waits of communication streams. Idle compute is left blank.
    fn row(&mut self, rank: Rank, tid: u32, row: &Row) {
        for span in &row.spans {
            let ops = row.ops_of(span);
            match span.kind {
                Kind::Bubble | Kind::ExposedCommunication => {}
                Kind::Waiting => self.slice((rank, tid), span.kind.name(), span, ops[0]),
                _ => self.slice((rank, tid), &row.label(self.run, span), span, ops[0]),
            }
            if ops.len() > 1 {
                for &op in ops {
                    self.op((rank, tid), op);
                }
            }
        }
    }

    fn slice(&mut self, (rank, tid): (Rank, u32), name: &str, span: &Span, op: OpId) {
        let (ts, dur) = (self.time(span.start), self.time(span.end) - self.time(span.start));
        let args = Some(Args::Op(self.args(op)));
        let cat = Some(span.kind.name());
        self.add(&Event { name, ph: "X", pid: rank.0, tid, ts: Some(ts), dur: Some(dur), cat, args, ..Event::default() });
    }

    /// An op inside its slot.
    fn op(&mut self, (rank, tid): (Rank, u32), op: OpId) {
        let Some(times) = self.run.times(op) else { return };
        let (ts, dur) = (self.time(times.start), self.time(times.end) - self.time(times.start));
        let args = self.args(op);
        let name = args.op.clone();
        let (ts, dur, args) = (Some(ts), Some(dur), Some(Args::Op(args)));
        self.add(&Event { name: &name, ph: "X", pid: rank.0, tid, ts, dur, cat: Some("op"), args, ..Event::default() });
    }

    fn args(&self, op: OpId) -> OpArgs {
        let program = self.run.program;
        let view = program.op(op);
        let bytes = Some(self.run.message_bytes(op).0).filter(|bytes| *bytes > 0);
        let channel = view.kind.channel().map(|channel| program.channels[channel.index()]);
        OpArgs {
            op: head(program, op).to_string(),
            event: u32::try_from(self.run.trace.event_of(op).unwrap_or(0)).unwrap_or(0),
            step: view.origin.step,
            micro_batch: view.origin.slot.map(|slot| slot.micro_batch),
            bytes,
            peer: channel.map(|channel| if view.kind.receives() { channel.from.0 } else { channel.to.0 }),
        }
    }

    fn arrow(&mut self, id: u64, send: OpId, receive: OpId) {
        let name = label(self.run, send);
        for (op, ph, bp) in [(send, "s", None), (receive, "f", Some("e"))] {
            let Some(times) = self.run.times(op) else { return };
            let (pid, tid) = (self.run.program.rank_of(op).0, thread(self.run.program.stream_of(op).0));
            let ts = Some(self.time(times.start));
            self.add(&Event { name: &name, ph, pid, tid, ts, id: Some(id), bp, cat: Some("message"), ..Event::default() });
        }
    }

    /// One counter with a line per role; of what changes at one time, the last.
    fn memory(&mut self, rank: Rank, account: &Account) {
        let used: Vec<Role> = Role::ALL
            .into_iter()
            .filter(|role| account.samples.iter().any(|sample| sample.by_role[*role as usize].0 > 0))
            .collect();
        for (place, sample) in account.samples.iter().enumerate() {
            if account.samples.get(place + 1).is_some_and(|next| next.time == sample.time) {
                continue;
            }
            let bytes = used.iter().map(|role| (role.name(), sample.by_role[*role as usize].0)).collect();
            let ts = Some(self.time(sample.time));
            self.add(&Event { name: "memory", ph: "C", pid: rank.0, ts, args: Some(Args::Bytes(bytes)), ..Event::default() });
        }
    }

    fn time(&self, ticks: Ticks) -> f64 {
        let unit = self.run.trace.clock.in_unit(ticks);
        match self.run.trace.clock {
            Clock::Slots { .. } => unit * SLOT,
            Clock::Nanoseconds => unit / 1e3,
        }
    }
}

/// The thread of a stream's messages and collectives; 0 is for computation. The compute stream has messages of its own if they block it.
fn thread(stream: u32) -> u32 {
    stream + 1
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("string keys only")
}
