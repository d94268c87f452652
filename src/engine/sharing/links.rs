//! The state of the links: who crosses each, which are contended, and whose flows must be looked at again.

use std::collections::BTreeSet;

use super::bundle::Bundle;
use super::route::Crossing;
use super::{Flow, Pace};

/// All links.
#[derive(Clone, Debug)]
pub(super) struct Links {
    all: Vec<Crossed>,
    /// Links whose flows changed, each once.
    dirty: Vec<u32>,
}

/// One link.
#[derive(Clone, Debug, Default)]
pub(super) struct Crossed {
    /// Bytes a second.
    pub capacity: u64,
    /// The flows that cross it.
    pub flows: Vec<u32>,
    /// How often they do, all together.
    crossings: u32,
    /// What they could use together.
    demand: u128,
    /// The least that one of them could use; only lower until the link is empty.
    lowest: u64,
    /// Whether they could use more than there is.
    pub is_contended: bool,
    /// How many of them cross another contended link, too.
    entangled: usize,
    /// Where else they all go.
    others: Others,
    is_dirty: bool,
    /// Flows that began since its bundle was made or changed.
    pub fresh: Vec<u32>,
    pub bundle: Option<Box<Bundle>>,
}

/// The other links that a link's flows cross; known again when the link is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Others {
    /// There are no flows.
    #[default]
    None,
    /// All cross this one.
    One(u32),
    /// They cross different ones.
    Many,
}

/// Links that contended flows connect, in order, and these flows.
pub(super) struct Connected {
    pub links: Vec<u32>,
    pub flows: Vec<u32>,
}

impl Crossed {
    /// Whether every flow could use its fair share.
    fn is_shared_evenly(&self) -> bool {
        u128::from(self.lowest) * u128::from(self.crossings) >= u128::from(self.capacity)
    }

    /// The fair share of a flow.
    #[expect(clippy::cast_precision_loss, reason = "a bandwidth below 2^53")]
    pub(super) fn share(&self) -> f64 {
        self.capacity as f64 / f64::from(self.crossings)
    }
}

impl Links {
    pub(super) fn new(capacities: &[u64]) -> Self {
        let link = |&capacity: &u64| Crossed { capacity, lowest: u64::MAX, ..Crossed::default() };
        Self { all: capacities.iter().map(link).collect(), dirty: Vec::new() }
    }

    pub(super) fn at(&self, link: u32) -> &Crossed {
        &self.all[link as usize]
    }

    pub(super) fn at_mut(&mut self, link: u32) -> &mut Crossed {
        &mut self.all[link as usize]
    }

    /// Has `link` looked at again.
    pub(super) fn mark(&mut self, link: u32) {
        if !std::mem::replace(&mut self.all[link as usize].is_dirty, true) {
            self.dirty.push(link);
        }
    }

    pub(super) fn next_dirty(&mut self) -> Option<u32> {
        loop {
            let link = self.dirty.pop()?;
            if std::mem::take(&mut self.all[link as usize].is_dirty) {
                return Some(link);
            }
        }
    }

    /// The link that alone holds up the flows of the contended `link`, all of them equally: they meet no other contended link, or all go
    /// on over the same one, and nobody else does: then the narrower of the two.
    pub(super) fn holds_up_alone(&mut self, link: u32) -> Option<u32> {
        let of = self.at(link);
        let mut narrower = link;
        if of.entangled > 0 {
            let Others::One(other) = of.others else { return None };
            if self.at(other).others != Others::One(link) {
                return None;
            }
            let width = |link: u32| (self.at(link).capacity, link);
            narrower = if width(other) < width(link) { other } else { link };
            let wider = if narrower == link { other } else { link };
            self.at_mut(wider).fresh.clear();
        }
        self.at(narrower).is_shared_evenly().then_some(narrower)
    }

    /// A flow begins to cross its links; whether one of them is contended.
    pub(super) fn enter(&mut self, place: u32, flows: &mut [Flow]) -> bool {
        let flow = &mut flows[place as usize];
        flow.contended = number(flow.route.iter().filter(|crossing| self.at(crossing.link).is_contended).count());
        for (side, &Crossing { link, times }) in flow.route.iter().enumerate() {
            let of = &mut self.all[link as usize];
            flow.stands[side] = number(of.flows.len());
            of.flows.push(place);
            of.crossings += times;
            of.demand += u128::from(flow.ceiling) * u128::from(times);
            of.lowest = of.lowest.min(flow.ceiling);
            of.entangled += usize::from(flow.is_contended_beside(of));
            of.others = match (of.others, flow.route.other(link)) {
                (Others::None, Some(other)) => Others::One(other),
                (Others::One(known), Some(other)) if known == other => of.others,
                _ => Others::Many,
            };
        }
        self.changed(place, flows);
        let mut is_any = false;
        for crossing in flows[place as usize].route.iter() {
            let of = &mut self.all[crossing.link as usize];
            if of.is_contended {
                of.fresh.push(place);
                is_any = true;
            }
        }
        is_any
    }

    /// A flow leaves its links.
    pub(super) fn leave(&mut self, place: u32, flows: &mut [Flow]) {
        let Flow { rank, send, pace, .. } = flows[place as usize];
        if let Pace::Bundled { link, finish } = pace
            && let Some(bundle) = &mut self.at_mut(link).bundle
        {
            bundle.leave(place, (rank, send), finish);
        }
        for side in 0..flows[place as usize].route.len() {
            let flow = &flows[place as usize];
            let (Crossing { link, times }, stands) = (flow.route[side], flow.stands[side]);
            let of = &mut self.all[link as usize];
            of.flows.swap_remove(stands as usize);
            of.crossings -= times;
            of.demand -= u128::from(flow.ceiling) * u128::from(times);
            if of.flows.is_empty() {
                (of.lowest, of.others) = (u64::MAX, Others::None);
            }
            of.entangled -= usize::from(flow.is_contended_beside(of));
            if let Some(&moved) = of.flows.get(stands as usize) {
                flows[moved as usize].stands_at(link, stands);
            }
        }
        self.changed(place, flows);
    }

    /// What the new demand on the links of a flow means.
    fn changed(&mut self, place: u32, flows: &mut [Flow]) {
        for side in 0..flows[place as usize].route.len() {
            let link = flows[place as usize].route[side].link;
            let of = self.at_mut(link);
            let was = of.is_contended;
            of.is_contended = of.demand > u128::from(of.capacity);
            let is = of.is_contended;
            if was != is {
                self.turns(link, flows);
            }
            if was || is {
                self.mark(link);
            }
        }
    }

    /// A link begins or ceases to be contended: its flows' other links hear of it.
    fn turns(&mut self, link: u32, flows: &mut [Flow]) {
        let is = self.at(link).is_contended;
        for place in 0..self.at(link).flows.len() {
            let flow = &mut flows[self.at(link).flows[place] as usize];
            let before = flow.contended;
            flow.contended = if is { before + 1 } else { before - 1 };
            for crossing in flow.route.iter().filter(|crossing| crossing.link != link) {
                let of = &mut self.all[crossing.link as usize];
                let own = u32::from(of.is_contended);
                of.entangled -= usize::from(before > own);
                of.entangled += usize::from(flow.contended > own);
            }
        }
    }

    /// Everything that is connected with the contended `link`. None of it is looked at again.
    pub(super) fn connected(&mut self, link: u32, flows: &[Flow]) -> Connected {
        let mut links = BTreeSet::from([link]);
        let mut open = vec![link];
        let mut found = BTreeSet::new();
        while let Some(link) = open.pop() {
            self.at_mut(link).is_dirty = false;
            for &place in &self.at(link).flows {
                if !found.insert(place) {
                    continue;
                }
                for &Crossing { link: other, .. } in flows[place as usize].route.iter() {
                    if self.at(other).is_contended && links.insert(other) {
                        open.push(other);
                    }
                }
            }
        }
        Connected { links: links.into_iter().collect(), flows: found.into_iter().collect() }
    }
}

impl Flow {
    /// Whether it crosses a contended link beside `of`, which it crosses, too.
    fn is_contended_beside(&self, of: &Crossed) -> bool {
        self.contended > u32::from(of.is_contended)
    }

    /// Another place in the list of `link`.
    fn stands_at(&mut self, link: u32, place: u32) {
        if let Some(side) = self.route.iter().position(|crossing| crossing.link == link) {
            self.stands[side] = place;
        }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than 2^32 flows")
}
