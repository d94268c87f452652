//! The state of the links: who crosses each, which are contended, and whose flows must be looked at again.

use std::collections::BTreeSet;

use super::bundle::Bundle;
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
        u128::from(self.lowest) * self.flows.len() as u128 >= u128::from(self.capacity)
    }

    /// The fair share of a flow.
    #[expect(clippy::cast_precision_loss, reason = "a bandwidth and a count below 2^53")]
    pub(super) fn share(&self) -> f64 {
        self.capacity as f64 / self.flows.len() as f64
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
        let Flow { route, ceiling, .. } = flows[place as usize];
        let contended = route.map(|link| self.at(link).is_contended);
        for (side, link) in route.into_iter().enumerate() {
            let of = self.at_mut(link);
            flows[place as usize].stands[side] = u32::try_from(of.flows.len()).expect("fewer than 2^32 flows");
            of.flows.push(place);
            of.demand += u128::from(ceiling);
            of.lowest = of.lowest.min(ceiling);
            of.entangled += usize::from(contended[1 - side]);
            of.others = match of.others {
                Others::None => Others::One(route[1 - side]),
                Others::One(other) if other == route[1 - side] => of.others,
                _ => Others::Many,
            };
        }
        route.into_iter().for_each(|link| self.changed(link, flows));
        let mut is_any = false;
        for link in route {
            let of = self.at_mut(link);
            if of.is_contended {
                of.fresh.push(place);
                is_any = true;
            }
        }
        is_any
    }

    /// A flow leaves its links.
    pub(super) fn leave(&mut self, place: u32, flows: &mut [Flow]) {
        let Flow { route, stands, ceiling, rank, send, pace } = flows[place as usize].clone();
        if let Pace::Bundled { link, finish } = pace
            && let Some(bundle) = &mut self.at_mut(link).bundle
        {
            bundle.leave(place, (rank, send), finish);
        }
        let contended = route.map(|link| self.at(link).is_contended);
        for (side, link) in route.into_iter().enumerate() {
            let of = self.at_mut(link);
            of.flows.swap_remove(stands[side] as usize);
            of.demand -= u128::from(ceiling);
            if of.flows.is_empty() {
                (of.lowest, of.others) = (u64::MAX, Others::None);
            }
            of.entangled -= usize::from(contended[1 - side]);
            if let Some(&moved) = of.flows.get(stands[side] as usize) {
                let moved = &mut flows[moved as usize];
                moved.stands[usize::from(moved.route[0] != link)] = stands[side];
            }
        }
        route.into_iter().for_each(|link| self.changed(link, flows));
    }

    /// What a link's new demand means.
    fn changed(&mut self, link: u32, flows: &[Flow]) {
        let of = self.at_mut(link);
        let was = of.is_contended;
        of.is_contended = of.demand > u128::from(of.capacity);
        let is = of.is_contended;
        if was != is {
            for place in 0..self.at(link).flows.len() {
                let other = flows[self.at(link).flows[place] as usize].other(link);
                let entangled = &mut self.at_mut(other).entangled;
                *entangled = if is { *entangled + 1 } else { *entangled - 1 };
            }
        }
        if was || is {
            self.mark(link);
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
                let other = flows[place as usize].other(link);
                found.insert(place);
                if self.at(other).is_contended && links.insert(other) {
                    open.push(other);
                }
            }
        }
        Connected { links: links.into_iter().collect(), flows: found.into_iter().collect() }
    }
}
