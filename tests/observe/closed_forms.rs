//! Schedules and collectives against their closed forms, for all small sizes.

use super::scenes::{self, SLOT, Scene, pipeline};
use proptest::prelude::*;
use ranklab::base::settings::AllReduce;
use ranklab::base::{Bytes, Ticks};
use ranklab::observe::{Ledger, Metrics, Run};

fn metrics(scene: &Scene) -> Metrics {
    let session = scene.record();
    of(&session)
}

fn of(session: &ranklab::engine::session::Session) -> Metrics {
    let run = Run::new(session.program(), session.trace());
    Metrics::new(&run, &Ledger::new(&run))
}

fn slots(ticks: Ticks) -> u64 {
    assert_eq!(ticks.0 % SLOT, 0, "whole slots");
    ticks.0 / SLOT
}

#[test]
fn makespans_of_the_documents() {
    let check = |schedule, p, m, backward_weight, expected| {
        let metrics = metrics(&Scene { backward_weight, ..pipeline(schedule, p, m) });
        assert_eq!(slots(metrics.makespan), expected, "{schedule} p{p} m{m} W={backward_weight}");
    };
    check("naive", 4, 8, 1, 96);
    for schedule in ["gpipe", "1f1b"] {
        check(schedule, 4, 8, 1, 33);
        check(schedule, 8, 16, 1, 69);
        check(schedule, 8, 32, 1, 117);
        check(schedule, 4, 8, 0, 22);
        check(schedule, 8, 16, 0, 46);
        check(schedule, 8, 32, 0, 78);
    }
}

#[test]
fn bubbles_of_the_documents() {
    for schedule in ["gpipe", "1f1b"] {
        let metrics = metrics(&pipeline(schedule, 8, 16));
        let percent = |share: f64| (share * 1e4).round() / 1e2;
        assert_eq!((percent(metrics.bubble_fraction()), metrics.bubble_ratio().map(percent)), (30.43, Some(43.75)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn schedules_follow_their_closed_forms(schedule in 0..3_usize, p in 1..9_usize, m in 1..13_u32, weight in 0..3_u64) {
        let schedule = ["naive", "gpipe", "1f1b"][schedule];
        let metrics = metrics(&Scene { backward_weight: weight, ..pipeline(schedule, p, m) });
        let (stages, micro_batches, slot) = (p as u64, u64::from(m), 2 + weight);
        let rounds = if schedule == "naive" { stages * micro_batches } else { stages + micro_batches - 1 };
        prop_assert_eq!(slots(metrics.makespan), rounds * slot);
        prop_assert_eq!(metrics.step_period.map(slots), Some(rounds * slot));
        for rank in &metrics.ranks {
            let stage = u64::from(rank.rank.0);
            prop_assert_eq!(slots(rank.busy), micro_batches * slot);
            prop_assert_eq!(slots(rank.idle), (rounds - micro_batches) * slot);
            prop_assert_eq!(rank.idle, rank.ramp + rank.bubble + rank.exposed_comm);
            prop_assert_eq!(slots(rank.ramp), stage * slot, "before F0 and behind the last B");
            prop_assert_eq!(rank.exposed_comm, Ticks::ZERO);
            let in_flight = match schedule {
                "naive" => 1,
                "gpipe" => micro_batches,
                _ => micro_batches.min(stages - stage),
            };
            prop_assert_eq!(u64::from(rank.peak_in_flight), in_flight);
            prop_assert_eq!(rank.peak_in_flight_to_weight, rank.peak_in_flight);
        }
    }

    #[test]
    fn a_star_root_moves_every_payload(ranks in 2..33_usize, elements in 1..50_u64) {
        let bytes = elements * 4;
        let metrics = of(&scenes::record(&scenes::collective(AllReduce::Star, ranks, bytes, scenes::unit())));
        let others = ranks as u64 - 1;
        prop_assert_eq!((metrics.ranks[0].bytes_sent, metrics.ranks[0].bytes_received), (Bytes(others * bytes), Bytes(others * bytes)));
        for rank in &metrics.ranks[1..] {
            prop_assert_eq!((rank.bytes_sent, rank.bytes_received), (Bytes(bytes), Bytes(bytes)));
        }
    }
}

#[test]
fn a_ring_sends_its_share_in_its_steps() {
    for n in 2..=64 {
        let payload = n as u64 * 3 * 4;
        let metrics = of(&scenes::record(&scenes::collective(AllReduce::Ring, n, payload, scenes::unit())));
        let rounds = 2 * (n as u64 - 1);
        for rank in &metrics.ranks {
            assert_eq!(rank.bytes_sent, Bytes(rounds * payload / n as u64), "N = {n}");
            assert_eq!(rank.bytes_received, rank.bytes_sent, "N = {n}");
            assert_eq!(rank.messages_sent, rounds, "N = {n}");
        }
        assert_eq!(metrics.collectives.iter().map(|stats| u64::from(stats.steps)).collect::<Vec<_>>(), [rounds]);
        assert_eq!(metrics.wires.len(), if n == 2 { 2 } else { n });
    }
}

#[test]
fn a_ring_takes_its_alpha_beta_time() {
    // 1 GB/s is 1 byte a nanosecond, alpha 5,000 ns.
    let n = 8;
    let payload = 8 * 1000 * 4;
    let session = scenes::record(&scenes::collective(AllReduce::Ring, n, payload, scenes::table()));
    let metrics = of(&session);
    let expected = 14 * (5_000 + payload / 8);
    assert_eq!((metrics.makespan, expected), (Ticks(expected), 126_000));
    let stats = &metrics.collectives[0];
    let run = Run::new(session.program(), session.trace());
    let close = |value: Option<f64>, expected: f64| (value.unwrap() / expected - 1.0).abs() < 1e-12;
    // 32,000 bytes in 126,000 ns, and 2(N-1)/N of that.
    assert!(close(stats.algorithm_bandwidth(run.trace.clock), 32.0 / 126.0));
    assert!(close(stats.bus_bandwidth(&run), 32.0 / 126.0 * 14.0 / 8.0));
    for rank in &metrics.ranks {
        assert_eq!((rank.exposed_comm, rank.bubble, rank.ramp), (Ticks(expected), Ticks::ZERO, Ticks::ZERO));
    }
}
