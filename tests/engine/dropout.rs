//! Dropout: whoever computes a sample, and whenever, the same elements are dropped. Masks are memory.

use ranklab::base::Bytes;
use ranklab::observe::{Ledger, Run as Observed};
use ranklab::program::{Name, Role, check};

use crate::support::{SMALL, run, scenario};

/// Three steps on this mesh equal one device, bit for bit.
fn check_equal(mesh: &str, more: &str) {
    let text = format!(
        "{SMALL}dropout = 0.3\n[batch]\nmicro_batches = 3\nmicro_batch_size = 2\nsteps = 3\n[numerics]\nexact = true\n[parallel]\n{mesh}\n{more}"
    );
    let run = run(&text);
    assert_eq!(run.verdict.name(), "equal", "{text}");
    assert_eq!(check(run.session.program()), [], "{text}");
}

#[test]
fn every_mesh_drops_what_one_device_drops() {
    check_equal("data = 1", "");
    check_equal("data = 3", "[data_parallel]\nbucket_mib = 0.01\n");
    check_equal("data = 2\npipeline = 2", "");
    check_equal("pipeline = 5", "[pipeline]\nschedule = \"gpipe\"\n");
    check_equal("pipeline = 2", "[pipeline]\nschedule = \"zb-h1\"\n");
    for strategy in ["zero-1", "zero-2", "zero-3"] {
        check_equal("data = 3", &format!("[data_parallel]\nstrategy = \"{strategy}\"\n"));
    }
}

#[test]
fn what_is_computed_again_drops_the_same_elements() {
    for mode in ["selective", "full"] {
        for mesh in ["data = 1", "pipeline = 2", "data = 2\n[data_parallel]\nstrategy = \"fsdp\""] {
            check_equal(mesh, &format!("[recompute]\nmode = \"{mode}\"\nevery = 2\n"));
        }
    }
}

/// The state of the random numbers is a buffer: forward writes it, recomputation reads it. Without it other elements are dropped, and the
/// gradients are wrong from the first layer on that is computed again.
#[test]
fn without_the_state_of_the_random_numbers_gradients_are_wrong() {
    for mode in ["selective", "full"] {
        let text = |preserve: bool| {
            format!(
                "{SMALL}dropout = 0.3\n[batch]\nmicro_batches = 2\n[recompute]\nmode = \"{mode}\"\npreserve_rng_state = {preserve}\n"
            )
        };
        let states = |run: &ranklab::lab::Run| {
            run.session.program().buffers.iter().filter(|buffer| matches!(buffer.name, Name::RandomState(..))).count()
        };
        let (kept, lost) = (run(&text(true)), run(&text(false)));
        assert_eq!((kept.verdict.name(), states(&kept)), ("equal", 5 * 2 * 2), "a state for each layer, micro-batch and step");
        assert_eq!((lost.verdict.name(), states(&lost)), ("wrong", 0), "{mode}");
        assert_eq!(kept.losses[0].to_bits(), lost.losses[0].to_bits(), "the loss of the first step was there before");
        let ranklab::lab::Verdict::Wrong { first_difference, .. } = &lost.verdict else { panic!("{:?}", lost.verdict) };
        assert_eq!(first_difference.step, 0);
    }
}

/// Masks take a byte for an element, and nothing else does with dropout: an embedding's, and three in every layer.
#[test]
fn masks_are_a_byte_for_an_element() {
    let activations = |dropout: &str| {
        let run = run(&format!("{SMALL}dropout = {dropout}\n[batch]\nmicro_batches = 1\nmicro_batch_size = 2\nsteps = 1\n"));
        let observed = Observed::new(run.session.program(), run.session.trace());
        Ledger::new(&observed).rank(ranklab::base::Rank(0)).peak().by_role[Role::Activation as usize]
    };
    let (b, t, h, n, layers) = (2, 11, 24, 3, 5);
    let masks = b * t * h + layers * (b * n * t * t + 2 * b * t * h);
    assert_eq!(activations("0.1") - activations("0"), Bytes(masks));
}

/// How the batch is cut into micro-batches is no business of dropout's: the same samples lose the same elements.
#[test]
fn micro_batches_of_any_size_drop_the_same_elements() {
    let loss = |dropout: &str, count: usize, size: usize, seed: u32| {
        let text = format!(
            "seed = {seed}\n{SMALL}dropout = {dropout}\n[batch]\nmicro_batches = {count}\nmicro_batch_size = {size}\nsteps = 1\n[numerics]\ndtype = \"f64\"\n"
        );
        run(&text).losses[0]
    };
    let whole = loss("0.5", 1, 6, 3);
    for (count, size) in [(6, 1), (3, 2), (2, 3)] {
        assert!((loss("0.5", count, size, 3) - whole).abs() < 1e-12);
    }
    assert!((loss("0", 1, 6, 3) - whole).abs() > 1e-6, "and some are dropped");
}

#[test]
fn shapes_with_dropout_compile() {
    let text =
        format!("{SMALL}dropout = 0.1\n[parallel]\ndata = 2\n[numerics]\nvalues = \"shape\"\n[recompute]\nmode = \"full\"\n");
    let run = ranklab::lab::Lab::new().run(&scenario(&text)).expect("a run of shapes");
    assert_eq!(check(run.session.program()), []);
}
