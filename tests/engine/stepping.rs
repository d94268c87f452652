//! Sessions: the same run twice, forward and back.

use proptest::prelude::*;
use ranklab::base::{BufferId, OpId, Rank};
use ranklab::engine::session::Session;
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

/// The first result that is no number: its rank, its head, its step.
fn first_nan(text: &str) -> Option<(u32, String, u32)> {
    let run = run(text);
    let program = run.session.program();
    run.first_nan.map(|op| {
        let (view, head) = (program.op(op), ranklab::program::head::head(program, op));
        (view.rank.0, head.to_string(), view.origin.step)
    })
}

#[test]
fn the_first_result_that_is_no_number_is_named() {
    // Such a decay multiplies every weight by -999 in each step.
    let text = |lr: u32| {
        format!(
            "{SMALL}[batch]\nmicro_batches = 2\nsteps = 12\n[parallel]\npipeline = 2\n[optimizer]\nlr = {lr}\nweight_decay = 1.0\n"
        )
    };
    assert_eq!(first_nan(&text(0)), None);
    let (rank, head, step) = first_nan(&text(1000)).expect("such weights overflow");
    assert!(step > 0, "the first step starts from numbers: {head} of r{rank} in step {step}");
    // Told again: stand behind every event, and look at all that the ranks hold.
    let mut session = run(&text(1000)).session;
    let holds_nan = |session: &Session| {
        let mut ranks = (0..2).flat_map(|rank| session.held(Rank(rank)));
        ranks.any(|buffer| {
            let elements = session.value(buffer).and_then(|value| value.elements().expect("readable"));
            elements.is_some_and(|elements| elements.iter().any(|element| element.is_nan()))
        })
    };
    let events = session.trace().events.len();
    let first = (0..=events).find(|&event| {
        session.seek(event).expect("a position");
        holds_nan(&session)
    });
    let event = first.expect("it is somewhere") - 1;
    let before = &session.trace().events[..event];
    let named = |op: OpId| {
        ranklab::program::head::head(session.program(), op).to_string() == head && session.program().op(op).origin.step == step
    };
    assert!(before.iter().any(|event| named(event.op)), "{head} in step {step} had started when something was no number first");
}
