//! Progressive filling: the max-min fair rates of flows over links. All rates grow alike until a link is full or a flow is at its ceiling;
//! those that cannot grow stop, and the others go on. Source: Bertsekas and Gallager 1992, "Data Networks", section 6.5.2.

use super::route::Crossing;

/// What a flow asks for: the most that it can use, and the links that it crosses, by their places among the capacities.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub ceiling: f64,
    pub crossings: Vec<Crossing>,
}

/// The rate of each flow.
pub(super) fn fill(capacities: &[f64], flows: &[Demand]) -> Vec<f64> {
    let mut rates = vec![None; flows.len()];
    let mut links: Vec<Filling> = capacities.iter().map(|&left| Filling { left, growing: 0 }).collect();
    for crossing in flows.iter().flat_map(|flow| &flow.crossings) {
        links[crossing.link as usize].growing += crossing.times;
    }
    let mut growing: Vec<usize> = (0..flows.len()).collect();
    while !growing.is_empty() {
        let fairest = links.iter().filter_map(Filling::level).fold(f64::INFINITY, f64::min);
        let level = growing.iter().map(|&flow| flows[flow].ceiling).fold(fairest, f64::min);
        // What stops now is found before anything is taken away from the links.
        let is_full: Vec<bool> = links.iter().map(|link| link.level().is_some_and(|own| own <= level)).collect();
        growing.retain(|&flow| {
            let Demand { ceiling, crossings } = &flows[flow];
            let stops = *ceiling <= level || crossings.iter().any(|crossing| is_full[crossing.link as usize]);
            if stops {
                rates[flow] = Some(level);
                crossings.iter().for_each(|crossing| links[crossing.link as usize].stop(level, crossing.times));
            }
            !stops
        });
    }
    rates.into_iter().map(Option::unwrap_or_default).collect()
}

/// A link while it is filled: what the flows that stopped leave, and how often those that still grow cross it.
#[derive(Clone, Copy)]
struct Filling {
    left: f64,
    growing: u32,
}

impl Filling {
    /// The rate at which it is full.
    fn level(&self) -> Option<f64> {
        (self.growing > 0).then(|| self.left / f64::from(self.growing))
    }

    fn stop(&mut self, rate: f64, times: u32) {
        self.growing -= times;
        self.left = (self.left - rate * f64::from(times)).max(0.0);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::route::Route;
    use super::*;

    /// The same by brute force: all rates that still can grow by a small step, again and again.
    pub fn by_small_steps(capacities: &[f64], flows: &[Demand], step: f64) -> Vec<f64> {
        let mut rates = vec![0.0; flows.len()];
        let mut grows = vec![true; flows.len()];
        while grows.iter().any(|&grows| grows) {
            for flow in 0..flows.len() {
                rates[flow] += if grows[flow] { step } else { 0.0 };
            }
            let load = |link: usize| -> f64 { flows.iter().zip(&rates).map(|(flow, rate)| flow.times(link) * rate).sum() };
            let is_full: Vec<bool> = (0..capacities.len()).map(|link| load(link) + step > capacities[link]).collect();
            for (flow, demand) in flows.iter().enumerate() {
                grows[flow] &= rates[flow] < demand.ceiling && !demand.links().any(|link| is_full[link]);
            }
        }
        rates
    }

    impl Demand {
        fn links(&self) -> impl Iterator<Item = usize> + '_ {
            self.crossings.iter().map(|crossing| crossing.link as usize)
        }

        /// How often it crosses `link`.
        fn times(&self, link: usize) -> f64 {
            let crossing = self.crossings.iter().find(|crossing| crossing.link as usize == link);
            crossing.map_or(0.0, |crossing| f64::from(crossing.times))
        }
    }

    /// Flows over up to five crossings of `links` links, some of them several times.
    pub fn flows(links: u32) -> impl Strategy<Value = Vec<Demand>> {
        let flow = (1..40_u32, prop::collection::vec(0..links, 0..6))
            .prop_map(|(ceiling, crossed)| Demand { ceiling: f64::from(ceiling), crossings: Route::over(crossed).to_vec() });
        prop::collection::vec(flow, 0..12)
    }

    proptest! {
        #[test]
        fn filling_is_what_small_steps_reach(
            capacities in prop::collection::vec(1..60_u32, 5),
            flows in flows(5),
        ) {
            let capacities: Vec<f64> = capacities.into_iter().map(f64::from).collect();
            let step = 1.0 / 512.0;
            let (found, expected) = (fill(&capacities, &flows), by_small_steps(&capacities, &flows, step));
            for (found, expected) in found.iter().zip(&expected) {
                // Each stop is a step late or early for each crossing of the link.
                prop_assert!((found - expected).abs() <= 80.0 * step, "{} {} of {:?} {:?}", found, expected, capacities, flows);
            }
        }

        /// The theorem that tells max-min fair rates: every flow is at its ceiling, or crosses a full link on which none is faster.
        #[test]
        fn every_flow_has_a_bottleneck(capacities in prop::collection::vec(1..60_u32, 6), flows in flows(6)) {
            let capacities: Vec<f64> = capacities.into_iter().map(f64::from).collect();
            let rates = fill(&capacities, &flows);
            let load = |link: usize| flows.iter().zip(&rates).map(|(flow, rate)| flow.times(link) * rate).sum::<f64>();
            for (link, capacity) in capacities.iter().enumerate() {
                prop_assert!(load(link) <= capacity * (1.0 + 1e-12));
            }
            for (flow, &rate) in flows.iter().zip(&rates) {
                let is_bottleneck = |link: usize| {
                    let mut crossing = flows.iter().zip(&rates).filter(|(flow, _)| flow.times(link) > 0.0);
                    load(link) >= capacities[link] * (1.0 - 1e-12) && crossing.all(|(_, &other)| other <= rate * (1.0 + 1e-12))
                };
                prop_assert!(rate >= flow.ceiling || flow.links().any(is_bottleneck), "{:?} at {}", flow, rate);
            }
        }
    }
}
