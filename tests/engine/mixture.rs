//! Experts inside a training step: its numbers against one device's on every mesh, and what the ranks move, hold and compute.

use proptest::prelude::*;
use ranklab::base::model::Parameter;
use ranklab::base::{Bytes, Rank};
use ranklab::lab::{Lab, check};
use ranklab::observe::formula::{self, Quantity};
use ranklab::observe::mixture::Mixture;
use ranklab::program::trace::Outcome;
use ranklab::program::{CollectiveKind, Name, OpKind, text};
use ranklab::scenario::Scenario;

use crate::support::{metrics, run, scenario, sound};

const GPT: &str = "layers = 4\nhidden = 24\nheads = 6\nsequence = 7\nvocab = 31\nffn = 20\nbias = \"all\"\n";
const LLAMA: &str = "layers = 4\nhidden = 24\nheads = 6\nkv_heads = 2\nsequence = 9\nvocab = 29\nffn = 12\nbias = \"none\"\n\
    norm = \"rms\"\nactivation = \"swiglu\"\npositions = \"rotary\"\nfused_qkv = false\n";
const CLOSE: &[&str] = &["equal", "expected-drift"];

/// A step of `model` with `mesh` behind `[parallel]`, `experts` behind `[experts]`, and `rest`.
fn step(model: &str, mesh: &str, experts: &str, rest: &str) -> String {
    format!(
        "seed = 3\n[model]\n{model}[batch]\nmicro_batches = 4\nmicro_batch_size = 2\nsteps = 3\n[optimizer]\nkind = \"sgd\"\nlr = 0.1\n\
         [parallel]\n{mesh}\n[experts]\n{experts}\n{rest}"
    )
}

#[test]
fn ranks_that_share_out_experts_equal_one_device() {
    for (data, expert) in [(1, 1), (2, 1), (2, 2), (3, 3), (4, 2), (5, 5), (8, 8)] {
        let count = expert * if expert < 4 { 4 } else { 1 };
        let mesh = format!("data = {data}\nexpert = {expert}");
        let ways = [(GPT, "top_k = 3\ncapacity_factor = 1.0\nskew = 0.7"), (GPT, "top_k = 2\nskew = 1.0"), (LLAMA, "top_k = 1")];
        // The largest take as long as all others.
        for (model, experts) in ways.into_iter().take(if data < 8 { 3 } else { 1 }) {
            let text = step(model, &mesh, &format!("count = {count}\n{experts}"), "");
            sound(&text, if data == 1 { &["equal"] } else { CLOSE });
        }
    }
}

/// Rows of one micro-batch are computed by themselves wherever they come from: on a grid nothing depends on who computes them.
#[test]
fn on_a_grid_it_is_equal_bit_for_bit() {
    for (data, expert) in [(2, 2), (3, 3), (4, 2), (4, 4)] {
        for (model, experts) in [(GPT, "count = 12\nskew = 0.5"), (LLAMA, "count = 12\ncapacity_factor = 1.25\nskew = 1.0")] {
            let text = step(model, &format!("data = {data}\nexpert = {expert}"), experts, "[numerics]\nexact = true\n");
            sound(&text, &["equal"]);
        }
    }
}

#[test]
fn every_strategy_shares_out_what_it_may() {
    let meshes = [(2, 2), (4, 2), (3, 3), (6, 2)];
    let ways = ["bucket_mib = 0.01\n", "expand = false\n", "no_sync = false\nbucket_mib = 0.01\n", "overlap = false\n"];
    for (number, strategy) in ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"].into_iter().enumerate() {
        for (place, way) in ways.into_iter().enumerate() {
            let (data, expert) = meshes[(place + number) % meshes.len()];
            let rest = format!("[data_parallel]\nstrategy = \"{strategy}\"\n{way}");
            let model = GPT.replace("layers = 4", "layers = 2");
            sound(&step(&model, &format!("data = {data}\nexpert = {expert}"), "count = 6\nskew = 0.5", &rest), CLOSE);
        }
    }
    let hybrid = "[data_parallel]\nstrategy = \"fsdp\"\n[fsdp]\nshard_size = 4\n";
    sound(&step(LLAMA, "data = 8\nexpert = 2", "count = 6", hybrid), CLOSE);
}

#[test]
fn stages_and_slices_stand_beside_experts() {
    for schedule in ["gpipe", "1f1b", "zb-h1", "interleaved", "zbv", "dualpipev", "dualpipe", "looped-bfs", "zb1p"] {
        let rest = format!("[pipeline]\nschedule = \"{schedule}\"\n");
        sound(&step(GPT, "pipeline = 2\ndata = 2\nexpert = 2", "count = 6\nskew = 0.5", &rest), CLOSE);
    }
    let mut strategies = ["ddp", "zero-1", "fsdp"].into_iter().cycle();
    for (mesh, model) in [
        ("tensor = 2\ndata = 2\nexpert = 2", GPT),
        ("tensor = 6\ndata = 2\nexpert = 2", LLAMA),
        ("tensor = 2", GPT),
        ("tensor = 2\ndata = 4\nexpert = 2", LLAMA),
        ("tensor = 2\ndata = 2\nexpert = 2\norder = \"ep-dp-tp-cp-pp\"", GPT),
        ("tensor = 2\ndata = 2\nexpert = 2\npipeline = 2\norder = \"pp-tp-dp-cp\"", GPT),
    ] {
        let strategy = strategies.next().expect("without end");
        let rest = format!("[data_parallel]\nstrategy = \"{strategy}\"\nbucket_mib = 0.01\n");
        sound(&step(model, mesh, "count = 4\nskew = 0.5", &rest), CLOSE);
    }
}

/// Each rank routes its own stretch of the tokens: one device routes the same groups.
#[test]
fn tokens_are_shared_out_beside_experts() {
    let (gpt, llama) = (GPT.replace("sequence = 7", "sequence = 6"), LLAMA.replace("sequence = 9", "sequence = 12"));
    let mut ways = [
        "[data_parallel]\nexpand = false\n",
        "[data_parallel]\nstrategy = \"zero-1\"\n",
        "[data_parallel]\nstrategy = \"fsdp\"\n[recompute]\nmode = \"full\"\n",
        "[numerics]\ndtype = \"f64\"\n",
    ]
    .into_iter()
    .cycle();
    for (mesh, model) in [
        ("tensor = 2\ndata = 2\nexpert = 2", &gpt),
        ("tensor = 2", &gpt),
        ("tensor = 6\ndata = 2\nexpert = 2", &llama),
        ("tensor = 2\ndata = 4\nexpert = 2", &llama),
        ("tensor = 2\ndata = 2\nexpert = 2\npipeline = 2", &gpt),
    ] {
        let rest = ways.next().expect("without end");
        let rest = format!("[tensor_parallel]\nsequence_parallel = true\n{rest}");
        sound(&step(model, mesh, "count = 4\nskew = 0.8\ncapacity_factor = 1.5", &rest), CLOSE);
    }
}

/// Each rank routes the tokens of its slice of every sequence, wherever they stand in it, and experts stand on whoever sees other data: on
/// replicas, on those with slices, and on both.
#[test]
fn slices_of_sequences_stand_beside_experts() {
    let (gpt, llama) = (GPT.replace("sequence = 7", "sequence = 12"), LLAMA.replace("sequence = 9", "sequence = 24"));
    let ring = |placement: &str| format!("[context_parallel]\nplacement = \"{placement}\"\n");
    let by = |method: &str| format!("[context_parallel]\nmethod = \"{method}\"\n");
    let strategy = |name: &str| format!("[data_parallel]\nstrategy = \"{name}\"\nbucket_mib = 0.01\n");
    for (mesh, model, rest) in [
        ("context = 2", &gpt, ring("contiguous")),
        ("context = 2\nexpert = 2", &gpt, ring("zigzag")),
        ("context = 3\nexpert = 3", &gpt, ring("striped")),
        ("context = 4\nexpert = 4", &llama, ring("zigzag")),
        ("context = 4\nexpert = 2", &llama, by("all-gather") + &strategy("zero-1")),
        ("data = 2\ncontext = 2\nexpert = 2", &gpt, by("ulysses") + &strategy("zero-2")),
        ("data = 2\ncontext = 2\nexpert = 4", &llama, strategy("zero-3")),
        ("data = 2\ncontext = 2\nexpert = 2\norder = \"tp-ep-dp-cp-pp\"", &gpt, strategy("zero-3")),
        ("data = 3\ncontext = 2\nexpert = 6", &gpt, strategy("ddp") + "expand = false\n"),
        ("data = 2\ncontext = 4\nexpert = 4", &llama, strategy("fsdp") + "[fsdp]\nshard_size = 4\n"),
        ("context = 2\npipeline = 2\nexpert = 2", &gpt, "[pipeline]\nschedule = \"zb-h1\"\n".to_owned()),
        ("context = 2\npipeline = 2\nexpert = 2", &gpt, "[pipeline]\nschedule = \"dualpipe\"\n".to_owned()),
        ("context = 2\ntensor = 2\nexpert = 2", &gpt, "[recompute]\nmode = \"full\"\n".to_owned()),
        ("context = 2\ntensor = 2\nexpert = 2", &llama, "[tensor_parallel]\nsequence_parallel = true\n".to_owned()),
        ("data = 2\ncontext = 3\ntensor = 2\nexpert = 3\norder = \"cp-tp-ep-dp-pp\"", &gpt, ring("striped")),
        ("context = 4\nexpert = 4", &llama, "[numerics]\ndtype = \"f64\"\n".to_owned()),
        ("context = 2\nexpert = 2", &gpt, "[numerics]\ndtype = \"bf16\"\n".to_owned()),
    ] {
        sound(&step(model, mesh, "count = 12\nskew = 0.8\ncapacity_factor = 1.5", &rest), CLOSE);
    }
}

#[test]
fn what_is_recomputed_dropped_and_rounded_is_what_one_device_has() {
    for rest in [
        "[recompute]\nmode = \"full\"\n",
        "[recompute]\nmode = \"selective\"\n",
        "[recompute]\nmode = \"full\"\nevery = 2\n",
        "[numerics]\ndtype = \"f64\"\n",
        "[numerics]\ndtype = \"bf16\"\n",
    ] {
        for mesh in ["", "data = 3\nexpert = 3", "data = 2\ntensor = 2\nexpert = 2"] {
            sound(&step(GPT, mesh, "count = 6\nskew = 0.5", rest), CLOSE);
        }
    }
    let dropout = LLAMA.to_owned() + "dropout = 0.1\n";
    for rest in ["", "[recompute]\nmode = \"full\"\n"] {
        let run = run(&step(&dropout, "data = 2\nexpert = 2", "count = 4", rest));
        assert!(CLOSE.contains(&run.verdict.name()), "{:?}", run.verdict);
    }
}

/// Powers of two along dp, pp, cp, tp and ep, and the strategy on them, that may be legal.
fn any_mesh() -> impl Strategy<Value = ([u32; 5], usize)> {
    ((0..4_u32, 0..3_u32, 0..3_u32, 0..3_u32, 0..4_u32).prop_map(|(d, p, c, t, e)| [d, p, c, t, e]), 0..5_usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// No mesh of up to 8 ranks hangs, and all have the numbers of one device.
    #[test]
    fn any_legal_mesh_equals_one_device((powers, strategy) in any_mesh(), skew in 0.0..1.5f64, seed in 0..99u32) {
        let [data, pipeline, context, tensor, expert] = powers.map(|power| 1_usize << power);
        prop_assume!(data * pipeline * context * tensor <= 8 && (data * context) % expert == 0);
        let strategy = ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"][strategy];
        prop_assume!(pipeline == 1 || !["zero-2", "zero-3"].contains(&strategy));
        let mesh = format!(
            "data = {data}\npipeline = {pipeline}\ncontext = {context}\ntensor = {tensor}\nexpert = {expert}"
        );
        let rest = format!("[data_parallel]\nstrategy = \"{strategy}\"\nbucket_mib = 0.02\n");
        let model = GPT.replace("heads = 6", "heads = 4").replace("sequence = 7", "sequence = 8");
        let text = step(&model, &mesh, &format!("count = 8\nskew = {skew:.2}"), &rest).replace("seed = 3", &format!("seed = {seed}"));
        let run = run(&text);
        prop_assert_eq!(&run.session.trace().outcome, &Outcome::Completed, "{}", text);
        prop_assert!(CLOSE.contains(&run.verdict.name()), "{:?} for\n{}", run.verdict, text);
        prop_assert_eq!(ranklab::program::check(run.session.program()), []);
    }
}

/// Replicas, slices of their sequences, ranks that share out experts, and the mesh.
fn meshes(all: &[(u32, u32, u32)]) -> impl Iterator<Item = ([u32; 3], String)> {
    all.iter().map(|&(data, context, expert)| {
        ([data, context, expert], format!("data = {data}\ncontext = {context}\nexpert = {expert}"))
    })
}

/// Four all-to-alls for each layer and micro-batch, of all rows that are not the rank's own.
#[test]
fn ranks_send_tokens_to_experts_and_back() {
    let model = GPT.replace("sequence = 7", "sequence = 12");
    for ([data, context, expert], mesh) in
        meshes(&[(2, 1, 2), (3, 1, 3), (4, 1, 2), (4, 1, 4), (1, 2, 2), (1, 4, 4), (2, 2, 2), (2, 2, 4), (1, 6, 3)])
    {
        let count = if expert == 4 { 8 } else { 6 };
        let rest = "[data_parallel]\nexpand = false\n[context_parallel]\nplacement = \"striped\"\n";
        let run = sound(&step(&model, &mesh, &format!("count = {count}\nskew = 1.0"), rest), CLOSE);
        let (program, found) = (run.session.program(), Mixture::of(run.session.program(), &[]).expect("experts"));
        assert_eq!((found.ranks, found.dropped), (expert as usize, 0));
        assert_eq!(found.taken.iter().sum::<u64>(), 2 * 24, "two choices of twenty-four tokens");
        let exchanges = |rank: usize| {
            let of_step = program.order[rank].iter().filter(|&&op| program.op(op).origin.step == 0);
            let is_exchange = |op: &&ranklab::base::OpId| match program.kind(**op) {
                OpKind::Collective(id) => program.collectives[id.index()].kind == CollectiveKind::AllToAll,
                _ => false,
            };
            of_step.copied().filter(|op| is_exchange(&op)).collect::<Vec<_>>()
        };
        let each = count / expert as usize;
        for rank in 0..(data * context) as usize {
            let ops = exchanges(rank);
            assert_eq!(ops.len(), 4 * 4 * 4, "layers, micro-batches, ways");
            // Neighbours share out the experts: replicas, or slices before them. Every slice has as many tokens for each expert.
            let place = rank % expert as usize;
            let own = found.taken[place * each..(place + 1) * each].iter().sum::<u64>() / u64::from(context);
            let [out, back] = [48 / u64::from(context) - own, own * u64::from(expert - 1)].map(|rows| Bytes(rows * 24 * 4));
            let moved: Vec<_> =
                ops.iter().map(|&op| ranklab::program::exchange::Exchange::of(program, op).expect("an exchange")).collect();
            assert_eq!(moved.iter().map(|part| part.sent).sum::<Bytes>(), Bytes((out.0 + back.0) * 32), "{mesh}, r{rank}");
            assert!(
                moved.iter().all(|part| [part.sent, part.received] == [out, back] || [part.sent, part.received] == [back, out])
            );
        }
    }
}

/// A rank holds all of the model but other ranks' experts, and their gradients meet those alone who have the same.
#[test]
fn experts_are_held_once_for_each_group() {
    let model = GPT.replace("sequence = 7", "sequence = 24");
    for ([data, context, expert], mesh) in
        meshes(&[(2, 1, 2), (4, 1, 2), (6, 1, 3), (1, 4, 4), (1, 4, 2), (2, 2, 2), (2, 3, 6), (2, 3, 3)])
    {
        let ranks = data * context;
        let run = sound(&step(&model, &mesh, "count = 12", "[data_parallel]\nexpand = false\n"), CLOSE);
        let program = run.session.program();
        let held = |rank: u32, of: fn(&Parameter) -> bool| -> usize {
            let own = program.buffers.iter().filter(|buffer| buffer.rank == Rank(rank)).filter_map(|buffer| match buffer.name {
                Name::Parameter(id) => Some(&program.parameters[id.index()]),
                _ => None,
            });
            own.filter(|parameter| of(parameter)).map(Parameter::elements).sum()
        };
        let all: usize = program.parameters.iter().filter(|one| one.expert().is_some()).map(Parameter::elements).sum();
        assert_eq!(all, 4 * 12 * 2 * 24 * 20, "layers, experts, matrices");
        let dense: usize = program.parameters.iter().filter(|one| one.expert().is_none()).map(Parameter::elements).sum();
        for rank in 0..ranks {
            assert_eq!(held(rank, |one| one.expert().is_some()), all / expert as usize);
            assert_eq!(held(rank, |one| one.expert().is_none()), dense);
        }
        let groups: Vec<(&str, usize)> = program.groups.iter().map(|group| (group.name.as_str(), group.ranks.len())).collect();
        let of_experts: Vec<_> = groups.iter().filter(|(name, _)| name.starts_with("edp")).collect();
        assert_eq!(of_experts.len(), if ranks == expert { 0 } else { expert as usize }, "{groups:?}");
        assert!(of_experts.iter().all(|(_, same)| *same == (ranks / expert) as usize), "{groups:?}");
        assert!(groups.contains(&("dp0", ranks as usize)), "{groups:?}");
    }
}

/// A small number.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}

/// What a rank holds and moves, by formula: of dense layers as ever, of experts what those share out who have the same.
#[test]
fn what_ranks_hold_and_move_has_a_closed_form() {
    for strategy in ["ddp", "zero-1", "zero-2", "zero-3"] {
        for ([data, context, _], mesh) in
            meshes(&[(2, 1, 1), (2, 1, 2), (4, 1, 2), (3, 1, 3), (8, 1, 2), (1, 2, 2), (2, 2, 2), (1, 4, 2), (2, 2, 4)])
        {
            let rest = format!("[data_parallel]\nstrategy = \"{strategy}\"\nexpand = false\n[numerics]\nvalues = \"shape\"\n");
            let mesh = format!("{mesh}\nfold = false");
            let model = GPT.replace("layers = 4", "layers = 2").replace("vocab = 31", "vocab = 32");
            let model = model.replace("sequence = 7", "sequence = 8");
            let text = step(&model, &mesh, "count = 12", &rest).replace("sgd\"", "adamw\"");
            let ranks = data * context;
            let run = run(&text);
            let formulas = formula::of(&run.scenario);
            let of = |quantity| formula::find(&formulas, quantity).expect("a formula").value;
            let rank = &metrics(&run).ranks[ranks as usize - 1];
            let state = rank.state.parameter + rank.state.gradient + rank.state.optimizer;
            let padding = number(state.0) - of(Quantity::State);
            assert!((0.0..=400.0 * f64::from(ranks)).contains(&padding), "{strategy}, {mesh}: {state} is {padding} off");
            let moved = rank.traffic_psi;
            assert!((moved - of(Quantity::Traffic)).abs() < 1e-9, "{strategy}, {mesh}: {moved}, {}", of(Quantity::Traffic));
        }
    }
}

#[test]
fn uneven_experts_set_the_pace_and_capacity_evens_it_out() {
    let time = |experts: &str| {
        let run = run(&step(GPT, "data = 4\nexpert = 4", &format!("count = 8\n{experts}"), ""));
        let clock = run.session.trace().clock;
        (clock.in_unit(metrics(&run).makespan), Mixture::of(run.session.program(), &[]).expect("experts"))
    };
    let (even, mixture) = time("loads = [7, 7, 7, 7, 7, 7, 7, 7]");
    assert!(mixture.rank_share.iter().all(|share| (0.85..=1.15).contains(share)), "{mixture:?}");
    let (uneven, mixture) = time("loads = [10, 4, 4, 4, 2, 2, 1, 1]");
    assert_eq!(mixture.chosen, [10, 4, 4, 4, 2, 2, 1, 1]);
    assert_eq!(mixture.rank_share, [2.0, 8.0 / 7.0, 4.0 / 7.0, 2.0 / 7.0]);
    assert_eq!(mixture.busiest(), Some((0, 2.0)));
    assert!(uneven > even, "{uneven}, {even}");
    let (capped, mixture) = time("loads = [10, 4, 4, 4, 2, 2, 1, 1]\ncapacity_factor = 1.0");
    assert_eq!((mixture.taken, mixture.dropped), (vec![4, 4, 4, 4, 2, 2, 1, 1], 6));
    assert!(capped < uneven, "{capped}, {uneven}");
}

#[test]
fn the_auxiliary_loss_is_reported_and_evens_out_probabilities() {
    let of = |auxiliary: f64| {
        let text = step(GPT, "data = 2\nexpert = 2", &format!("count = 4\nskew = 1.0\nauxiliary = {auxiliary}"), "");
        run(&text).given().auxiliary
    };
    let (weak, strong) = (of(0.01), of(1.0));
    assert_eq!(weak.len(), 3);
    // Even probabilities give exactly the factor in each of four layers, whatever the loads.
    assert!((weak[0] - 0.04).abs() < 0.002 && (strong[0] - 4.0).abs() < 0.2, "{weak:?}, {strong:?}");
    assert!(strong[2] < strong[0], "{strong:?}");
    assert_eq!(of(0.0), [0.0; 3]);
}

/// What ranks find for their own tokens is as a mean what one finds for all, where all groups have equal loads.
#[test]
fn the_auxiliary_loss_does_not_know_who_has_which_tokens() {
    let model = GPT.replace("layers = 4", "layers = 1").replace("sequence = 7", "sequence = 12");
    let of = |mesh: &str| run(&step(&model, mesh, "count = 4\nauxiliary = 0.3", "")).given().auxiliary[0];
    let one = of("data = 2");
    for mesh in ["data = 2\ncontext = 2", "data = 2\ncontext = 3\nexpert = 2", "data = 2\ncontext = 3\ntensor = 2\nexpert = 2"] {
        let found = of(mesh);
        assert!((found - one).abs() < 1e-6, "{found} is not {one} on {mesh}");
    }
}

#[test]
fn a_program_with_experts_is_text() {
    let model = LLAMA.replace("sequence = 9", "sequence = 12");
    for mesh in ["data = 2\nexpert = 2", "data = 2\ntensor = 2\nexpert = 2", "context = 3\nexpert = 3"] {
        let scenario = scenario(&step(&model, mesh, "count = 6\nskew = 0.3\ncapacity_factor = 1.5", ""));
        assert!(check(&scenario).expect("a program").findings.is_empty());
        let program = ranklab::compile::compile(&scenario).program;
        assert_eq!(text::parse(&program.to_string()).expect("its own text"), program);
    }
}

#[test]
fn shapes_have_the_times_of_numbers() {
    let text = step(GPT, "data = 4\nexpert = 2", "count = 6\nskew = 1.0", "[hardware]\ncosts = \"h100-nvlink\"\n");
    let [real, shape] = ["real", "shape"].map(|values| {
        let run = Lab::new().run(&scenario(&(text.clone() + &format!("[numerics]\nvalues = \"{values}\"\n")))).expect("a run");
        metrics(&run).makespan
    });
    assert_eq!(real, shape);
}

/// What is refused, the rule, and what would do.
#[test]
fn what_cannot_be_is_refused_with_what_could() {
    let refused = |mesh: &str, experts: &str, rest: &str| {
        let text = step(GPT, mesh, experts, rest);
        let problems = Scenario::parse("test.toml", &text, &[]).expect_err(&text);
        problems.render(false, 200)
    };
    for (mesh, experts, rest, wanted) in [
        ("data = 4\nexpert = 3", "count = 6", "", ["does not divide 4 ranks", "expert = 2, or 6 ranks would do"]),
        ("data = 4\nexpert = 4", "count = 6", "", ["cannot be shared out evenly", "count = 4 or 8 would do"]),
        (
            "data = 4\nexpert = 2\norder = \"tp-cp-dp-ep-pp\"",
            "count = 4",
            "",
            ["neighbours among those that see other data", "ep before dp"],
        ),
        ("context = 2\ndata = 2\nexpert = 3", "count = 6", "", ["does not divide 4 ranks", "expert = 2, or 6 ranks would do"]),
        ("data = 2\nexpert = 2", "count = 2\ntop_k = 3", "", ["cannot go to 3 of 2 experts", "1 to 2"]),
        (
            "tensor = 2\ndata = 2\nexpert = 2\nexpert_tensor = 1",
            "count = 4",
            "",
            ["expert_tensor = 1 cuts experts otherwise", "leave it out"],
        ),
        (
            "data = 4\nexpert = 4",
            "count = 4",
            "[data_parallel]\nstrategy = \"fsdp\"\n[fsdp]\nshard_size = 2\n",
            ["whole groups of 4", "shard_size = 4"],
        ),
        (
            "pipeline = 2",
            "count = 4",
            "[pipeline]\nschedule = \"seq1f1b\"\nsegments = 7\n",
            ["segments of sequences and experts", "1f1b"],
        ),
    ] {
        let found = refused(mesh, experts, rest);
        assert!(wanted.iter().all(|part| found.contains(part)), "{wanted:?} are not in\n{found}");
    }
}
