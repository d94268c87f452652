//! Recursive halving and doubling: in log2 P steps partners at distance 1, 2, 4, ... reduce one half each of what they share, in log2 P
//! more they give it back. The largest messages go to the nearest. Source: Rabenseifner 2004, "Optimization of collective reduction
//! operations"; Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH".
//!
//! P is the largest power of two that is at most N. The N-P members beyond it fold their whole payload into a neighbour first, and get the
//! sum back last: two more messages of the whole payload.

use super::Member;
use super::steps::Steps;
use crate::base::settings::power_of_two;

/// Issues the messages of one member.
pub(super) fn issue(member: &mut Member) {
    let places = Places::new(member.ranks.len());
    let place = member.place;
    let all = 0..places.power;
    let mut steps = Steps::new(member);
    if places.is_folded(place) {
        steps.send(place + 1, all.clone());
        steps.receive(place + 1, all, Member::receive);
        return;
    }
    let folded = place.checked_sub(1).filter(|&before| places.is_folded(before));
    if let Some(folded) = folded {
        steps.receive(folded, all.clone(), Member::receive_reduce);
    }
    halve_and_double(&mut steps, &places, places.number(place));
    if let Some(folded) = folded {
        steps.send(folded, all);
    }
}

/// The member that takes part as number `own`.
fn halve_and_double(steps: &mut Steps, places: &Places, own: usize) {
    let mut shared = 0..places.power;
    let mut halvings = Vec::new();
    for distance in (0..places.power.ilog2()).map(|step| 1 << step) {
        let middle = shared.start + shared.len() / 2;
        let (lower, upper) = (shared.start..middle, middle..shared.end);
        let (kept, given) = if own & distance == 0 { (lower, upper) } else { (upper, lower) };
        let partner = places.place(own ^ distance);
        steps.both((partner, given.clone()), (partner, kept.clone()), Member::receive_reduce);
        shared = kept.clone();
        halvings.push((partner, kept, given));
    }
    for (partner, kept, given) in halvings.into_iter().rev() {
        steps.both((partner, kept), (partner, given), Member::receive);
    }
}

/// Who takes part: of the first 2 (N-P) places, every second one.
struct Places {
    /// P.
    power: usize,
    /// N-P.
    beyond: usize,
}

impl Places {
    fn new(n: usize) -> Self {
        let power = power_of_two(n);
        Self { power, beyond: n - power }
    }

    /// Whether the member at `place` folds its payload into the one behind it.
    fn is_folded(&self, place: usize) -> bool {
        place < 2 * self.beyond && place.is_multiple_of(2)
    }

    /// The number of the member at `place` among those that take part.
    fn number(&self, place: usize) -> usize {
        if place < 2 * self.beyond { place / 2 } else { place - self.beyond }
    }

    /// The place of the member with this number.
    fn place(&self, number: usize) -> usize {
        if number < self.beyond { 2 * number + 1 } else { number + self.beyond }
    }
}
