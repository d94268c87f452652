//! The flows of random transfers against a simulation that finds all rates anew, by progressive filling, whenever one begins or ends.

#![expect(clippy::cast_precision_loss, reason = "small numbers")]

use proptest::prelude::*;

use super::fill::{Demand, fill};
use super::*;

/// A transfer to come: when its first byte may move, and what it asks for.
#[derive(Clone, Debug)]
struct Job {
    begins: u64,
    transfer: Transfer,
}

/// When each job ends: the driver's loop, without a program.
fn by_sharing(capacities: &[u64], jobs: &[Job]) -> Vec<u64> {
    let mut sharing = Sharing::new(jobs.len(), &Network::of_links(capacities));
    let (mut agenda, mut now, mut ends) = (Agenda::default(), Ticks::ZERO, vec![0; jobs.len()]);
    for (job, op) in jobs.iter().zip((0..).map(OpId)) {
        agenda.push(Ticks(job.begins), rank(op), op);
    }
    loop {
        if agenda.next() != Some(now) {
            sharing.settle(now, &mut agenda);
        }
        let Some((time, op)) = agenda.pop() else { return ends };
        match sharing.arrives(op, time) {
            Arrival::Stale => {}
            Arrival::Begins => {
                now = time;
                assert!(sharing.begin((rank(op), op), jobs[op.index()].transfer.clone(), now, &mut agenda));
            }
            Arrival::Ends => {
                now = time;
                assert_eq!(ends[op.index()], 0, "a transfer ends once");
                ends[op.index()] = time.0;
                sharing.end(op);
            }
        }
    }
}

fn rank(op: OpId) -> Rank {
    Rank(op.0 / 3)
}

/// The same without anything that is kept from one event to the next but the bytes that are left.
fn by_filling(capacities: &[u64], jobs: &[Job]) -> Vec<u64> {
    let capacities: Vec<f64> = capacities.iter().map(|&capacity| capacity as f64).collect();
    let mut left: Vec<f64> = jobs.iter().map(|job| job.transfer.bytes as f64).collect();
    let mut ends = vec![0; jobs.len()];
    let mut now = jobs.iter().map(|job| job.begins).min().unwrap_or_default();
    while ends.contains(&0) {
        let flying: Vec<usize> = (0..jobs.len()).filter(|&job| jobs[job].begins <= now && ends[job] == 0).collect();
        let demand = |&job: &usize| {
            let Transfer { ceiling, route, .. } = &jobs[job].transfer;
            Demand { ceiling: *ceiling as f64, crossings: route.to_vec() }
        };
        let rates = fill(&capacities, &flying.iter().map(demand).collect::<Vec<_>>());
        let ending = flying.iter().zip(&rates).map(|(&job, &rate)| now + lasts(left[job], rate).0);
        let beginning = jobs.iter().map(|job| job.begins).filter(|&begins| begins > now);
        let next = ending.clone().chain(beginning).min().expect("something happens");
        for ((&job, &rate), end) in flying.iter().zip(&rates).zip(ending.collect::<Vec<_>>()) {
            left[job] = (left[job] - moved(rate, Ticks(next - now))).max(0.0);
            ends[job] = if end == next { end } else { 0 };
        }
        now = next;
    }
    ends
}

/// Messages, and now and then a collective, which may cross a link several times.
fn route(links: u32) -> impl Strategy<Value = Route> {
    let message = (0..links, 1..links).prop_map(move |(a, b)| Route::message([a, (a + b) % links]));
    let collective = prop::collection::vec(0..links, 1..9).prop_map(Route::over);
    prop_oneof![3 => message, 1 => collective]
}

fn job(links: u32, capacities: Vec<u64>) -> impl Strategy<Value = Job> {
    (0..6_u64, route(links), 1..400_000_u64, 1..4_u64).prop_map(move |(begins, route, bytes, part)| {
        let free = route.iter().map(|crossing| capacities[crossing.link as usize] / u64::from(crossing.times)).min().unwrap_or(1);
        // Most flows could use all of their links, some by themselves less.
        let ceiling = if part == 1 { free / 3 } else { free };
        Job { begins: begins * 20_000, transfer: Transfer { route, ceiling, bytes } }
    })
}

fn scene() -> impl Strategy<Value = (Vec<u64>, Vec<Job>)> {
    let capacity = prop::sample::select(vec![1_u64, 1, 2, 3]).prop_map(|gigabytes| gigabytes * 1_000_000_000);
    prop::collection::vec(capacity, 2..7).prop_flat_map(|capacities| {
        let links = u32::try_from(capacities.len()).expect("few links");
        let jobs = prop::collection::vec(job(links, capacities.clone()), 0..24);
        (Just(capacities), jobs)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]
    #[test]
    fn transfers_end_as_if_all_rates_were_found_anew((capacities, jobs) in scene()) {
        let (found, expected) = (by_sharing(&capacities, &jobs), by_filling(&capacities, &jobs));
        for (found, expected) in found.iter().zip(&expected) {
            // Sums in another order may round to the next nanosecond, once for each end before.
            prop_assert!(found.abs_diff(*expected) <= 24, "{:?} {:?}", found, expected);
        }
    }
}

#[test]
fn equal_flows_share_a_link_and_all_end_together() {
    let transfer = || Transfer { route: Route::message([0, 1]), ceiling: 1_000_000_000, bytes: 1000 };
    let jobs: Vec<Job> = (0..5).map(|_| Job { begins: 7, transfer: transfer() }).collect();
    assert_eq!(by_sharing(&[1_000_000_000, 2_000_000_000], &jobs), [5007; 5]);
}

#[test]
fn what_is_left_goes_faster_when_another_ends_and_slower_when_one_begins() {
    let route = || Route::message([0, 1]);
    let job = |begins, bytes| Job { begins, transfer: Transfer { route: route(), ceiling: 3_000_000_000, bytes } };
    // 0 to 100 alone, to 300 by two, to 600 by three, to 800 by two, then alone.
    let jobs = [job(0, 900), job(100, 900), job(300, 2100)];
    let ends = by_sharing(&[3_000_000_000; 2], &jobs);
    assert_eq!(ends, by_filling(&[3_000_000_000; 2], &jobs));
    assert_eq!(ends, [600, 800, 1300]);
}

/// A collective crosses links 0 to 3, of 3 bytes a nanosecond, the last of them twice; a message meets it on link 0.
#[test]
fn a_collective_is_as_slow_as_its_slowest_link_and_leaves_the_rest_to_others() {
    let route = Route::over(vec![3, 0, 1, 2, 3]);
    let collective = Job { begins: 0, transfer: Transfer { route, ceiling: 1_500_000_000, bytes: 1500 } };
    let message = |begins, bytes| {
        let route = Route::message([0, 4]);
        Job { begins, transfer: Transfer { route, ceiling: 3_000_000_000, bytes } }
    };
    // The message has the other half of link 0, and all of it when the collective has ended.
    let jobs = [collective, message(0, 1500), message(1000, 900)];
    assert_eq!(by_sharing(&[3_000_000_000; 5], &jobs), [1000, 1000, 1300]);
}

/// Both links are contended, and the wider one is the bottleneck, since the collective crosses it six times: 9 crossings of 2 bytes a
/// nanosecond, where the other has 4 of 1.
#[test]
fn a_wide_link_that_is_crossed_often_holds_up_more_than_a_narrow_one() {
    let message = || Transfer { route: Route::message([0, 1]), ceiling: 333_333_333, bytes: 2_000 };
    let collective = Transfer { route: Route::over(vec![0, 0, 1, 0, 0, 0, 0]), ceiling: 333_333_333, bytes: 2_000 };
    let jobs: Vec<Job> =
        [message(), message(), message(), collective].map(|transfer| Job { begins: 0, transfer }).into_iter().collect();
    assert_eq!(by_sharing(&[2_000_000_000, 1_000_000_000], &jobs), [9_000; 4]);
}
