//! Layers whose tensors several ranks share: the numbers against one device's, and what the ranks move.

use ranklab::base::BufferId;
use ranklab::base::model::Parameter;
use ranklab::lab::{Run, Verdict};
use ranklab::program::Name;
use ranklab::program::trace::Outcome;

use crate::support::{head_of, run, sound};

/// A model with sizes of its own, on so many tensor-parallel ranks.
pub(super) struct Case {
    pub model: &'static str,
    pub tensor: usize,
    /// What stands behind `tensor`, and other sections.
    pub more: &'static str,
}

pub(super) const GPT: &str = "layers = 3\nhidden = 48\nheads = 8\nsequence = 7\nvocab = 31\nffn = 40\nbias = \"all\"\n";
pub(super) const LLAMA: &str = "layers = 2\nhidden = 48\nheads = 12\nkv_heads = 3\nsequence = 9\nvocab = 29\nffn = 60\nbias = \"none\"\n\
    norm = \"rms\"\nactivation = \"swiglu\"\npositions = \"rotary\"\nfused_qkv = false\n";

impl Case {
    pub fn text(&self) -> String {
        let Self { model, tensor, more } = self;
        // AdamW's first step is the sign of a gradient: where that is rounding, runs in f32 part by more than rounding. In f64 none does.
        let kind = if more.contains("f64") { "kind = \"adamw\"" } else { "kind = \"sgd\"\nlr = 0.1" };
        format!(
            "[model]\n{model}[batch]\nmicro_batches = 3\nmicro_batch_size = 2\nsteps = 3\n[optimizer]\n{kind}\n[parallel]\n\
             tensor = {tensor}\n{more}"
        )
    }

    /// Runs it, and holds it against one device.
    #[track_caller]
    pub fn check(&self, expected: &[&str]) -> Run {
        sound(&self.text(), expected)
    }
}

pub(super) const CLOSE: &[&str] = &["equal", "expected-drift"];

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
    // The same with all three in one matrix.
    for tensor in [2, 4, 8] {
        Case { model: format!("{GPT}kv_heads = 2\n").leak(), tensor, more: "" }.check(CLOSE);
    }
}

/// A vocabulary that does not divide leaves zeros at the end of the last ranks' shares, or nothing else there.
#[test]
fn the_vocabulary_is_shared_out() {
    for (vocab, tied) in [(31_usize, false), (9, true), (32, true), (5, false)] {
        let model = format!("{GPT}tied = {tied}\n").replace("vocab = 31", &format!("vocab = {vocab}"));
        for tensor in [2, 8] {
            let run = Case { model: model.clone().leak(), tensor, more: "" }.check(CLOSE);
            let padding: usize = run.session.program().parameters.iter().map(Parameter::padding).sum();
            let tables = if tied { 1 } else { 2 };
            assert_eq!(padding, tables * 48 * (vocab.next_multiple_of(tensor) - vocab));
        }
    }
}

/// The same with eight tokens, of which each rank keeps its own.
fn sharing_tokens(model: &str, more: &str) -> (&'static str, &'static str) {
    let model = model.replace("sequence = 7", "sequence = 8").replace("sequence = 9", "sequence = 12");
    (model.leak(), format!("{more}[tensor_parallel]\nsequence_parallel = true\n").leak())
}

#[test]
fn tokens_are_shared_out() {
    for more in [
        "",
        "[numerics]\ndtype = \"f64\"\n",
        "[data_parallel]\nexpand = false\n",
        "[recompute]\nmode = \"full\"\n",
        "[recompute]\nmode = \"selective\"\n",
        "data = 2\n[data_parallel]\nstrategy = \"zero-1\"\n",
        "data = 2\n[data_parallel]\nstrategy = \"zero-2\"\nbucket_mib = 0.01\n",
        "data = 3\n[data_parallel]\nstrategy = \"fsdp\"\n",
        "data = 2\n[data_parallel]\nno_sync = false\n",
        "data = 2\n[data_parallel]\noverlap = false\n",
        "data = 2\n[data_parallel]\nstrategy = \"zero-3\"\noverlap = false\nexpand = true\n",
        "pipeline = 2\n[pipeline]\nschedule = \"zb-h1\"\n",
    ] {
        for (model, tensor) in [(GPT, 2), (GPT, 8), (LLAMA, 6)] {
            let (model, more) = sharing_tokens(model, more);
            if tensor < 8 || !more.contains("data = ") {
                Case { model, tensor, more }.check(CLOSE);
            }
        }
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

/// What goes wrong where ranks share tensors is found, and named by the op where it shows first.
#[track_caller]
fn check_wrong(sequence_parallel: bool, trouble: &str, op: &str) {
    let model = GPT.replace("sequence = 7", "sequence = 8");
    let more = format!("[tensor_parallel]\nsequence_parallel = {sequence_parallel}\n[[trouble]]\n{trouble}");
    let text = Case { model: model.leak(), tensor: 4, more: more.leak() }.text();
    let run = run(&text);
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
    let Verdict::Wrong { first_difference, max_abs_diff } = &run.verdict else { panic!("{:?} for\n{text}", run.verdict) };
    assert_eq!(head_of(&run, first_difference.op), op, "{text}");
    assert!(*max_abs_diff > 1e-6);
}

#[test]
fn a_fault_among_slices_is_named() {
    check_wrong(false, "kind = \"skip-op\"\nop = \"all-reduce blocks.1.mlp.down\"\n", "all-reduce blocks.1.mlp.down (skipped)");
    check_wrong(
        false,
        "kind = \"skip-op\"\nop = \"all-reduce blocks.2.norm1\"\nstep = 1\n",
        "all-reduce blocks.2.norm1 (skipped)",
    );
    check_wrong(true, "kind = \"skip-op\"\nop = \"all-reduce blocks.1 gradients\"\n", "all-reduce blocks.1 gradients (skipped)");
    check_wrong(false, "kind = \"rows-of-qkv\"\n", "0F0 forward blocks.0.add2");
    check_wrong(false, "kind = \"same-seed\"\n", "0F0 forward embedding.positions");
    // Biases start at zero: the first step is right, and each bias is added four times in the second.
    check_wrong(false, "kind = \"bias-before-sum\"\n", "0F0 forward blocks.0.add2");
}

/// With the same seed on all ranks the slices are copies: the whole matrix repeats itself.
#[test]
fn shards_of_one_seed_are_copies() {
    let weight = |trouble: &'static str| {
        let run = run(&Case { model: GPT, tensor: 4, more: trouble }.text());
        let program = run.session.program();
        let values = ranklab::engine::value::Values::real(program, None).expect("initial values");
        let is_it = |buffer: &ranklab::program::Buffer| match buffer.name {
            Name::Parameter(id) => program.parameters[id.index()].name == "blocks.0.mlp.fc1.weight",
            _ => false,
        };
        let buffers = (0..program.buffers.len()).filter(|&index| is_it(&program.buffers[index])).map(BufferId::new);
        let elements = |buffer| values.get(buffer).expect("real").elements().expect("numbers").expect("written");
        buffers.map(elements).collect::<Vec<Vec<f64>>>()
    };
    let (slices, copies) = (weight(""), weight("[[trouble]]\nkind = \"same-seed\"\n"));
    assert_eq!(slices.len(), 4);
    for rank in 1..4 {
        assert_eq!(copies[rank], slices[0]);
        assert_ne!(slices[rank], slices[0]);
    }
}

/// Masks are drawn by place in the whole tensor: every rank drops what one device drops of its heads, and of its tokens.
#[test]
fn slices_drop_what_one_device_drops() {
    for more in [
        "",
        "[numerics]\ndtype = \"f64\"\n",
        "[recompute]\nmode = \"full\"\n",
        "[recompute]\nmode = \"selective\"\n",
        "data = 2\n",
        "pipeline = 2\n",
    ] {
        for (model, tensor) in [(GPT, 2), (GPT, 8), (LLAMA, 6)] {
            let model: &str = format!("{model}dropout = 0.2\n").leak();
            Case { model, tensor, more }.check(CLOSE);
            let (model, more) = sharing_tokens(model, more);
            Case { model, tensor, more }.check(CLOSE);
        }
    }
}

/// Parts of sums are rounded to half precision where one device rounds the sum.
#[test]
fn slices_in_half_precision_drift_no_more_than_they_may() {
    for more in ["", "data = 2\n[data_parallel]\nstrategy = \"fsdp\"\n", "[recompute]\nmode = \"full\"\n"] {
        for (model, tensor) in [(GPT, 2), (GPT, 4), (LLAMA, 6)] {
            let model: &str = format!("{model}parameter_dtype = \"bf16\"\n").leak();
            Case { model, tensor, more }.check(CLOSE);
            let (model, more) = sharing_tokens(model, more);
            Case { model, tensor, more }.check(CLOSE);
        }
    }
}

/// A pipeline that is never drained stashes the weights of modules.
#[test]
fn stages_that_update_under_way_may_be_cut_up() {
    for schedule in ["pipedream", "pipedream-2bw"] {
        let more = format!("pipeline = 3\n[pipeline]\nschedule = \"{schedule}\"\n");
        Case { model: GPT, tensor: 2, more: more.leak() }.check(CLOSE);
    }
}

/// Each fault is traced to a cause that the program shows, on several numbers of ranks.
#[test]
fn faults_among_slices_have_causes() {
    for (tensor, kind, rank, cause) in [
        (2, "same-seed", 1, "2 copies of one slice"),
        (8, "same-seed", 1, "8 copies of one slice"),
        (2, "rows-of-qkv", 0, "which are no queries, keys or values of its heads"),
        (4, "rows-of-qkv", 0, "which are no queries, keys or values of its heads"),
        (2, "bias-before-sum", 0, "behind the sum it counts 2 times"),
        (4, "bias-before-sum", 0, "behind the sum it counts 4 times"),
    ] {
        let more = format!("[[trouble]]\nkind = \"{kind}\"\n");
        let text = Case { model: GPT, tensor, more: more.leak() }.text();
        let run = run(&text);
        let found = run.diagnosis.first().unwrap_or_else(|| panic!("a diagnosis of\n{text}"));
        assert_eq!((run.verdict.name(), found.rank.0), ("wrong", rank), "{}\n{text}", found.cause);
        assert!(found.cause.contains(cause), "{}\n{text}", found.cause);
    }
}

/// What a stage sends leaves at the end of its slot, however many ops its ranks cut the slot into: 3(m + p - 1) slots.
#[test]
fn slots_end_as_those_of_one_rank_do() {
    for (tensor, pipeline, micro_batches) in [(2, 2, 4), (4, 3, 5), (8, 2, 3)] {
        for recompute in ["none", "selective"] {
            let run = run(&format!(
                "[model]\nlayers = 6\nhidden = 16\nheads = 8\nsequence = 8\nvocab = 19\nffn = 24\n[batch]\nmicro_batches = {micro_batches}\n\
                 steps = 1\n[parallel]\ntensor = {tensor}\npipeline = {pipeline}\n[recompute]\nmode = \"{recompute}\"\n\
                 [numerics]\nvalues = \"shape\"\n"
            ));
            let slots = 3 * (micro_batches + pipeline - 1);
            let trace = run.session.trace();
            assert_eq!(trace.clock.show(trace.end()), format!("{slots}u"), "{tensor} {pipeline} {micro_batches} {recompute}");
        }
    }
}
