//! Sharing: transfers that are in flight together share their links max-min fairly, so a transfer's end moves as others start and end.
//!
//! Only a contended link, whose flows could use more than it carries, holds anybody up: where none is crossed a flow runs at its ceiling
//! and its end is known. The flows of a contended link that no other one holds up are all equally fast. They are a bundle with a clock of its
//! own, the bytes that each was served: the order in which they end never changes, and whoever comes or goes costs a search, not a walk.
//! Where contended links meet, all rates are found anew by progressive filling. Rates change once a tick, when all has begun and ended.
//! A collective that is one operation is one flow over the links of all its members: a ring is as slow as its slowest hop.

mod bundle;
mod fill;
mod links;
mod network;
mod route;

use std::collections::BTreeSet;

use self::bundle::Bundle;
use self::fill::{Demand, fill};
use self::links::{Connected, Links};
pub use self::network::Network;
use self::network::Transfer;
use self::route::{Crossing, Each, Route};
use super::agenda::Agenda;
use crate::base::{OpId, Rank, Ticks};

/// All transfers that are in flight.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    links: Links,
    flows: Vec<Flow>,
    /// Places of flows that have ended.
    spare: Vec<u32>,
    /// Per op, its flow.
    of: Vec<Place>,
    /// When the first flow of each bundle ends.
    alarms: BTreeSet<(Ticks, u32)>,
}

/// Where the flow of an op is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    None,
    At(u32),
    Gone,
}

/// A transfer whose bytes are moving.
#[derive(Clone, Debug)]
struct Flow {
    send: OpId,
    rank: Rank,
    route: Route,
    /// Where it stands in the lists of these links.
    stands: Each<u32>,
    /// How many of them are contended.
    contended: u32,
    ceiling: u64,
    pace: Pace,
}

/// How fast a flow is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pace {
    /// It has just begun, with so many bytes.
    New(f64),
    /// So many bytes were left at some time, and the rate is its own.
    Own { left: f64, since: Ticks, rate: f64, end: Ticks },
    /// As fast as the bundle of a link; it ends when the bundle has served so many bytes.
    Bundled { link: u32, finish: f64 },
    /// It ends now.
    Due,
}

/// What an entry of the agenda means for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Its first byte moves.
    Begins,
    /// Its last byte is there.
    Ends,
    /// Nothing: its end has moved since.
    Stale,
}

impl Sharing {
    /// Nothing is in flight.
    pub(super) fn new(ops: usize, network: &Network) -> Self {
        Self {
            links: Links::new(&network.capacities),
            flows: Vec::new(),
            spare: Vec::new(),
            of: vec![Place::None; ops],
            alarms: BTreeSet::new(),
        }
    }

    /// What it means that the agenda names `send` at `time`.
    pub(super) fn arrives(&self, send: OpId, time: Ticks) -> Arrival {
        match self.of[send.index()] {
            Place::None => Arrival::Begins,
            Place::Gone => Arrival::Stale,
            Place::At(flow) => match self.flows[flow as usize].pace {
                Pace::Due => Arrival::Ends,
                Pace::Own { end, .. } if end == time => Arrival::Ends,
                _ => Arrival::Stale,
            },
        }
    }

    /// Begins the transfer of `send`; `false` if it carries nothing and has ended with that.
    pub(super) fn begin(&mut self, (rank, send): (Rank, OpId), transfer: Transfer, now: Ticks, agenda: &mut Agenda) -> bool {
        if transfer.bytes == 0 {
            self.of[send.index()] = Place::Gone;
            return false;
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes of one message, far below 2^53")]
        let bytes = transfer.bytes as f64;
        let Transfer { route, ceiling, .. } = transfer;
        let flow = Flow { send, rank, stands: Each::like(&route, 0), route, contended: 0, ceiling, pace: Pace::New(bytes) };
        let place = self.spare.pop().unwrap_or_else(|| u32::try_from(self.flows.len()).expect("fewer than 2^32 flows"));
        match self.flows.get_mut(place as usize) {
            Some(ended) => *ended = flow,
            None => self.flows.push(flow),
        }
        self.of[send.index()] = Place::At(place);
        if !self.links.enter(place, &mut self.flows) {
            self.at_ceiling(place, now, agenda);
        }
        true
    }

    /// Ends the transfer of `send`.
    pub(super) fn end(&mut self, send: OpId) {
        let Place::At(place) = std::mem::replace(&mut self.of[send.index()], Place::Gone) else { return };
        self.links.leave(place, &mut self.flows);
        self.spare.push(place);
    }

    /// Before time goes on from `now`: finds the rates of all that changed, and notes in the agenda what ends next. `next` is the time of
    /// the agenda's next entry.
    pub(super) fn settle(&mut self, now: Ticks, agenda: &mut Agenda) {
        while let Some(link) = self.links.next_dirty() {
            if !self.links.at(link).is_contended {
                self.release(link, now, agenda);
            } else if let Some(link) = self.links.holds_up_alone(link) {
                self.bundle(link, now);
            } else {
                self.refill(link, now, agenda);
            }
        }
        let Some(&(time, _)) = self.alarms.first().filter(|(time, _)| agenda.next().is_none_or(|next| *time <= next)) else {
            return;
        };
        while let Some(&(_, link)) = self.alarms.first().filter(|alarm| alarm.0 == time) {
            self.alarms.pop_first();
            let Some(bundle) = &mut self.links.at_mut(link).bundle else { continue };
            while let Some(place) = bundle.take_due(time) {
                let flow = &mut self.flows[place as usize];
                flow.pace = Pace::Due;
                agenda.push(time, flow.rank, flow.send);
            }
        }
    }

    /// A link that holds nobody up any more: its flows depend on their other links.
    fn release(&mut self, link: u32, now: Ticks, agenda: &mut Agenda) {
        for place in self.links.at(link).flows.clone() {
            let flow = &self.flows[place as usize];
            if flow.contended == 0 {
                self.at_ceiling(place, now, agenda);
                continue;
            }
            for &Crossing { link: other, .. } in flow.route.iter() {
                if self.links.at(other).is_contended {
                    self.links.mark(other);
                }
            }
        }
        self.dissolve(link);
    }

    /// The flows of a link that alone holds them up: they join its bundle.
    fn bundle(&mut self, link: u32, now: Ticks) {
        let of = self.links.at_mut(link);
        let (fresh, bundle) = (std::mem::take(&mut of.fresh), of.bundle.take());
        let joining = if bundle.is_some() { fresh } else { of.flows.clone() };
        let mut bundle = bundle.unwrap_or_else(|| Box::new(Bundle::new(now)));
        bundle.advance(now);
        for place in joining {
            let left = self.left(place, now);
            let flow = &mut self.flows[place as usize];
            let finish = bundle.join(place, (flow.rank, flow.send), left);
            flow.pace = Pace::Bundled { link, finish };
        }
        let of = self.links.at_mut(link);
        bundle.set_rate(of.share());
        self.alarms.remove(&(bundle.alarm, link));
        if let Some(alarm) = bundle.next_end() {
            bundle.alarm = alarm;
            self.alarms.insert((alarm, link));
        }
        of.bundle = Some(bundle);
    }

    /// All flows that are connected with `link` over contended links, by progressive filling.
    fn refill(&mut self, link: u32, now: Ticks, agenda: &mut Agenda) {
        let connected = self.links.connected(link, &self.flows);
        let left: Vec<f64> = connected.flows.iter().map(|&place| self.left(place, now)).collect();
        connected.links.iter().for_each(|&link| self.dissolve(link));
        let rates = self.rates(&connected);
        for ((place, left), rate) in connected.flows.into_iter().zip(left).zip(rates) {
            self.run_at(place, (left, rate), now, agenda);
        }
    }

    /// The rates of flows that contended links connect.
    #[expect(clippy::cast_precision_loss, reason = "bandwidths below 2^53")]
    fn rates(&self, Connected { links, flows }: &Connected) -> Vec<f64> {
        let local = |crossing: &Crossing| {
            let place = links.binary_search(&crossing.link).ok()?;
            Some(Crossing { link: u32::try_from(place).ok()?, ..*crossing })
        };
        let capacities: Vec<f64> = links.iter().map(|&link| self.links.at(link).capacity as f64).collect();
        let flows = || flows.iter().map(|&place| &self.flows[place as usize]);
        let crossings: Vec<Vec<Crossing>> = flows().map(|flow| flow.route.iter().filter_map(local).collect()).collect();
        let demand = |(flow, crossings): (&Flow, _)| Demand { ceiling: flow.ceiling as f64, crossings };
        fill(&capacities, &flows().zip(crossings).map(demand).collect::<Vec<_>>())
    }

    fn at_ceiling(&mut self, place: u32, now: Ticks, agenda: &mut Agenda) {
        #[expect(clippy::cast_precision_loss, reason = "a bandwidth below 2^53")]
        let rate = self.flows[place as usize].ceiling as f64;
        self.run_at(place, (self.left(place, now), rate), now, agenda);
    }

    /// A flow at a rate of its own. What keeps its rate keeps its end.
    fn run_at(&mut self, place: u32, (left, rate): (f64, f64), now: Ticks, agenda: &mut Agenda) {
        let flow = &mut self.flows[place as usize];
        if matches!(flow.pace, Pace::Own { rate: same, .. } if same.to_bits() == rate.to_bits()) {
            return;
        }
        let end = now + lasts(left, rate);
        flow.pace = Pace::Own { left, since: now, rate, end };
        agenda.push(end, flow.rank, flow.send);
    }

    /// Bytes that a flow has still to move.
    fn left(&self, place: u32, now: Ticks) -> f64 {
        match self.flows[place as usize].pace {
            Pace::New(bytes) => bytes,
            Pace::Own { left, since, rate, .. } => (left - moved(rate, now - since)).max(0.0),
            Pace::Bundled { link, finish } => {
                let bundle = self.links.at(link).bundle.as_ref();
                bundle.map_or(0.0, |bundle| (finish - bundle.served_at(now)).max(0.0))
            }
            Pace::Due => 0.0,
        }
    }

    fn dissolve(&mut self, link: u32) {
        let of = self.links.at_mut(link);
        of.fresh.clear();
        if let Some(bundle) = of.bundle.take() {
            self.alarms.remove(&(bundle.alarm, link));
        }
    }
}

/// How long `bytes` take at `rate` bytes a second, rounded up to whole nanoseconds; at least one, so that what is left is never lost.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and far below 2^64 ns")]
fn lasts(bytes: f64, rate: f64) -> Ticks {
    Ticks(((bytes / rate * 1e9).ceil() as u64).max(1))
}

/// Bytes that move in this time.
#[expect(clippy::cast_precision_loss, reason = "a time far below 2^53 ns")]
fn moved(rate: f64, time: Ticks) -> f64 {
    rate * (time.0 as f64) * 1e-9
}

#[cfg(test)]
mod tests;
