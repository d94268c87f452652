//! Going on: the same bits as without a break, on the same ranks or on others.

use ranklab::base::Rank;
use ranklab::base::settings::{Dtype, Kept};
use ranklab::checkpoint::{self, Checkpoint};
use ranklab::engine::state::{Piece, pieces};
use ranklab::engine::value::Values;
use ranklab::lab::Run;
use ranklab::scenario::Scenario;

use super::folder::Memory;
use super::{finish, go_on, state, stored, text};
use crate::support::scenario;

/// Losses of the last steps, bit by bit.
fn bits(losses: &[f64]) -> Vec<u64> {
    losses.iter().map(|loss| loss.to_bits()).collect()
}

/// Four steps, without a break and with one behind each step: the same losses and the same state.
fn check(strategy: &str, mesh: (usize, usize), micro_batches: u32, settings: &str) {
    let scenario_of = |steps| scenario(&text(strategy, mesh, micro_batches, steps, settings));
    let (whole, end) = finish(&scenario_of(3));
    for steps in [1, 2] {
        let (_, half) = finish(&scenario_of(steps));
        let rest = go_on(&half, &scenario_of(3));
        let name = format!("{strategy} on {mesh:?}, {settings}, a break behind {steps}");
        assert_eq!(bits(&rest.losses), bits(&whole.losses[steps as usize..]), "{name}");
        assert_same(&state(&rest), &end, &name);
        assert!(["equal", "expected-drift"].contains(&rest.verdict.name()), "{name}: {:?}", rest.verdict);
    }
}

fn assert_same(one: &Checkpoint, other: &Checkpoint, name: &str) {
    assert_eq!(one.manifest, other.manifest, "{name}");
    for (rank, (one, other)) in one.ranks.iter().zip(&other.ranks).enumerate() {
        assert!(one == other, "{name}: the state of rank {rank} differs");
        assert!(one.iter().any(|piece| piece.bytes.iter().any(|&byte| byte != 0)), "{name}: rank {rank} has numbers");
    }
}

#[test]
fn every_strategy_goes_on_bit_for_bit() {
    for strategy in ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"] {
        for data in [2, 3, 4, 8] {
            check(strategy, (data, 1), 1 + u32::from(data == 3), "");
        }
    }
    check("fsdp", (4, 1), 2, "[fsdp]\nshard_size = 2\n");
    check("fsdp", (4, 1), 1, "[fsdp]\nshard_size = 1\n");
    check("fsdp", (3, 1), 1, "[fsdp]\nreshard_after_forward = false\nwrap = \"block\"\n");
    check("zero-3", (3, 1), 1, "[numerics]\ndtype = \"f64\"\n");
    check("zero-2", (3, 1), 1, "[optimizer]\nkind = \"sgd\"\nlr = 0.1\n");
}

#[test]
fn every_pipeline_goes_on_bit_for_bit() {
    for (strategy, schedule, chunks) in [
        ("ddp", "1f1b", 1),
        ("zero-1", "gpipe", 1),
        ("fsdp", "1f1b", 1),
        ("ddp", "interleaved", 2),
        ("zero-1", "zb-h1", 1),
        ("fsdp", "zbv", 2),
    ] {
        check(strategy, (2, 2), 4, &format!("[pipeline]\nschedule = \"{schedule}\"\nchunks = {chunks}\n"));
    }
    check("ddp", (1, 3), 3, "");
    check("ddp", (1, 2), 4, "[pipeline]\nschedule = \"dualpipe\"\n");
}

/// A training whose layers and sequences ranks share: `parallel` are the sizes along the other axes.
fn shared(model: &str, parallel: &str, strategy: &str, mesh: (usize, usize), steps: u32, settings: &str) -> Scenario {
    let text = text(strategy, mesh, 2, steps, settings);
    let text = text.replacen("[parallel]\n", &format!("[parallel]\n{parallel}\n"), 1);
    scenario(&text.replacen(crate::support::SMALL, model, 1))
}

/// Six heads, of which two of keys, and a vocabulary that no number of ranks divides; slices of twelve tokens.
const GROUPED: &str = "[model]\nlayers = 3\nhidden = 24\nheads = 6\nkv_heads = 2\nsequence = 12\nvocab = 31\nffn = 36\n";
/// The same with one matrix of queries, keys and values, and biases.
const FUSED: &str =
    "[model]\nlayers = 2\nhidden = 24\nheads = 6\nsequence = 12\nvocab = 31\nffn = 36\nbias = \"all\"\ntied = true\n";

#[test]
fn slices_of_tensors_and_of_sequences_go_on_bit_for_bit() {
    for (model, parallel, strategy, mesh, settings) in [
        (FUSED, "tensor = 2", "ddp", (1, 1), ""),
        (GROUPED, "tensor = 2", "ddp", (1, 1), "[tensor_parallel]\nsequence_parallel = true\n"),
        (GROUPED, "tensor = 6", "zero-1", (2, 1), ""),
        (FUSED, "tensor = 2", "zero-3", (3, 1), ""),
        (FUSED, "tensor = 3", "fsdp", (4, 1), "[fsdp]\nshard_size = 2\n"),
        (GROUPED, "tensor = 2\norder = \"pp-dp-tp-cp\"", "fsdp", (2, 2), "[pipeline]\nschedule = \"1f1b\"\n"),
        (FUSED, "tensor = 3", "fsdp", (2, 1), "[tensor_parallel]\nsplit = \"row-col\"\n"),
        (GROUPED, "tensor = 2", "zero-1", (2, 1), "[tensor_parallel]\nsplit = \"col-col\"\n"),
        (FUSED, "context = 2", "ddp", (1, 1), ""),
        (GROUPED, "context = 3", "zero-2", (2, 1), ""),
        (GROUPED, "tensor = 2\ncontext = 2", "fsdp", (2, 1), ""),
        (FUSED, "tensor = 3\ncontext = 2", "ddp", (1, 2), "[context_parallel]\nmethod = \"all-gather\"\n"),
    ] {
        let name = format!("{strategy} on {mesh:?}, {parallel}, {settings}");
        let of = |steps| shared(model, parallel, strategy, mesh, steps, settings);
        let (whole, end) = finish(&of(3));
        let rest = go_on(&finish(&of(1)).1, &of(3));
        assert_eq!(bits(&rest.losses), bits(&whole.losses[1..]), "{name}");
        assert_same(&state(&rest), &end, &name);
        assert!(["equal", "expected-drift"].contains(&rest.verdict.name()), "{name}: {:?}", rest.verdict);
    }
}

/// Whoever goes on has what the others left, to the bit, and computes what one device that goes on computes.
#[test]
fn other_slices_go_on() {
    for model in [GROUPED, FUSED] {
        let relay = [
            ("tensor = 2", "ddp", (1, 1), ""),
            ("tensor = 6", "zero-1", (1, 1), "[tensor_parallel]\nsplit = \"row-col\"\n"),
            ("", "zero-3", (3, 1), ""),
            ("tensor = 2", "ddp", (2, 1), "[tensor_parallel]\nsplit = \"col-col\"\n"),
            ("tensor = 6\ncontext = 2", "zero-1", (1, 1), ""),
            ("context = 2", "fsdp", (2, 1), ""),
            ("tensor = 6", "zero-1", (1, 1), "[tensor_parallel]\nsequence_parallel = true\n"),
            ("tensor = 2\norder = \"dp-pp-tp-cp\"", "ddp", (2, 2), ""),
            ("", "ddp", (1, 1), ""),
        ];
        let mut saved: Option<Checkpoint> = None;
        for (steps, (parallel, strategy, mesh, settings)) in (1..).zip(relay) {
            let scenario = shared(model, parallel, strategy, mesh, steps, settings);
            let name = format!("{strategy} on {mesh:?}, {parallel}");
            let run: Run = saved.as_ref().map_or_else(|| finish(&scenario).0, |saved| go_on(saved, &scenario));
            assert!(["equal", "expected-drift"].contains(&run.verdict.name()), "{name}: {:?}", run.verdict);
            if let Some(saved) = &saved {
                let start = checkpoint::start("test", &stored(saved), &scenario).expect("a start");
                let left = Checkpoint { manifest: saved.manifest.clone(), ranks: untouched(&start) };
                assert!(left.whole("test").expect("a whole model") == saved.whole("test").expect("a whole model"), "{name}");
            }
            saved = Some(state(&run));
        }
    }
}

/// What the ranks of a run have of the state before its first op.
fn untouched(start: &checkpoint::Start) -> Vec<Vec<Piece>> {
    let program = ranklab::compile::compile(&start.scenario).program;
    let values = Values::real(&program, Some(&start.state)).expect("values");
    (0..program.ranks()).map(|rank| pieces(&program, &values, Rank::new(rank)).expect("pieces")).collect()
}

/// Columns are named as such, and rows by their elements, which follow each other.
#[test]
fn slices_are_saved_under_names_that_tell_them() {
    let (_, state) = finish(&shared(FUSED, "tensor = 2", "ddp", (1, 1), 1, ""));
    let mut folder = Memory::default();
    let manifest = checkpoint::save(&mut folder, &state).expect("memory is large");
    assert_eq!((manifest.data, manifest.tensor), (1, 2));
    let file = &folder.files[&format!("rank1-{}.safetensors", manifest.ranks[1].digest)];
    let tensors = safetensors::SafeTensors::deserialize(file).expect("a file");
    for (name, shape) in [
        ("model.blocks.1.attn.proj.weight[:,12..24]", vec![24, 12]),
        ("exp_avg.blocks.0.mlp.fc2.weight[:,18..36]", vec![24, 18]),
        ("model.blocks.0.mlp.fc1.weight[432..864]", vec![432]),
        ("model.blocks.0.attn.qkv.weight[288..576]", vec![288]),
        ("model.blocks.0.norm1.weight", vec![24]),
        // Sixteen tokens and fifteen: the place of a thirty-second is not saved.
        ("model.embedding.tokens.weight[384..744]", vec![360]),
    ] {
        assert_eq!(tensors.tensor(name).unwrap_or_else(|_| panic!("{name} in {:?}", tensors.names())).shape(), shape, "{name}");
    }
}

#[test]
fn other_models_go_on_bit_for_bit() {
    let model = "[model]\nlayers = 3\nhidden = 20\nheads = 5\nsequence = 7\nvocab = 23\n";
    for more in ["tied = true\n", "kv_heads = 1\nnorm = \"rms\"\nactivation = \"swiglu\"\nbias = \"none\"\n"] {
        let text = |steps| {
            let rest = format!(
                "[batch]\nmicro_batches = 2\nsteps = {steps}\n[parallel]\ndata = 3\n[data_parallel]\nstrategy = \"fsdp\"\n"
            );
            scenario(&format!("{model}{more}{rest}"))
        };
        let (_, end) = finish(&text(3));
        let rest = go_on(&finish(&text(2)).1, &text(3));
        assert_same(&state(&rest), &end, more);
    }
}

/// Parameters in bf16 are rounded copies of what the optimizer updates: only with the copies in f32 a run goes on as if nothing was.
#[test]
fn half_precision_goes_on_bit_for_bit_with_its_copies_in_full_precision() {
    for (strategy, mesh, settings) in [
        ("ddp", (2, 1), ""),
        ("zero-1", (3, 1), ""),
        ("zero-2", (3, 1), ""),
        ("zero-3", (3, 1), ""),
        ("fsdp", (4, 1), "[fsdp]\nshard_size = 2\n"),
        ("fsdp", (2, 2), "[pipeline]\nschedule = \"1f1b\"\n"),
        ("zero-3", (3, 1), "[optimizer]\nkind = \"sgd\"\nlr = 0.1\n"),
    ] {
        let half = |steps| {
            let text = text(strategy, mesh, 2, steps, settings);
            scenario(&text.replacen("[batch]", "parameter_dtype = \"bf16\"\n[batch]", 1))
        };
        let name = format!("{strategy} on {mesh:?}, {settings}");
        let (whole, end) = finish(&half(4));
        let (_, middle) = finish(&half(2));
        let types = |kept| middle.ranks.iter().flatten().filter(move |piece| piece.kept == kept).map(|piece| piece.dtype);
        assert!(types(Kept::Parameter).all(|dtype| dtype == Dtype::Bf16), "{name}");
        assert!(types(Kept::Master).count() > 0 && types(Kept::Master).all(|dtype| dtype == Dtype::F32), "{name}");
        let rest = go_on(&middle, &half(4));
        assert_eq!(bits(&rest.losses), bits(&whole.losses[2..]), "{name}");
        assert_same(&state(&rest), &end, &name);
        // What the copies have beyond the parameters counts.
        let mut rounded = middle.clone();
        for piece in rounded.ranks.iter_mut().flatten().filter(|piece| piece.kept == Kept::Master) {
            piece.bytes.chunks_exact_mut(4).for_each(|word| word[..2].fill(0));
        }
        assert!(
            rounded != middle && state(&go_on(&rounded, &half(4))) != end,
            "{name}: low bits of the copies are lost, and nothing shows"
        );
    }
}

/// Twelve micro-batches a step, whoever takes them; exact sums do not depend on who does.
fn part(strategy: &str, (data, pipeline): (usize, usize), steps: u32, settings: &str) -> ranklab::scenario::Scenario {
    let micro_batches = 12 / u32::try_from(data).expect("a few");
    scenario(&text(strategy, (data, pipeline), micro_batches, steps, &format!("{settings}[numerics]\nexact = true\n")))
}

#[test]
fn other_ranks_strategies_and_cuts_go_on_to_the_same_bits() {
    let (one, end) = finish(&part("ddp", (1, 1), 9, ""));
    let relay = [
        ("zero-3", (3, 1), ""),
        ("ddp", (2, 1), ""),
        ("fsdp", (2, 2), "[pipeline]\nschedule = \"1f1b\"\n"),
        ("zero-1", (4, 1), ""),
        ("fsdp", (4, 1), "[fsdp]\nshard_size = 2\n"),
        ("ddp", (1, 2), "[pipeline]\nschedule = \"dualpipe\"\n"),
        ("zero-2", (6, 1), ""),
        ("ddp", (1, 3), "[pipeline]\nlayers_per_stage = [1, 3, 1]\n"),
        ("fsdp", (2, 2), "[pipeline]\nschedule = \"interleaved\"\nchunks = 2\n"),
    ];
    let mut saved: Option<Checkpoint> = None;
    for (steps, (strategy, mesh, settings)) in (1..).zip(relay) {
        let scenario = part(strategy, mesh, steps, settings);
        let run: Run = saved.map_or_else(|| finish(&scenario).0, |saved| go_on(&saved, &scenario));
        assert_eq!(run.verdict.name(), "equal", "{strategy} on {mesh:?}");
        assert_eq!(bits(&run.losses), bits(&one.losses[steps as usize - 1..steps as usize]), "{strategy} on {mesh:?}");
        saved = Some(state(&run));
    }
    let whole = |state: &Checkpoint| state.whole("test").expect("a whole model");
    assert!(whole(&saved.expect("nine runs")) == whole(&end), "nine owners end where one device does");
}

#[test]
fn another_batch_goes_on_with_the_data_that_nobody_has_seen() {
    let (_, half) = finish(&scenario(&text("zero-3", (3, 1), 2, 2, "")));
    assert_eq!((half.manifest.step, half.manifest.samples), (2, 12));
    let check = |size: u32, micro_batches, expected: Result<u32, &str>| {
        let text =
            text("ddp", (2, 1), micro_batches, 3, "").replace("steps = 3", &format!("steps = 3\nmicro_batch_size = {size}"));
        let scenario = scenario(&text);
        match (checkpoint::start("test", &half, &scenario), expected) {
            (Ok(start), Ok(first)) => {
                let ranklab::scenario::Task::Train(training) = start.scenario.task else { panic!("a training") };
                assert_eq!((training.batch.before.steps, training.batch.before.micro_batches), (2, first));
            }
            (Err(problems), Err(text)) => assert!(problems.to_string().contains(text), "{problems}"),
            (found, expected) => panic!("{expected:?}: {found:?}"),
        }
    };
    check(1, 5, Ok(12));
    check(4, 1, Ok(3));
    check(5, 1, Err("no whole micro-batches of 5"));
}

#[test]
fn trouble_meets_the_step_that_it_names() {
    let rule = "[[trouble]]\nkind = \"skip-op\"\nop = \"all-reduce bucket0\"\nstep = 2\n";
    let (whole, _) = finish(&scenario(&text("ddp", (2, 1), 1, 3, rule)));
    assert_eq!(whole.verdict.name(), "wrong");
    let rest = go_on(&finish(&scenario(&text("ddp", (2, 1), 1, 2, ""))).1, &scenario(&text("ddp", (2, 1), 1, 3, rule)));
    assert_eq!((rest.verdict.name(), bits(&rest.losses)), ("wrong", bits(&whole.losses[2..])));
}

#[test]
fn replicas_that_have_drifted_apart_are_no_model() {
    let rule = "[[trouble]]\nkind = \"skip-op\"\nop = \"all-reduce bucket0\"\n";
    let (_, drifted) = finish(&scenario(&text("ddp", (3, 1), 1, 1, rule)));
    let problems = stored(&drifted).whole("dir").expect_err("three models");
    let text = problems.to_string();
    assert!(text.contains("r0 and r1 both have") && text.contains("not the same bits") && text.contains("--> dir"), "{text}");
}

/// Experts are saved by those who hold them: any other number of ranks that share them out goes on from there, on a grid to the same bits.
#[test]
fn experts_go_on_bit_for_bit_on_any_ranks() {
    let model =
        "[model]\nlayers = 2\nhidden = 20\nheads = 5\nsequence = 7\nvocab = 23\nffn = 12\n[experts]\ncount = 12\nskew = 0.5\n";
    let text = |steps: u32, strategy: &str, data: u32, expert: u32, micro_batches: u32| {
        let parallel = format!(
            "[parallel]\ndata = {data}\nexpert = {expert}\n[data_parallel]\nstrategy = \"{strategy}\"\nbucket_mib = 0.01\n"
        );
        let rest = format!("[batch]\nmicro_batches = {micro_batches}\nsteps = {steps}\n[numerics]\nexact = true\n{parallel}");
        scenario(&format!("{model}{rest}"))
    };
    for strategy in ["ddp", "zero-1", "zero-3"] {
        let (whole, end) = finish(&text(3, strategy, 4, 2, 3));
        let (_, half) = finish(&text(1, strategy, 4, 2, 3));
        assert_same(&state(&go_on(&half, &text(3, strategy, 4, 2, 3))), &end, strategy);
        for (data, expert, micro_batches) in [(4, 4, 3), (3, 3, 4), (6, 2, 2), (1, 1, 12), (2, 1, 6)] {
            let rest = go_on(&half, &text(3, strategy, data, expert, micro_batches));
            assert_eq!(bits(&rest.losses), bits(&whole.losses[1..]), "{strategy} on {data} ranks, {expert}");
            assert_eq!(rest.verdict.name(), "equal");
        }
    }
    // A model without experts is another one.
    let (_, half) = finish(&text(1, "ddp", 2, 2, 1));
    let dense = "[model]\nlayers = 2\nhidden = 20\nheads = 5\nsequence = 7\nvocab = 23\nffn = 12\n[batch]\nsteps = 2\n[numerics]\nexact = true\n";
    let problems = checkpoint::start("test", &half, &scenario(dense)).expect_err("other parameters");
    assert!(problems.render(false, 200).contains("model.experts"), "{}", problems.render(false, 200));
}

/// Who has which tokens is no part of the model: what ranks with slices of sequences saved, any others go on from, and the other way round.
#[test]
fn experts_go_on_among_slices_of_sequences() {
    let text = |steps: u32, strategy: &str, parallel: &str| {
        let model = "[model]\nlayers = 2\nhidden = 20\nheads = 4\nsequence = 12\nvocab = 23\nffn = 12\n[experts]\ncount = 12\nskew = 0.5\n";
        let rest = format!("[data_parallel]\nstrategy = \"{strategy}\"\nbucket_mib = 0.01\n");
        scenario(&format!("{model}[batch]\nmicro_batches = 2\nsteps = {steps}\n[parallel]\n{parallel}\n{rest}"))
    };
    let meshes = [
        ("ddp", "context = 2\nexpert = 2\ndata = 2"),
        ("zero-1", "context = 2\nexpert = 4\ndata = 2"),
        ("zero-3", "context = 3\nexpert = 2\ndata = 2\norder = \"tp-ep-dp-cp-pp\""),
        ("fsdp", "context = 2\nexpert = 2\ndata = 2\ntensor = 2"),
        ("ddp", "expert = 2\ndata = 2"),
    ];
    for (place, &(strategy, mesh)) in meshes.iter().enumerate() {
        let (whole, end) = finish(&text(3, strategy, mesh));
        let (_, half) = finish(&text(1, strategy, mesh));
        let rest = go_on(&half, &text(3, strategy, mesh));
        assert_eq!(bits(&rest.losses), bits(&whole.losses[1..]), "{strategy} on {mesh}");
        assert_same(&state(&rest), &end, mesh);
        let (strategy, mesh) = meshes[(place + 1) % meshes.len()];
        let rest = go_on(&half, &text(3, strategy, mesh));
        assert!(["equal", "expected-drift"].contains(&rest.verdict.name()), "{mesh}: {:?}", rest.verdict);
    }
}
