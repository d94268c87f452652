//! What data-parallel ranks share out: the numbers of every strategy, its traffic, and what a rank keeps.

use ranklab::base::Bytes;
use ranklab::observe::Metrics;
use ranklab::observe::ledger::State;
use ranklab::program::trace::Outcome;

use crate::support::{self, SMALL, run};

/// Buckets and layers of the small model are several, and do not divide by the ranks.
const BUCKETS: &str = "bucket_mib = 0.01\nfirst_bucket_mib = 0.004\n";

const STRATEGIES: [&str; 5] = ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"];

fn text(strategy: &str, (data, pipeline): (usize, usize), micro_batches: u32, settings: &str) -> String {
    let parallel = format!("[parallel]\ndata = {data}\npipeline = {pipeline}\n");
    let batch = format!("[batch]\nmicro_batches = {micro_batches}\nsteps = 5\n");
    format!("{SMALL}{batch}{parallel}[data_parallel]\nstrategy = \"{strategy}\"\n{BUCKETS}{settings}")
}

/// Five steps, with a sound program: the verdict is one of `expected`.
fn check(strategy: &str, mesh: (usize, usize), micro_batches: u32, settings: &str, expected: &[&str]) {
    let text = text(strategy, mesh, micro_batches, settings);
    let run = run(&text);
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
    assert!(expected.contains(&run.verdict.name()), "{:?} is none of {expected:?} for\n{text}", run.verdict);
    assert!(run.losses[4] < run.losses[0], "the loss falls: {:?}", run.losses);
    let findings = ranklab::program::check::check(run.session.program());
    assert!(findings.is_empty(), "{findings:?} for\n{text}");
}

#[test]
fn every_strategy_computes_what_one_device_does() {
    for strategy in STRATEGIES {
        for data in [2, 3, 4, 8] {
            for (micro_batches, dtype) in [(1, "f32"), (3, "f32"), (3, "f64")] {
                let settings = format!("[numerics]\ndtype = \"{dtype}\"\n");
                check(strategy, (data, 1), micro_batches, &settings, &["equal", "expected-drift"]);
            }
        }
    }
}

#[test]
fn exact_sums_are_equal_however_they_are_taken() {
    for strategy in STRATEGIES {
        for settings in ["", "no_sync = false\n", "overlap = false\n", "expand = false\n", "all_reduce = \"star\"\n"] {
            check(strategy, (3, 1), 3, &format!("{settings}[numerics]\nexact = true\n"), &["equal"]);
        }
    }
}

#[test]
fn gathers_may_run_ahead_stay_or_take_everything() {
    let check = |settings: &str| check("fsdp", (4, 1), 2, &format!("[fsdp]\n{settings}\n[numerics]\nexact = true\n"), &["equal"]);
    for wrap in ["layer", "block", "whole"] {
        check(&format!("wrap = \"{wrap}\""));
        check(&format!("wrap = \"{wrap}\"\nreshard_after_forward = false"));
    }
    check("prefetch = 0");
    check("prefetch = 3\nin_flight = 5");
    check("in_flight = 1");
    check("shard_size = 2");
    check("shard_size = 2\nreshard_after_forward = false");
    check("shard_size = 1");
    check("reshard_after_forward = 2");
    check("reshard_after_forward = 2\nprefetch = 3\nin_flight = 5");
    check("reshard_after_forward = 2\nprefetch = 0\nwrap = \"block\"");
}

/// FSDP2: what forward gathered is kept as shards of a few ranks, and backward gathers among those alone.
#[test]
fn parameters_may_be_cut_among_fewer_ranks_between_forward_and_backward() {
    for (data, near, micro_batches) in [(4, 2, 1), (8, 2, 2), (8, 4, 3), (6, 3, 1)] {
        let settings =
            |reshard: &str| format!("expand = false\n[fsdp]\nreshard_after_forward = {reshard}\n[numerics]\nexact = true\n");
        check("fsdp", (data, 1), micro_batches, &settings(&near.to_string()), &["equal"]);
        let of = |reshard: &str| metrics(&text("fsdp", (data, 1), micro_batches, &settings(reshard)));
        let (free, some, keep) = (of("true"), of(&near.to_string()), of("false"));
        let peak = |metrics: &Metrics| metrics.ranks[0].peak_bytes;
        assert!(peak(&free) < peak(&some) && peak(&some) < peak(&keep), "{data} {near}");
        assert!((some.ranks[0].traffic_psi - free.ranks[0].traffic_psi).abs() < 1e-12, "as many payloads");
        assert!(some.ranks[0].bytes_sent < free.ranks[0].bytes_sent, "a gather of {near} ranks sends less than one of {data}");
        let run = run(&text("fsdp", (data, 1), micro_batches, &settings(&near.to_string())));
        let program = run.session.program();
        let small = program.groups.iter().filter(|group| group.name.starts_with("near"));
        assert!(small.clone().count() == data / near && small.clone().all(|group| group.ranks.len() == near));
    }
}

#[test]
fn pipelines_share_out_what_they_may() {
    for strategy in ["ddp", "zero-1", "fsdp"] {
        for schedule in ["gpipe", "1f1b"] {
            let settings = |more: &str| format!("[pipeline]\nschedule = \"{schedule}\"\n[numerics]\nexact = true\n{more}");
            check(strategy, (2, 2), 3, &settings(""), &["equal"]);
            if strategy == "fsdp" {
                check(strategy, (4, 2), 3, &settings("[fsdp]\nreshard_after_forward = 2\n"), &["equal"]);
            }
            check(strategy, (3, 2), 2, &settings("[fsdp]\nreshard_after_forward = false\n"), &["equal"]);
        }
    }
}

#[test]
fn other_models_and_optimizers_are_shared_out_alike() {
    let model = "[model]\nlayers = 3\nhidden = 20\nheads = 5\nsequence = 7\nvocab = 23\n";
    for strategy in STRATEGIES {
        for more in [
            "tied = true\n",
            "kv_heads = 1\nnorm = \"rms\"\nactivation = \"swiglu\"\nbias = \"none\"\n",
            "[optimizer]\nkind = \"sgd\"\nlr = 0.1\n",
        ] {
            let text = format!(
                "{model}{more}[batch]\nmicro_batches = 2\nsteps = 5\n[parallel]\ndata = 3\n[numerics]\nexact = true\n[data_parallel]\nstrategy = \"{strategy}\"\n"
            );
            assert_eq!(run(&text).verdict.name(), "equal", "{text}");
        }
    }
}

fn metrics(text: &str) -> Metrics {
    support::metrics(&run(text))
}

#[test]
fn schedules_of_chunks_and_split_backwards_share_out_alike() {
    for (schedule, chunks) in [("interleaved", 2), ("zb-h1", 1), ("zb-h2", 1), ("zbv", 2)] {
        for strategy in ["ddp", "zero-1", "fsdp"] {
            for recompute in ["none", "full"] {
                let settings = format!(
                    "[pipeline]\nschedule = \"{schedule}\"\nchunks = {chunks}\n[recompute]\nmode = \"{recompute}\"\n[numerics]\nexact = true\n"
                );
                check(strategy, (2, 2), 4, &settings, &["equal"]);
            }
        }
    }
}

/// Traffic of the first step with 1, 2, 4 and 8 micro-batches, the same on every rank.
fn check_traffic(strategy: &str, settings: &str, expected: [f64; 4]) {
    for (micro_batches, expected) in [1, 2, 4, 8].into_iter().zip(expected) {
        for expand in [true, false] {
            let settings = format!("expand = {expand}\n{settings}[numerics]\nvalues = \"shape\"\n");
            let metrics = metrics(&text(strategy, (3, 1), micro_batches, &settings));
            for rank in &metrics.ranks {
                assert!((rank.traffic_psi - expected).abs() < 1e-12, "{strategy} G = {micro_batches}: {}", rank.traffic_psi);
            }
        }
    }
}

#[test]
fn traffic_is_that_of_the_papers() {
    check_traffic("ddp", "", [2.0, 2.0, 2.0, 2.0]);
    check_traffic("zero-1", "", [2.0, 2.0, 2.0, 2.0]);
    check_traffic("zero-2", "", [2.0, 3.0, 5.0, 9.0]);
    check_traffic("zero-3", "", [3.0, 6.0, 12.0, 24.0]);
    check_traffic("fsdp", "", [3.0, 6.0, 12.0, 24.0]);
    check_traffic("fsdp", "[fsdp]\nreshard_after_forward = false\n", [2.0, 4.0, 8.0, 16.0]);
    check_traffic("fsdp", "[fsdp]\nshard_size = 1\n", [2.0, 2.0, 2.0, 2.0]);
    check_traffic("ddp", "no_sync = false\n", [2.0, 4.0, 8.0, 16.0]);
    check_traffic("zero-1", "no_sync = false\n", [2.0, 4.0, 8.0, 16.0]);
}

/// FSDP's stages gather once a step and scatter once, behind the last micro-batch that they see, as TorchTitan's do; what they keep meanwhile
/// is a whole stage and its gradients. Told to free parameters behind forward they gather them twice for each micro-batch.
#[test]
fn stages_gather_and_scatter_once_a_step() {
    for ((data, pipeline), micro_batches, schedule) in
        [((2, 2), 4, "1f1b"), ((3, 2), 5, "gpipe"), ((5, 3), 3, "zb-h1"), ((2, 5), 5, "1f1b"), ((2, 2), 4, "interleaved")]
    {
        for (expand, reshard) in [(true, false), (false, false), (true, true), (false, true)] {
            // A pass for the weights alone, as an embedding's, gathers nothing there.
            if reshard && schedule == "zb-h1" {
                continue;
            }
            let text = format!(
                "[model]\nlayers = 10\nhidden = 24\nheads = 3\nsequence = 11\nvocab = 61\n[batch]\nmicro_batches = {micro_batches}\n\
                 steps = 3\n[parallel]\ndata = {data}\npipeline = {pipeline}\n[data_parallel]\nstrategy = \"fsdp\"\nexpand = {expand}\n\
                 [fsdp]\nreshard_after_forward = {reshard}\n[pipeline]\nschedule = \"{schedule}\"\n[numerics]\nexact = true\n"
            );
            let run = run(&text);
            assert_eq!(run.verdict.name(), "equal", "{text}");
            let gathers = if reshard { 2 * micro_batches } else { 1 };
            for rank in support::metrics(&run).ranks {
                assert!((rank.traffic_psi - f64::from(gathers + 1)).abs() < 1e-12, "{} for\n{text}", rank.traffic_psi);
            }
        }
    }
}

/// Hybrid sharding: copies of the state on `shards` ranks each sum their shards, 2/shards of the parameters; zeros at their ends are
/// padding, and no traffic.
#[test]
fn copies_of_the_state_exchange_their_shards() {
    for (data, shards, micro_batches) in [(4_usize, 2_u8, 1_u32), (6, 3, 2), (6, 2, 3), (8, 4, 1)] {
        for expand in [true, false] {
            let settings = format!("expand = {expand}\n[fsdp]\nshard_size = {shards}\n[numerics]\nvalues = \"shape\"\n");
            let metrics = metrics(&text("fsdp", (data, 1), micro_batches, &settings));
            let expected = f64::from(micro_batches) * (3.0 + 2.0 / f64::from(shards));
            for rank in &metrics.ranks {
                assert!((rank.traffic_psi - expected).abs() < 1e-12, "{shards} of {data}: {} {expected}", rank.traffic_psi);
            }
        }
    }
}

/// At the formula's number of tokens the traffic of a micro-batch takes as long as the pass that hides it. Without latency, and with a
/// model that is nearly all weights.
#[test]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of times")]
fn so_many_tokens_hide_the_traffic() {
    use ranklab::observe::formula::{self, Quantity};
    use ranklab::program::CollectiveKind::{AllGather, AllReduce, ReduceScatter};
    for (strategy, data, kind, of_busy) in [
        ("ddp", 8, AllReduce, 2.0 / 3.0),
        ("ddp", 3, AllReduce, 2.0 / 3.0),
        ("zero-1", 8, ReduceScatter, 2.0 / 3.0),
        ("zero-2", 16, ReduceScatter, 2.0 / 3.0),
        // Gathered twice, and the forward pass is a third.
        ("zero-3", 8, AllGather, 2.0 / 3.0),
    ] {
        let text = |size: usize| {
            format!(
                "[model]\nlayers = 6\nhidden = 2048\nheads = 16\nsequence = 16\nvocab = 16\npositions = \"rotary\"\n\
                 [batch]\nmicro_batches = 1\nmicro_batch_size = {size}\nsteps = 1\n[parallel]\ndata = {data}\n\
                 [data_parallel]\nstrategy = \"{strategy}\"\nexpand = false\n[numerics]\nvalues = \"shape\"\ndtype = \"bf16\"\n\
                 [hardware]\ncosts = \"h100-nvlink\"\nmemory_gb = 1000\n[hardware.device]\nbandwidth = 1000000\n\
                 [hardware.inside]\nalpha = 0\n[hardware.between]\nalpha = 0\n"
            )
        };
        let tokens =
            formula::find(&formula::of(&crate::support::scenario(&text(1))), Quantity::HidingTokens).expect("a formula").value;
        let run = run(&text((tokens / 16.0).round() as usize));
        let metrics = support::metrics(&run);
        let program = run.session.program();
        let of_kind = metrics.collectives.iter().filter(|stats| program.collectives[stats.collective.index()].kind == kind);
        let traffic: u64 = of_kind.map(|stats| (stats.end - stats.start).0).sum();
        let ratio = traffic as f64 / (metrics.ranks[0].busy.0 as f64 * of_busy);
        assert!((ratio - 1.0).abs() < 0.05, "{strategy} on {data}, {tokens} tokens: traffic takes {ratio} times the pass");
    }
}

/// What rank 0 keeps of a model of `parameters` on `data` ranks, in bytes for each parameter, with what is cut and what is not.
fn check_state((model, parameters): (&str, u64), convention: &str, strategy: &str, data: u64, whole: [u64; 3], cut: [u64; 3]) {
    let text = format!(
        "[model]\npreset = \"{model}\"\nbytes_per_parameter = \"{convention}\"\n[batch]\nmicro_batches = 1\nsteps = 1\n[parallel]\ndata = {data}\n\
         [data_parallel]\nstrategy = \"{strategy}\"\n[numerics]\nvalues = \"shape\"\n"
    );
    let metrics = metrics(&text);
    let bytes = |i: usize| Bytes(whole[i] * parameters + (cut[i] * parameters).div_ceil(data));
    let expected = State { parameter: bytes(0), gradient: bytes(1), optimizer: bytes(2) };
    assert_eq!((metrics.ranks[0].state, metrics.ranks[0].padding), (expected, Bytes::ZERO), "{text}");
}

const SEVEN: (&str, u64) = ("7b", 7_000_000_000);
const SEVEN_AND_A_HALF: (&str, u64) = ("7.5b", 7_500_000_000);

#[test]
fn state_is_the_closed_form_of_its_convention() {
    for data in [4, 64] {
        check_state(SEVEN_AND_A_HALF, "mixed-adam-16", "ddp", data, [2, 2, 12], [0, 0, 0]);
        check_state(SEVEN_AND_A_HALF, "mixed-adam-16", "zero-1", data, [2, 2, 0], [0, 0, 12]);
        check_state(SEVEN_AND_A_HALF, "mixed-adam-16", "zero-2", data, [2, 0, 0], [0, 2, 12]);
        check_state(SEVEN_AND_A_HALF, "mixed-adam-16", "zero-3", data, [0, 0, 0], [2, 2, 12]);
    }
    for data in [8, 64] {
        check_state(SEVEN, "mixed-adam-16", "zero-1", data, [2, 2, 0], [0, 0, 12]);
        check_state(SEVEN, "mixed-adam-16", "zero-2", data, [2, 0, 0], [0, 2, 12]);
        check_state(SEVEN, "mixed-adam-16", "zero-3", data, [0, 0, 0], [2, 2, 12]);
    }
    check_state(SEVEN, "mixed-adam-18", "zero-1", 8, [2, 4, 0], [0, 0, 12]);
    check_state(SEVEN, "mixed-adam-20", "zero-2", 8, [2, 0, 0], [0, 6, 12]);
    check_state(SEVEN, "fp32-adam-16", "zero-3", 8, [0, 0, 0], [4, 4, 8]);
    check_state(SEVEN, "mixed-adam-12", "zero-1", 8, [2, 2, 0], [0, 0, 8]);
    check_state(SEVEN, "bf16-adam-8", "zero-2", 8, [2, 0, 0], [0, 2, 4]);
}

/// Gigabytes of state on each of `data` ranks under ZeRO-1, 2 and 3, to the byte.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole bytes")]
fn check_seven(data: u64, expected: [f64; 3]) {
    for (strategy, gigabytes) in ["zero-1", "zero-2", "zero-3"].into_iter().zip(expected) {
        let text = format!(
            "[model]\npreset = \"7b\"\nbytes_per_parameter = \"mixed-adam-16\"\n[batch]\nmicro_batches = 1\nsteps = 1\n[parallel]\n\
             data = {data}\n[data_parallel]\nstrategy = \"{strategy}\"\n[numerics]\nvalues = \"shape\"\n"
        );
        let State { parameter, gradient, optimizer } = metrics(&text).ranks[0].state;
        assert_eq!((parameter + gradient + optimizer).0, (gigabytes * 1e6).round() as u64 * 1000, "{text}");
    }
}

#[test]
fn seven_billion_parameters_take_what_the_lessons_say() {
    check_seven(8, [38.5, 26.25, 14.0]);
    check_seven(64, [29.3125, 15.53125, 1.75]);
}

/// The fewest of up to 64 ranks on which the state of 7 billion parameters is less than the card's memory.
fn fewest(strategy: &str, gigabytes: u64) -> Option<u64> {
    (2..=64).find(|data| {
        let text = format!(
            "[model]\npreset = \"7b\"\nbytes_per_parameter = \"mixed-adam-16\"\n[batch]\nmicro_batches = 1\nsteps = 1\n\
             [parallel]\ndata = {data}\n[data_parallel]\nstrategy = \"{strategy}\"\n[numerics]\nvalues = \"shape\"\n"
        );
        let program = ranklab::compile::compile(&crate::support::scenario(&text)).program;
        let State { parameter, gradient, optimizer } = ranklab::observe::ledger::state(&program)[0];
        parameter + gradient + optimizer < Bytes(gigabytes * 1_000_000_000)
    })
}

#[test]
fn state_fits_from_so_many_ranks_on() {
    for (gigabytes, expected) in [(24, [None, Some(10), Some(5)]), (40, [Some(8), Some(4), Some(3)]), (80, [Some(2); 3])] {
        let found = ["zero-1", "zero-2", "zero-3"].map(|strategy| fewest(strategy, gigabytes));
        // On 7 ranks ZeRO-1 takes exactly 40 GB, which leaves no room.
        assert_eq!(found, expected, "{gigabytes} GB");
    }
}

/// Gigabytes on each of `data` ranks under ZeRO-1, 2 and 3 (Rajbhandari et al. 2020, table 1): from a run, to the byte where the ranks
/// divide the parameters, and as near to the printed figure as it was rounded.
fn check_table(model: &str, parameters: u64, data: u64, printed: [f64; 3]) {
    for ((strategy, cut), printed) in [("zero-1", 12), ("zero-2", 14), ("zero-3", 16)].into_iter().zip(printed) {
        let text = format!(
            "[model]\npreset = \"{model}\"\nbytes_per_parameter = \"mixed-adam-16\"\n[batch]\nmicro_batches = 1\nsteps = 1\n\
             [parallel]\ndata = {data}\n[data_parallel]\nstrategy = \"{strategy}\"\n[numerics]\nvalues = \"shape\"\n"
        );
        let program = ranklab::compile::compile(&crate::support::scenario(&text)).program;
        let State { parameter, gradient, optimizer } = ranklab::observe::ledger::state(&program)[0];
        let bytes = (parameter + gradient + optimizer).0;
        let closed = (16 - cut) * parameters + (cut * parameters).div_ceil(data);
        if parameters.is_multiple_of(data) {
            assert_eq!(bytes, closed, "{text}");
        } else {
            let units = program.units.len() as u64;
            assert!(bytes >= closed && bytes < closed + 16 * units, "{bytes} of {closed}: at most an element for each unit");
        }
        let gigabytes = f64::from(u32::try_from(bytes / 1_000_000).expect("a few terabytes")) / 1000.0;
        assert!((gigabytes / printed - 1.0).abs() < 0.005 || (gigabytes - printed).abs() < 0.005, "{gigabytes} {printed} {text}");
    }
}

#[test]
fn the_table_of_the_zero_paper_comes_out() {
    for (data, seven_and_a_half, large, trillion) in [
        (1, [120.0, 120.0, 120.0], [2048.0, 2048.0, 2048.0], [16_000.0, 16_000.0, 16_000.0]),
        (4, [52.5, 41.25, 30.0], [896.0, 704.0, 512.0], [7000.0, 5500.0, 4000.0]),
        (16, [35.6, 21.6, 7.5], [608.0, 368.0, 128.0], [4750.0, 2875.0, 1000.0]),
        (64, [31.4, 16.6, 1.88], [536.0, 284.0, 32.0], [4188.0, 2219.0, 250.0]),
        (256, [30.4, 15.4, 0.47], [518.0, 263.0, 8.0], [4047.0, 2055.0, 62.5]),
        (1024, [30.1, 15.1, 0.12], [513.0, 257.8, 2.0], [4012.0, 2014.0, 15.6]),
    ] {
        check_table("7.5b", 7_500_000_000, data, seven_and_a_half);
        check_table("128b", 128_000_000_000, data, large);
        check_table("1000b", 1_000_000_000_000, data, trillion);
    }
}
