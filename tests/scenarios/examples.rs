//! Scenarios that ship, and what scenarios mean.

use ranklab::base::hardware::{Costs, UnitCosts};
use ranklab::base::model::Part;
use ranklab::base::{AllReduce, Bytes, Dtype, Rank, Ticks};
use ranklab::program::trouble::{Trouble, TroubleKind};
use ranklab::scenario::{Collective, CollectiveKind, Scenario, Task, Training, Values};

use super::toml_files;
use crate::support::{metrics, run};

fn parse(text: &str) -> Scenario {
    Scenario::parse("text.toml", text, &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

fn training(text: &str) -> Training {
    match parse(text).task {
        Task::Train(training) => training,
        other => panic!("a training step: {other:?}"),
    }
}

fn unit(text: &str) -> UnitCosts {
    match parse(text).hardware.costs {
        Costs::Unit(unit) => unit,
        Costs::Table(table) => panic!("unit costs: {table:?}"),
    }
}

#[test]
fn every_shipped_scenario_parses() {
    let files = toml_files("scenarios");
    assert!(files.len() >= 12, "the scenarios are there");
    for (name, text) in files {
        let scenario = Scenario::parse(&name, &text, &[]).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(text.starts_with('#') && text.contains("Look at"), "{name} says what to look at");
        assert_ne!(scenario.title, parse("# nothing").title, "{name} has a title");
    }
}

#[test]
fn layers_are_cut_evenly_or_as_written() {
    let check = |text: &str, expected: &[usize]| assert_eq!(training(text).pipeline.layers_per_stage, expected, "{text}");
    check("parallel.pipeline = 3", &[3, 3, 2]);
    check("parallel.pipeline = 8", &[1; 8]);
    check("parallel.pipeline = 1", &[8]);
    check("parallel.pipeline = 3\npipeline.layers_per_stage = [1, 2, 5]", &[1, 2, 5]);
}

#[test]
fn stages_have_their_parts() {
    let training = training("parallel.pipeline = 3\npipeline.layers_per_stage = [1, 2, 5]");
    let block = Part::Block;
    assert_eq!(training.parts(0), [Part::Embedding, block(0)]);
    assert_eq!(training.parts(1), [block(1), block(2)]);
    assert_eq!(training.parts(2), [block(3), block(4), block(5), block(6), block(7), Part::Head]);
    let bytes: Bytes = (0..3).map(|stage| training.parameter_bytes(stage)).sum();
    assert_eq!(bytes, Bytes(training.model.parameter_count() as u64 * 4));
}

/// Every block of a stage with n blocks costs slot / n ticks, a whole number.
#[test]
fn shares_of_a_slot_are_whole() {
    let check = |text: &str, ticks_per_slot: u64, [forward, backward_input, backward_weight]: [u64; 3]| {
        let expected = UnitCosts {
            ticks_per_slot,
            forward: Ticks(forward),
            backward_input: Ticks(backward_input),
            backward_weight: Ticks(backward_weight),
            overlapped: Ticks(forward + backward_input + backward_weight),
        };
        assert_eq!(unit(text), expected, "{text}");
        let cut = if let Task::Train(training) = parse(text).task { training.pipeline.layers_per_stage } else { vec![1] };
        for layers in cut {
            assert!([forward, backward_input, backward_weight].iter().all(|ticks| ticks % layers as u64 == 0), "{text}");
        }
    };
    check("parallel.pipeline = 8", 1, [1, 1, 1]);
    check("parallel.pipeline = 3", 6, [6, 6, 6]);
    check("parallel.pipeline = 4\nhardware.backward_weight = 0", 2, [2, 2, 0]);
    check("parallel.pipeline = 3\nhardware.forward = 0.5", 12, [6, 12, 12]);
    check("parallel.pipeline = 8\nhardware.forward = 0.125\nhardware.backward_input = 1.5", 8, [1, 12, 8]);
    check("parallel.pipeline = 8\nhardware.forward = 0.001", 1000, [1, 1000, 1000]);
    check("collective.ranks = 4", 1, [1, 1, 1]);
}

#[test]
fn sizes_beside_a_preset_replace_its_own() {
    let model = training("[model]\npreset = 'tiny'\nhidden = 96\nheads = 4\nnorm = 'rms'").model;
    assert_eq!((model.layers, model.hidden, model.heads, model.kv_heads, model.ffn), (8, 96, 4, 4, 384));
    let model = training("[model]\npreset = 'llama-7b'\nkv_heads = 8\n[numerics]\nvalues = 'shape'").model;
    assert_eq!((model.kv_heads, model.ffn, model.fused_qkv), (8, 11_008, false));
    let model = training("[model]\nlayers = 3\nhidden = 40\nheads = 5\nsequence = 7\nvocab = 11").model;
    assert_eq!((model.layers, model.hidden, model.ffn, model.vocab, model.tied), (3, 40, 160, 11, false));
}

#[test]
fn types_follow_the_run() {
    assert_eq!(training("numerics.dtype = 'f64'").precision.parameter, Dtype::F64);
    assert_eq!(training("numerics = { dtype = 'bf16', values = 'shape' }").precision.parameter, Dtype::Bf16);
    assert_eq!(parse("model.parameter_dtype = 'bf16'").numerics.dtype, Dtype::Bf16);
    assert_eq!(parse("model.bytes_per_parameter = 'bf16-adam-8'").numerics.dtype, Dtype::Bf16);
    assert_eq!(training("numerics.dtype = 'bf16'").precision.bytes(ranklab::base::OptimizerKind::Adamw), [2, 4, 12]);
    assert_eq!(
        training("numerics = { dtype = 'bf16', values = 'shape' }").precision.bytes(ranklab::base::OptimizerKind::Adamw),
        [2, 2, 8]
    );
    let mixed = "model.parameter_dtype = 'bf16'\nnumerics.values = 'shape'";
    assert_eq!(training(mixed).precision.parameter, Dtype::Bf16);
    assert_eq!((parse(mixed).numerics.dtype, parse(mixed).numerics.values), (Dtype::F32, Values::Shape));
}

#[test]
fn mebibytes_and_gigabytes_are_what_they_say() {
    let scenario = parse("hardware.memory_gb = 1.5\ndata_parallel = { bucket_mib = 0.5, first_bucket_mib = 25 }");
    assert_eq!(scenario.hardware.memory, Some(Bytes(1_500_000_000)));
    let Task::Train(training) = scenario.task else { panic!("a training step") };
    assert_eq!((training.data_parallel.bucket, training.data_parallel.first_bucket), (Bytes(524_288), Bytes(26_214_400)));
}

/// PyTorch's sizes with DDP; with ZeRO DeepSpeed's default of 500 million elements, whatever type they have.
#[test]
fn buckets_have_the_size_of_who_names_the_strategy() {
    let buckets = |strategy: &str, more: &str| {
        let text = format!("[data_parallel]\nstrategy = \"{strategy}\"\n{more}");
        let data_parallel = training(&text).data_parallel;
        (data_parallel.bucket.0, data_parallel.first_bucket.0)
    };
    assert_eq!(buckets("ddp", ""), (25 << 20, 1 << 20));
    assert_eq!(buckets("zero-1", ""), (2_000_000_000, 2_000_000_000));
    let half = |convention: &str| format!("[model]\nbytes_per_parameter = \"{convention}\"\n[numerics]\nvalues = \"shape\"\n");
    assert_eq!(buckets("zero-2", &half("mixed-adam-16")), (1_000_000_000, 1_000_000_000));
    assert_eq!(buckets("zero-2", &half("mixed-adam-18")), (2_000_000_000, 2_000_000_000), "gradients are in f32");
    assert_eq!(buckets("zero-2", "bucket_mib = 0.5\n"), (1 << 19, 1 << 19));
    assert_eq!(buckets("zero-2", "first_bucket_mib = 0.5\n"), (2_000_000_000, 1 << 19));
}

#[test]
fn hardware_comes_from_its_table() {
    let scenario = parse("hardware = { costs = 'h100-nvlink', nodes = 2, between = { alpha = 2.5 } }\nparallel.data = 6");
    let Costs::Table(table) = &scenario.hardware.costs else { panic!("a table") };
    assert_eq!((scenario.hardware.memory, scenario.hardware.ranks_per_node), (Some(Bytes(80_000_000_000)), 3));
    assert_eq!((table.inside.alpha, table.inside.bytes_per_second.to_bits()), (Ticks(1_500), 450e9_f64.to_bits()));
    assert_eq!((table.between.alpha, table.between.bytes_per_second.to_bits()), (Ticks(2_500), 50e9_f64.to_bits()));
    assert!(table.between.source.starts_with("set by the scenario"), "a replaced number has no borrowed source");
    assert_eq!(parse("# nothing").hardware.memory, None);
}

/// Nodes are filled by the ranks of all axes, and trouble may meet any of them.
#[test]
fn all_axes_count_as_ranks() {
    let mesh = "parallel = { tensor = 4, data = 3, pipeline = 2 }\nhardware = { costs = 'h100-nvlink', nodes = 3 }\n";
    let scenario = parse(&format!("{mesh}[[trouble]]\nkind = 'slow-rank'\nrank = 23\n"));
    assert_eq!((scenario.ranks(), scenario.hardware.ranks_per_node), (24, 8));
    let problems = Scenario::parse("far.toml", &format!("{mesh}[[trouble]]\nkind = 'slow-rank'\nrank = 24\n"), &[]);
    assert!(problems.expect_err("ranks end at 23").to_string().contains("the run has 24"));
}

#[test]
fn a_collective_stands_alone() {
    let check = |text: &str, expected: Collective| assert_eq!(parse(text).task, Task::Collective(expected), "{text}");
    let ring =
        Collective { kind: CollectiveKind::AllReduce, bytes: Bytes(4096), ranks: 5, algorithm: AllReduce::Ring, chunks: 5 };
    check("collective = { bytes = 4096, ranks = 5 }", ring);
    check("collective = { bytes = 4096, ranks = 5, chunks = 5, algorithm = 'ring' }", ring);
    check(
        "collective = { bytes = 4096, ranks = 5, algorithm = 'tree' }",
        Collective { algorithm: AllReduce::Tree, chunks: 1, ..ring },
    );
    check(
        "collective = { bytes = 4096, ranks = 5, algorithm = 'star', chunks = 3 }",
        Collective { algorithm: AllReduce::Star, chunks: 3, ..ring },
    );
}

#[test]
fn trouble_is_read_in_order() {
    let first = "[[trouble]]\nkind = 'skip-op'\nop = 'all-reduce bucket0'\nrank = 1\nstep = 1\n";
    let text = format!("parallel.pipeline = 2\n{first}[[trouble]]\nkind = 'slow-rank'");
    let skip = Trouble {
        kind: TroubleKind::SkipOp,
        rank: Some(Rank(1)),
        op: "all-reduce bucket0".to_owned(),
        step: Some(1),
        factor: 1.0,
    };
    let slow = Trouble { kind: TroubleKind::SlowRank, rank: None, op: String::new(), step: None, factor: 2.0 };
    assert_eq!(parse(&text).trouble, [skip, slow]);
}

/// A run that is refused for its size has been counted before it was compiled.
#[test]
fn operations_are_counted_within_a_factor_of_two() {
    let wrong = std::cell::RefCell::new(Vec::new());
    let check = |text: &str| {
        let scenario = parse(text);
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let ratio = scenario.about_ops() / ranklab::compile::compile(&scenario).program.ops() as f64;
        if !(0.5..=2.0).contains(&ratio) {
            wrong.borrow_mut().push(format!("{ratio} of the operations of\n{text}"));
        }
    };
    let shapes = |text: &str| check(&format!("numerics = {{ values = 'shape', dtype = 'bf16' }}\n{text}"));
    shapes("batch.micro_batches = 500");
    shapes("batch.micro_batches = 50\nmodel.layers = 1");
    shapes("batch.micro_batches = 50\nrecompute.mode = 'full'");
    shapes("parallel.pipeline = 4\nbatch.micro_batches = 200");
    shapes("parallel.pipeline = 4\npipeline.schedule = 'zbv'");
    shapes("parallel.data = 100\ndata_parallel.expand = true");
    for strategy in ["zero-1", "zero-2", "zero-3", "fsdp"] {
        shapes(&format!("parallel.data = 24\ndata_parallel = {{ expand = true, strategy = '{strategy}' }}"));
        shapes(&format!(
            "parallel = {{ data = 24, fold = false }}\ndata_parallel = {{ expand = false, strategy = '{strategy}' }}"
        ));
    }
    shapes("parallel.data = 24\ndata_parallel = { expand = true, strategy = 'fsdp' }\nfsdp.shard_size = 4");
    for method in ["ring", "all-gather", "ulysses"] {
        for ranks in ["context = 2, tensor = 4", "context = 8", "context = 4, pipeline = 2, data = 2"] {
            let method = format!("context_parallel.method = '{method}'");
            shapes(&format!("parallel = {{ {ranks} }}\n{method}\ndata_parallel.expand = false\nbatch.micro_batches = 20"));
        }
    }
    // Jobs of thousands of ranks take seconds to compile.
    for (_, text) in toml_files("scenarios").into_iter().filter(|(_, text)| parse(text).about_ops() < 5e5) {
        check(&text);
    }
    assert!(wrong.borrow().is_empty(), "{}", wrong.borrow().join("\n"));
}

/// What a run of real values takes, and one device's in its type and in f64, has been counted before anything is allocated. Long sequences: a
/// whole one's scores are larger than all else.
#[test]
fn memory_of_real_values_is_counted_within_a_factor_of_two() {
    let model =
        "model = { layers = 3, hidden = 32, heads = 4, kv_heads = 2, sequence = 256, vocab = 64 }\nbatch.micro_batches = 3\n";
    let peaks = |parallel: &str| -> u64 {
        let run = run(&format!("{model}numerics.values = 'shape'\n{parallel}"));
        metrics(&run).ranks.iter().map(|rank| rank.peak_bytes.0).sum()
    };
    let alone = peaks("");
    let mut wrong = Vec::new();
    for parallel in [
        "tensor = 1",
        "tensor = 2",
        "tensor = 4, sequence_parallel",
        "data = 3",
        "pipeline = 3",
        "context = 4",
        "context = 4, all-gather",
        "context = 2, ulysses",
        "context = 4, tensor = 2",
        "context = 2, tensor = 2, data = 2, sequence_parallel",
    ] {
        let (axes, shares) = (parallel.replace(", sequence_parallel", ""), parallel.contains("sequence_parallel"));
        let method = ["all-gather", "ulysses"].into_iter().find(|method| parallel.contains(method)).unwrap_or("ring");
        let axes = axes.replace(&format!(", {method}"), "");
        let text = format!(
            "parallel = {{ {axes}, fold = false }}\ncontext_parallel.method = '{method}'\ntensor_parallel.sequence_parallel = {shares}\n"
        );
        let needed = parse(&format!("{model}{text}")).real_bytes().expect("real values").0;
        // One device's in f64 takes twice as much as in f32.
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let ratio = needed as f64 / (peaks(&text) + 3 * alone) as f64;
        if !(0.5..=2.0).contains(&ratio) {
            wrong.push(format!("{ratio} of {parallel}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
