//! The ledger against the engine's own account, and against a recount from scratch.

use super::scenes;
use ranklab::base::{BufferId, Bytes, Rank, Ticks};
use ranklab::observe::ledger::state;
use ranklab::observe::replay::{Moment, replay};
use ranklab::observe::{Ledger, Run};
use ranklab::program::Role;
use ranklab::program::memory::ByRole;
use ranklab::program::trace::Outcome;
use std::collections::BTreeSet;

#[test]
fn peaks_are_those_of_the_engine() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let ledger = Ledger::new(&run);
        for (rank, account) in (0..).map(Rank).zip(&ledger.ranks) {
            let holding = session.memory().holding(rank);
            assert_eq!((account.peak().total(), account.peak().by_role), (holding.peak, holding.peak_by_role), "{name} {rank}");
            assert_eq!(account.peak().by_role.iter().copied().sum::<Bytes>(), account.peak().total());
        }
    }
}

#[test]
fn samples_are_what_the_engine_holds_after_every_event() {
    for (name, mut session) in scenes::all() {
        let ledger = Ledger::new(&Run::new(session.program(), session.trace()));
        let events = session.trace().events.len();
        // The last event is followed by ends that no event waits for.
        for position in (0..events).step_by(1 + events / 40) {
            session.seek(position).expect("shapes cannot fail");
            for (rank, account) in (0..).map(Rank).zip(&ledger.ranks) {
                let holding = session.memory().holding(rank);
                assert_eq!(account.after(position).by_role, holding.by_role, "{name} {rank} after {position}");
            }
        }
    }
}

#[test]
fn the_ledger_equals_a_recount() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let buffers = || (0..run.program.buffers.len()).map(BufferId::new);
        let mut held: BTreeSet<BufferId> =
            buffers().filter(|buffer| run.program.buffers[buffer.index()].lives_from_start()).collect();
        let recount = |held: &BTreeSet<BufferId>, rank: Rank| {
            Role::ALL.map(|role| {
                let entry = |buffer: &&BufferId| &run.program.buffers[buffer.index()];
                let of_role = held.iter().filter(|buffer| entry(buffer).rank == rank && entry(buffer).role == role);
                of_role.map(|&buffer| run.program.bytes(buffer)).sum::<Bytes>()
            })
        };
        let ranks = || (0..run.program.ranks()).map(Rank::new);
        let mut series: Vec<Vec<(Ticks, ByRole)>> = ranks().map(|rank| vec![(Ticks::ZERO, recount(&held, rank))]).collect();
        replay(&run, |moment| {
            if moment.starts {
                held.extend(run.program.op(moment.op).writes);
            } else {
                run.program.frees(moment.op).for_each(|buffer| assert!(held.remove(&buffer), "{name}: freed once"));
            }
            let rank = run.program.rank_of(moment.op);
            let now = recount(&held, rank);
            let series = &mut series[rank.index()];
            if series.last().is_some_and(|last| last.1 != now) {
                series.push((moment.time, now));
            }
        });
        for (rank, account) in ranks().zip(&Ledger::new(&run).ranks) {
            let samples: Vec<_> = account.samples.iter().map(|sample| (sample.time, sample.by_role)).collect();
            assert_eq!(samples, series[rank.index()], "{name} {rank}");
        }
    }
}

#[test]
fn every_op_that_ran_starts_once_and_ends_once_in_order_of_time() {
    for (name, session) in scenes::all() {
        let run = Run::new(session.program(), session.trace());
        let mut seen = vec![(0, 0); run.program.ops()];
        let mut time = Ticks::ZERO;
        replay(&run, |moment: Moment| {
            let times = run.times(moment.op).expect("it ran");
            assert_eq!(moment.time, if moment.starts { times.start } else { times.end }, "{name} {moment:?}");
            assert!(moment.time >= time, "{name} {moment:?}");
            time = moment.time;
            let seen = &mut seen[moment.op.index()];
            *(if moment.starts { &mut seen.0 } else { &mut seen.1 }) += 1;
        });
        let stopped = matches!(run.trace.outcome, Outcome::OutOfMemory { .. });
        for op in run.program.all() {
            let ran = i32::from(run.times(op).is_some());
            let (starts, ends) = seen[op.index()];
            assert!(starts == ran && (ends == ran || stopped && ends == 0), "{name} {op} {starts} {ends}");
        }
    }
}

#[test]
fn buffers_that_are_held_sum_to_the_account() {
    for (name, mut session) in scenes::all() {
        let last = session.trace().events.len();
        for position in (0..=last).step_by(last / 7 + 1).chain([last]) {
            session.seek(position).expect("it ran before");
            for rank in (0..session.program().ranks()).map(Rank::new) {
                let held: Bytes = session.held(rank).into_iter().map(|buffer| session.program().bytes(buffer)).sum();
                assert_eq!(held, session.memory().holding(rank).total, "{name} {rank} at {position}");
            }
        }
    }
}

#[test]
fn state_is_parameters_gradients_and_two_moments() {
    let session = scenes::pipeline("1f1b", 1, 2).record();
    let elements: u64 = session.program().parameters.iter().map(|parameter| parameter.elements() as u64).sum();
    let state = state(session.program())[0];
    assert_eq!(
        (state.parameter, state.gradient, state.optimizer),
        (Bytes(4 * elements), Bytes(4 * elements), Bytes(8 * elements))
    );
}
