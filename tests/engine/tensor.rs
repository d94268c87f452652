//! Layers whose tensors several ranks share: the numbers against one device's, and what the ranks move.

use ranklab::lab::Run;
use ranklab::program::trace::Outcome;

use crate::support::run;

/// A model with sizes of its own, on so many tensor-parallel ranks.
struct Case {
    model: &'static str,
    tensor: usize,
    /// What stands behind `tensor`, and other sections.
    more: &'static str,
}

const GPT: &str = "layers = 3\nhidden = 48\nheads = 8\nsequence = 7\nvocab = 31\nffn = 40\nbias = \"all\"\n";
const LLAMA: &str = "layers = 2\nhidden = 48\nheads = 12\nkv_heads = 3\nsequence = 9\nvocab = 29\nffn = 60\nbias = \"none\"\n\
    norm = \"rms\"\nactivation = \"swiglu\"\npositions = \"rotary\"\nfused_qkv = false\n";

impl Case {
    fn text(&self) -> String {
        let Self { model, tensor, more } = self;
        format!(
            "[model]\n{model}[batch]\nmicro_batches = 3\nmicro_batch_size = 2\nsteps = 3\n[parallel]\ntensor = {tensor}\n{more}"
        )
    }

    /// Runs it, and holds it against one device.
    #[track_caller]
    fn check(&self, expected: &[&str]) -> Run {
        let text = self.text();
        let run = run(&text);
        assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
        assert!(expected.contains(&run.verdict.name()), "{:?} is none of {expected:?} for\n{text}", run.verdict);
        let findings = ranklab::program::check::check(run.session.program());
        assert!(findings.is_empty(), "{findings:?} for\n{text}");
        assert!(run.losses[2] < run.losses[0], "the loss falls: {:?}\n{text}", run.losses);
        run
    }
}

const CLOSE: &[&str] = &["equal", "expected-drift"];

#[test]
fn slices_compute_what_one_device_does() {
    for tensor in [1, 2, 4, 8] {
        Case { model: GPT, tensor, more: "" }.check(CLOSE);
        Case { model: GPT, tensor, more: "[numerics]\ndtype = \"f64\"\n" }.check(CLOSE);
    }
    // Fewer key and value heads than ranks: several hold the same ones.
    for tensor in [3, 6, 12] {
        Case { model: LLAMA, tensor, more: "" }.check(CLOSE);
        Case { model: LLAMA, tensor, more: "[numerics]\ndtype = \"f64\"\n" }.check(CLOSE);
    }
}

#[test]
fn collectives_may_be_one_operation_or_many() {
    for more in [
        "[data_parallel]\nexpand = false\n",
        "[data_parallel]\nall_reduce = \"tree\"\n",
        "[data_parallel]\nall_reduce = \"halving-doubling\"\n",
    ] {
        Case { model: GPT, tensor: 4, more }.check(CLOSE);
    }
}

#[test]
fn layers_are_computed_again() {
    for more in
        ["[recompute]\nmode = \"full\"\n", "[recompute]\nmode = \"selective\"\n", "[recompute]\nmode = \"full\"\nevery = 2\n"]
    {
        Case { model: GPT, tensor: 2, more }.check(CLOSE);
        Case { model: LLAMA, tensor: 6, more }.check(CLOSE);
    }
}

#[test]
fn replicas_and_stages_stand_beside_slices() {
    for strategy in ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"] {
        for order in ["tp-cp-ep-dp-pp", "dp-tp-cp-ep-pp"] {
            let more = format!("data = 3\norder = \"{order}\"\n[data_parallel]\nstrategy = \"{strategy}\"\nbucket_mib = 0.01\n");
            Case { model: GPT, tensor: 2, more: more.clone().leak() }.check(CLOSE);
            Case { model: LLAMA, tensor: 6, more: more.leak() }.check(CLOSE);
        }
    }
    for schedule in ["gpipe", "1f1b", "zb-h1"] {
        let more = format!("pipeline = 3\norder = \"pp-tp-dp-cp\"\n[pipeline]\nschedule = \"{schedule}\"\n");
        Case { model: GPT, tensor: 4, more: more.leak() }.check(CLOSE);
    }
    for (strategy, tied) in [("ddp", true), ("zero-1", false), ("fsdp", false)] {
        let more = format!("pipeline = 2\ndata = 2\n[data_parallel]\nstrategy = \"{strategy}\"\n[model]\n{GPT}tied = {tied}\n");
        let (more, model) = more.split_once("[model]\n").expect("a model");
        Case { model: model.to_owned().leak(), tensor: 2, more: more.to_owned().leak() }.check(CLOSE);
    }
}

/// The text of a program reads back as the same program.
#[test]
fn a_program_of_slices_is_text() {
    let run = Case { model: LLAMA, tensor: 6, more: "" }.check(CLOSE);
    let text = run.session.program().to_string();
    let back = ranklab::program::text::parse(&text).expect("a program");
    assert_eq!(*run.session.program().as_ref(), back);
}
