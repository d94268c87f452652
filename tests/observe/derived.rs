//! What the panels draw from: flows, contributions, lives of buffers, gaps and formulas, each against a recount.

use super::scenes::{self, Scene, pipeline};
use proptest::prelude::*;
use ranklab::base::settings::AllReduce;
use ranklab::base::{BufferId, Bytes, Rank, Ticks};
use ranklab::engine::session::{Numbers, Session};
use ranklab::observe::flow::{Carried, flows};
use ranklab::observe::formula::{self, Quantity, find};
use ranklab::observe::gaps::longest;
use ranklab::observe::held::Lives;
use ranklab::observe::spread::{Shape, chunks};
use ranklab::observe::state::{Progress, State};
use ranklab::observe::{Lanes, Ledger, Metrics, Run};
use ranklab::program::memory::ByRole;
use ranklab::program::trace::Outcome;
use ranklab::program::{Name, OpKind, Role};
use std::sync::Arc;

#[test]
fn a_wire_has_carried_what_has_left() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let (progress, flows) = (Progress::new(&run), flows(&run));
        let events = run.trace.events.len();
        for event in (0..=events).step_by(1 + events / 30) {
            let at = progress.at(&run, event);
            for flow in &flows {
                let (mut expected, mut moved) = (Carried::default(), Vec::new());
                let channel = |op| run.program.kind(op).channel().map(|channel| run.program.channels[channel.index()]);
                let of_wire = |op: &_| channel(*op).is_some_and(|channel| (channel.from, channel.to) == (flow.from, flow.to));
                let sends = run.program.all().filter(|&op| matches!(run.program.kind(op), OpKind::Send(_)));
                for send in sends.filter(of_wire).filter(|&send| at.state(send) >= State::Running) {
                    let times = run.times(send).expect("it runs");
                    expected.messages += 1;
                    expected.bytes += run.message_bytes(send);
                    moved.push((times.start, times.end.min(at.time().max(times.start))));
                    if at.state(send) == State::Running {
                        expected.moving.push(send);
                    }
                }
                expected.busy = covered(&moved);
                let mut found = flow.at(&at);
                found.moving.sort();
                expected.moving.sort();
                assert_eq!(found, expected, "{name} event {event} {}->{}", flow.from, flow.to);
            }
        }
    }
}

/// How much time the stretches cover together: between two bounds of any of them, none or one at least.
fn covered(stretches: &[(Ticks, Ticks)]) -> Ticks {
    let mut bounds: Vec<Ticks> = stretches.iter().flat_map(|&(start, end)| [start, end]).collect();
    bounds.sort_unstable();
    let is_covered = |from: Ticks, to: Ticks| stretches.iter().any(|&(start, end)| start <= from && to <= end);
    bounds.windows(2).filter(|pair| is_covered(pair[0], pair[1])).map(|pair| pair[1] - pair[0]).sum()
}

#[test]
fn chunks_hold_the_sums_that_are_computed() {
    for algorithm in AllReduce::ALL {
        for ranks in [2, 3, 5, 8] {
            let scenario = scenes::collective(*algorithm, ranks, 4 * 3 * ranks as u64, scenes::table());
            let program = Arc::new(ranklab::compile::compile(&scenario).program);
            let mut session =
                Session::record(program, &scenario.hardware, &[], Numbers::Real, &mut |_, _| {}).expect("kernels run");
            let (program, trace) = (session.program().clone(), session.trace().clone());
            let run = Run::new(&program, &trace);
            let all = chunks(&run);
            let [found] = all.as_slice() else { panic!("one collective") };
            let is_ring = matches!(found.shape, Shape::Ring(_));
            // Inside one node two levels are one; two ranks have but one way.
            let expected = matches!(algorithm, AllReduce::Ring | AllReduce::Hierarchical);
            assert!(is_ring == expected || ranks == 2, "{algorithm} {ranks} {:?}", found.shape);
            let is_tree = matches!(algorithm, AllReduce::Tree | AllReduce::Star);
            assert!(!is_tree || matches!(found.shape, Shape::Tree(_)), "a star is a flat tree");
            session.seek(0).expect("kernels run");
            let own = contents(&session, &program.buffers);
            for event in 0..trace.events.len() {
                session.seek(event).expect("kernels run");
                let now = contents(&session, &program.buffers);
                for (index, buffer) in program.buffers.iter().enumerate() {
                    let Name::Chunk(chunk) = buffer.name else { continue };
                    let held = found.held(buffer.rank.index(), chunk as usize, event).expect("a small group");
                    assert!(!held.twice);
                    let parts = program
                        .buffers
                        .iter()
                        .zip(&own)
                        .filter(|(other, _)| other.name == buffer.name && held.of & (1 << other.rank.0) != 0);
                    let mut sum = vec![0.0; now[index].len()];
                    parts.for_each(|(_, values)| sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value));
                    assert_eq!(now[index], sum, "{algorithm} {ranks} event {event} {} {}", buffer.rank, buffer.name);
                }
            }
            for (place, chunk) in (0..ranks).flat_map(|place| (0..found.chunks).map(move |chunk| (place, chunk))) {
                assert_eq!(found.held(place, chunk, usize::MAX).map(ranklab::observe::spread::Held::count), Some(ranks));
            }
        }
    }
}

/// Every buffer's elements.
fn contents(session: &Session, buffers: &[ranklab::program::op::Buffer]) -> Vec<Vec<f64>> {
    let ids = (0..buffers.len()).map(BufferId::new);
    ids.map(|buffer| session.value(buffer).expect("real values").elements().expect("on the CPU").unwrap_or_default()).collect()
}

#[test]
fn lives_sum_to_the_ledger() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let ledger = Ledger::new(&run);
        let lives = Lives::new(&run, &ledger);
        let sum = |held: &mut dyn Iterator<Item = BufferId>| {
            let mut by_role: ByRole = [Bytes::ZERO; Role::ALL.len()];
            held.for_each(|buffer| by_role[run.program.buffers[buffer.index()].role as usize] += run.program.bytes(buffer));
            by_role
        };
        let events = run.trace.events.len();
        for rank in (0..run.program.ranks()).map(Rank::new) {
            for event in (0..=events).step_by(1 + events / 40) {
                let held = sum(&mut lives.at(rank, event).map(|life| life.buffer));
                assert_eq!(held, ledger.rank(rank).after(event).by_role, "{name} {rank} event {event}");
            }
            let held = sum(&mut lives.at_peak(rank).map(|life| life.buffer));
            assert_eq!(held, ledger.rank(rank).peak().by_role, "{name} {rank} at its peak");
        }
    }
}

#[test]
fn gaps_fill_the_idle_time() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        if run.trace.outcome != Outcome::Completed {
            continue;
        }
        let metrics = Metrics::new(&run, &Ledger::new(&run));
        let gaps = longest(&run, &Lanes::new(&run), &metrics, usize::MAX);
        assert!(gaps.is_sorted_by_key(|gap| std::cmp::Reverse(gap.end - gap.start)), "{name}");
        for rank in metrics.ranks.iter().filter(|rank| rank.busy > Ticks::ZERO) {
            let sum: Ticks = gaps.iter().filter(|gap| gap.rank == rank.rank).map(|gap| gap.end - gap.start).sum();
            assert_eq!(sum, rank.idle, "{name} {}", rank.rank);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn formulas_of_pipelines_are_what_runs(schedule in 0..3_usize, p in 1..7_usize, m in 1..9_u32, backward_weight in 0..3_u64) {
        let schedule = ["naive", "gpipe", "1f1b"][schedule];
        let scene = Scene { backward_weight, ..pipeline(schedule, p, m) };
        let (formulas, session) = (formula::of(&scene.scenario()), scene.record());
        let run = Run::new(session.program(), session.trace());
        let metrics = Metrics::new(&run, &Ledger::new(&run));
        let value = |quantity| find(&formulas, quantity).expect("a closed form").value;
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        prop_assert!(close(value(Quantity::Makespan), run.trace.clock.in_unit(metrics.makespan)));
        prop_assert!(close(value(Quantity::BubbleFraction), metrics.bubble_fraction()));
        prop_assert!(close(value(Quantity::BubbleRatio), metrics.bubble_ratio().expect("it computes")));
    }

    #[test]
    fn formulas_of_all_reduces_are_what_runs(star in any::<bool>(), ranks in 2..9_usize, elements in 1..900_u64) {
        let algorithm = if star { AllReduce::Star } else { AllReduce::Ring };
        let scenario = scenes::collective(algorithm, ranks, elements * 4 * ranks as u64, scenes::table());
        let session = scenes::record(&scenario);
        let run = Run::new(session.program(), session.trace());
        let expected = find(&formula::of(&scenario), Quantity::Makespan).expect("a closed form").value;
        let steps = 2.0 * f64::from(u32::try_from(ranks).expect("few ranks"));
        // Each message's time is rounded up to whole nanoseconds.
        let found = run.trace.clock.in_unit(run.makespan());
        prop_assert!((0.0..=steps).contains(&(found - expected + 1e-6)), "{} {}", found, expected);
    }
}
