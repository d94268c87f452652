//! Sessions: the same run twice, forward and back, and the stops on the way.

use proptest::prelude::*;
use ranklab::base::{BufferId, OpId, Rank, Ticks};
use ranklab::engine::session::{Session, Stop};
use ranklab::lab::Run;

use crate::support::{SMALL, run};

/// Everything that can be seen of a session's position: op states, holdings, and the bits of all values.
pub fn look(session: &Session) -> (Vec<String>, Vec<u64>) {
    let program = session.program();
    let states = (0..program.ops()).map(|op| format!("{:?}", session.state(OpId::new(op))));
    let held = (0..program.ranks()).map(|rank| format!("{:?}", session.memory().holding(Rank::new(rank))));
    let values = (0..program.buffers.len()).filter_map(|buffer| session.value(BufferId::new(buffer)));
    let bits = values.flat_map(|value| value.elements().expect("readable").unwrap_or_default()).map(f64::to_bits);
    (states.chain(held).collect(), bits.collect())
}

fn pipeline() -> Run {
    run(&format!("{SMALL}[batch]\nmicro_batches = 3\nsteps = 2\n[parallel]\ndata = 2\npipeline = 2\n"))
}

#[test]
fn the_same_run_twice_has_the_same_events_and_bits() {
    let (first, second) = (pipeline(), pipeline());
    assert_eq!(first.session.trace(), second.session.trace());
    assert_eq!(look(&first.session), look(&second.session));
    assert_eq!(first.losses, second.losses);
}

#[test]
fn stepping_back_to_the_start_gives_the_start_and_forward_again_the_end() {
    let mut session = pipeline().session;
    let end = session.position();
    let at_end = look(&session);
    session.seek(0).expect("the start");
    let at_start = look(&session);
    assert!(at_start.0.iter().take(session.program().ops()).all(|state| state == "Waiting"));
    session.seek(end).expect("the end");
    assert_eq!(look(&session), at_end);
    session.seek(0).expect("the start");
    assert_eq!(look(&session), at_start);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_position_looks_the_same_from_both_sides(places in prop::collection::vec(0_usize..400, 1..5)) {
        let (mut walker, mut jumper) = (pipeline().session, pipeline().session);
        walker.seek(0).expect("the start");
        for place in places {
            jumper.seek(place).expect("a position");
            walker.seek(0).expect("the start");
            while walker.position() < jumper.position() {
                let next = walker.position() + 1;
                walker.seek(next).expect("a step");
            }
            prop_assert_eq!(look(&walker), look(&jumper));
        }
    }
}

#[test]
fn runs_stop_where_they_are_told() {
    let mut session = pipeline().session;
    session.seek(0).expect("the start");
    let program = session.program().clone();
    let last = |session: &Session| session.trace().events[session.position() - 1];

    let head = Stop::Head(Some(Rank(2)), "1F2".to_owned());
    assert!(session.run_until(&[head]).expect("a stop"));
    let event = last(&session);
    assert_eq!(program.rank_of(event.op), Rank(2));
    assert_eq!(program.op(event.op).origin.slot.map(|slot| slot.to_string()), Some("1F2".to_owned()));

    let time = Ticks(event.time.0 + 1);
    assert!(session.run_until(&[Stop::Time(time)]).expect("a stop"));
    assert!(last(&session).time >= time);

    assert!(session.run_back_until(&[Stop::MicroBatch(0)]).expect("a stop"));
    assert_eq!(program.op(last(&session).op).origin.slot.map(|slot| slot.micro_batch), Some(0));

    assert!(!session.run_until(&[Stop::Head(None, "no such op".to_owned())]).expect("the end"));
    assert_eq!(session.position(), session.trace().events.len());
    assert!(!session.run_back_until(&[Stop::Head(None, "no such op".to_owned())]).expect("the start"));
    assert_eq!(session.position(), 0);
}
