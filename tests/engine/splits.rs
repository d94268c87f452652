//! The feed-forward cut in other ways than Megatron's: the numbers against one device's, what each way moves, and what leaving it out does.

use ranklab::base::FeedForwardSplit;
use ranklab::base::module::Module;
use ranklab::base::split::Split;
use ranklab::lab::Verdict;
use ranklab::program::trace::Outcome;

use super::tensor::{CLOSE, Case, GPT, LLAMA};
use super::tensor_traffic::{inside_layers, text};
use crate::support::{head_of, metrics, run};

/// Gate and up, both with biases, for numbers of ranks that are no powers of two.
const GATED: &str =
    "layers = 2\nhidden = 36\nheads = 6\nsequence = 5\nvocab = 23\nffn = 42\nbias = \"all\"\nactivation = \"swiglu\"\n";

/// The settings of a split, behind others.
fn split_by(split: FeedForwardSplit, more: &str) -> &'static str {
    format!("{more}[tensor_parallel]\nsplit = \"{split}\"\n").leak()
}

#[test]
fn every_split_computes_what_one_device_does() {
    for &split in FeedForwardSplit::ALL {
        for (model, ranks) in [(GPT, [1, 2, 4, 8]), (LLAMA, [2, 3, 6, 12]), (GATED, [2, 3, 6, 1])] {
            // Two ranks do not share three heads of keys.
            let ranks = ranks.into_iter().filter(|&ranks| model != LLAMA || ranks != 2);
            for tensor in ranks {
                Case { model, tensor, more: split_by(split, "") }.check(CLOSE);
                Case { model, tensor, more: split_by(split, "[numerics]\ndtype = \"f64\"\n") }.check(CLOSE);
            }
        }
    }
}

#[test]
fn splits_stand_beside_all_else() {
    for split in [FeedForwardSplit::RowCol, FeedForwardSplit::ColCol] {
        for more in [
            "[recompute]\nmode = \"full\"\n",
            "[recompute]\nmode = \"selective\"\n",
            "[data_parallel]\nexpand = false\n",
            "[data_parallel]\nall_reduce = \"tree\"\n",
            "data = 2\n[data_parallel]\nstrategy = \"zero-1\"\n",
            "data = 2\n[data_parallel]\nstrategy = \"zero-2\"\nbucket_mib = 0.01\n",
            "data = 3\norder = \"dp-tp-cp-ep-pp\"\n[data_parallel]\nstrategy = \"fsdp\"\n",
            "pipeline = 2\n[pipeline]\nschedule = \"zb-h1\"\n",
            "pipeline = 2\ndata = 2\n[data_parallel]\nstrategy = \"fsdp\"\n",
        ] {
            for (model, tensor) in [(GPT, 2), (GATED, 3)] {
                Case { model, tensor, more: split_by(split, more) }.check(CLOSE);
            }
        }
        let sliced = GATED.replace("sequence = 5", "sequence = 8").leak();
        Case { model: sliced, tensor: 2, more: split_by(split, "context = 2\n") }.check(CLOSE);
        for extra in ["dropout = 0.2\n", "parameter_dtype = \"bf16\"\n", "tied = true\n"] {
            for more in ["", "[recompute]\nmode = \"full\"\n"] {
                Case { model: format!("{GATED}{extra}").leak(), tensor: 3, more: split_by(split, more) }.check(CLOSE);
            }
        }
    }
}

/// What a layer moves past each of t ranks and a token forward and backward, in (t - 1) / t elements: an all-reduce counts its width twice, a
/// gather and a reduce-scatter once. Attention's all-reduce of h stands in each of them; F is the width of what the first product makes.
fn moved(split: FeedForwardSplit, h: u64, first: u64) -> [u64; 2] {
    match split {
        FeedForwardSplit::ColRow => [4 * h; 2],
        FeedForwardSplit::RowCol => [3 * h + 2 * first; 2],
        FeedForwardSplit::ColCol => [3 * h + first, 4 * h + first],
    }
}

#[test]
fn each_split_has_its_price() {
    const GELU: &str = "layers = 3\nhidden = 96\nheads = 12\nsequence = 7\nvocab = 64\nffn = 132\n";
    for (model, first) in [(GELU.to_owned(), 132), (format!("{GELU}activation = \"swiglu\"\n"), 264)] {
        for &split in FeedForwardSplit::ALL {
            for tensor in [2, 3, 4, 12] {
                let parallel = format!("tensor = {tensor}\n[tensor_parallel]\nsplit = \"{split}\"\n");
                let [forward, backward, again] = inside_layers(&text(&model, &parallel));
                let expected = moved(split, 96, first).map(|each| each * 3 * 7 * 2 * (tensor - 1) / tensor);
                assert_eq!([forward.1, backward.1], expected, "{split} on {tensor}");
                assert!(again.0.is_empty());
            }
        }
    }
}

/// Message by message and with real values: what the splits differ by is what the closed forms differ by.
#[test]
fn messages_sum_up_to_the_price() {
    let sent = |split, tensor| {
        let run = Case { model: GPT, tensor, more: split_by(split, "") }.check(CLOSE);
        let parameters = run.session.program().parameters.len();
        (metrics(&run).ranks.iter().map(|rank| rank.bytes_sent.0).collect::<Vec<_>>(), parameters)
    };
    for tensor in [2, 4, 8] {
        let (plain, _) = sent(FeedForwardSplit::ColRow, tensor);
        for split in [FeedForwardSplit::RowCol, FeedForwardSplit::ColCol] {
            let price = |split| moved(split, 48, 40).iter().sum::<u64>();
            // Layers, micro-batches, sequences and tokens in f32; a split may cost less than Megatron's where ffn < hidden.
            let each = 3 * 3 * 2 * 7 * 4 * (tensor as u64 - 1) / tensor as u64;
            let (other, _) = sent(split, tensor);
            for (rank, (plain, other)) in plain.iter().zip(&other).enumerate() {
                assert_eq!(
                    other + each * price(FeedForwardSplit::ColRow),
                    plain + each * price(split),
                    "r{rank}: {split} on {tensor}"
                );
            }
        }
    }
}

#[test]
fn a_program_of_splits_is_text() {
    for &split in FeedForwardSplit::ALL {
        let run = Case { model: GATED, tensor: 3, more: split_by(split, "") }.check(CLOSE);
        let text = run.session.program().to_string();
        let back = ranklab::program::text::parse(&text).expect("a program");
        assert_eq!(*run.session.program().as_ref(), back);
    }
}

/// A meeting that is left out goes through: all shapes are right. It is found, and named.
#[track_caller]
fn check_wrong(split: FeedForwardSplit, trouble: &str, op: &str, cause: &str) {
    let more = format!("[[trouble]]\n{trouble}\n");
    let plain = Case { model: GPT, tensor: 4, more: split_by(split, "") };
    let run = run(&format!("{}{more}", plain.text()));
    assert_eq!(run.session.trace().outcome, Outcome::Completed);
    let Verdict::Wrong { first_difference, max_abs_diff } = &run.verdict else { panic!("{:?}: {split}, {trouble}", run.verdict) };
    assert_eq!(head_of(&run, first_difference.op), op, "{split}, {trouble}");
    assert!(*max_abs_diff > 1e-6);
    assert!(run.losses[2] < run.losses[0], "and the loss falls: {:?}", run.losses);
    let found = run.diagnosis.first().expect("a diagnosis");
    assert!(found.cause.contains(cause), "{}", found.cause);
}

#[test]
fn what_a_split_leaves_out_is_named() {
    use FeedForwardSplit::{ColCol, ColRow, RowCol};
    const EARLY: &str = "before the sum, and so do the others: behind the sum it counts 4 times";
    const SUM: &str = "goes on with its own part of the sum";
    const COLUMNS: &str = "goes on without what was to be gathered";
    for (split, op, cause) in [
        (ColRow, "all-reduce blocks.1.mlp.down", SUM),
        (RowCol, "all-reduce blocks.1.mlp.up", SUM),
        (RowCol, "all-gather blocks.1.mlp.down", COLUMNS),
        (RowCol, "all-gather blocks.2.norm2", COLUMNS),
        (ColCol, "all-gather blocks.1.mlp.up", COLUMNS),
        (ColCol, "all-gather blocks.1.mlp.down", COLUMNS),
        (ColCol, "reduce-scatter blocks.2.mlp.up", "goes on without its share of the sum"),
        (ColCol, "all-reduce blocks.2.norm2", SUM),
    ] {
        check_wrong(split, &format!("kind = \"skip-op\"\nop = \"{op}\""), &format!("{op} (skipped)"), cause);
    }
    // Biases start at zero: the first step is right.
    for split in [ColRow, RowCol] {
        check_wrong(split, "kind = \"bias-before-sum\"", "0F0 forward blocks.0.add2", EARLY);
    }
}

/// Which bias stands behind a sum depends on the split; as a fault, the product before the sum takes it.
#[test]
fn biases_stand_behind_sums() {
    let run = run(&Case { model: GPT, tensor: 4, more: "" }.text());
    let model = run.session.program().setting.model.clone().expect("a model");
    let check = |feed_forward, module, early, expected: &[&str]| {
        let taken = model.taken_by(0, module, Split { ranks: 4, place: 1, feed_forward }, early);
        let names: Vec<&str> = taken.iter().filter_map(|parameter| parameter.name.strip_prefix("blocks.0.mlp.")).collect();
        assert_eq!(names, expected, "{feed_forward}, {module}");
    };
    for early in [false, true] {
        check(FeedForwardSplit::ColCol, Module::Up, early, &["fc1.weight", "fc1.bias"]);
        check(FeedForwardSplit::ColCol, Module::Down, early, &["fc2.weight", "fc2.bias"]);
    }
    check(FeedForwardSplit::RowCol, Module::Up, false, &["fc1.weight"]);
    check(FeedForwardSplit::RowCol, Module::Down, false, &["fc1.bias", "fc2.weight", "fc2.bias"]);
    check(FeedForwardSplit::RowCol, Module::Up, true, &["fc1.weight", "fc1.bias"]);
    check(FeedForwardSplit::RowCol, Module::Down, true, &["fc2.weight", "fc2.bias"]);
    check(FeedForwardSplit::ColRow, Module::Down, true, &["fc2.weight", "fc2.bias"]);
    check(FeedForwardSplit::ColRow, Module::Add2, false, &["fc2.bias"]);
}
