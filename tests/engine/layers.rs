//! A bare attention layer over context-parallel ranks: its numbers, its work per rank, its bytes, and its bugs by their fingerprints.

#![expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "tests compare small counts and exact zeros")]

use ranklab::base::Bytes;
use ranklab::base::settings::{AttentionBug, ContextMethod, Placement};
use ranklab::lab::{Lab, Run, check, layer as lab_layer};
use ranklab::program::{Kernel, OpKind, text};

use ranklab::scenario::Task;

use crate::support::{metrics, run, scenario};

/// A layer of 2 heads and 1 key and value head of 3 elements.
fn layer(ranks: usize, sequence: usize, rest: &str) -> String {
    format!(
        "title = \"layer\"\n[layer]\n{rest}\n[model]\nhidden = 6\nheads = 2\nkv_heads = 1\nsequence = {sequence}\n[parallel]\ncontext = {ranks}\n"
    )
}

/// The same with as many heads as the method needs.
fn layer_of(method: ContextMethod, ranks: usize, sequence: usize, rest: &str) -> String {
    let heads = if method == ContextMethod::Ulysses { ranks } else { 1 };
    let wide = format!("hidden = {}\nheads = {}\nkv_heads = {heads}\n", 6 * heads, 2 * heads);
    layer(ranks, sequence, rest).replace("hidden = 6\nheads = 2\nkv_heads = 1\n", &wide)
}

fn with(method: ContextMethod, placement: Placement) -> String {
    format!("[context_parallel]\nmethod = \"{method}\"\nplacement = \"{placement}\"\n")
}

/// Pairs of queries and keys that each rank's forward kernels computed.
fn pairs(run: &Run) -> Vec<u64> {
    let program = run.session.program();
    let attention = program.setting.attention.expect("a layer");
    let of_op = |op: &ranklab::base::OpId| match program.kind(*op) {
        OpKind::Run(kernel) if program.kernels[kernel.index()].kernel == Kernel::Attend => program.kernels[kernel.index()].flops,
        _ => 0,
    };
    program.order.iter().map(|order| order.iter().map(of_op).sum::<u64>() / attention.flops_per_pair()).collect()
}

#[test]
fn every_method_and_placement_equals_one_device() {
    for &method in ContextMethod::ALL {
        for &placement in Placement::ALL {
            for ranks in [1, 2, 3, 5, 8] {
                for (causal, dtype, sharpness) in [(true, "f32", 1), (true, "f64", 12), (false, "f32", 12), (false, "f64", 1)] {
                    let rest = format!("causal = {causal}\nsharpness = {sharpness}\n");
                    let text = layer_of(method, ranks, 3 * placement.divisor(ranks), &rest) + &with(method, placement);
                    let run = run(&(text.clone() + &format!("[numerics]\ndtype = \"{dtype}\"\n")));
                    let allowed = if ranks == 1 { ["equal", "expected-drift"] } else { ["expected-drift", "equal"] };
                    assert!(allowed.contains(&run.verdict.name()), "{text}: {:?}", run.verdict);
                }
            }
        }
    }
}

#[test]
fn programs_are_sound() {
    for &method in ContextMethod::ALL {
        for &placement in Placement::ALL {
            for ranks in [1, 2, 3, 4] {
                let scenario = scenario(&(layer_of(method, ranks, 2 * placement.divisor(ranks), "") + &with(method, placement)));
                let checked = check(&scenario).expect("a program");
                assert!(checked.findings.is_empty(), "{method}, {placement}, {ranks}: {:?}", checked.findings);
                let program = ranklab::compile::compile(&scenario).program;
                assert_eq!(text::parse(&program.to_string()).expect("its own text"), program);
            }
        }
    }
}

/// The published counts: 16 tokens over 4 ranks.
#[test]
fn work_per_rank_is_what_the_placement_says() {
    let of = |placement| pairs(&run(&(layer(4, 16, "") + &with(ContextMethod::Ring, placement))));
    assert_eq!(of(Placement::Contiguous), [10, 26, 42, 58]);
    assert_eq!(of(Placement::Zigzag), [34; 4]);
    assert_eq!(of(Placement::Striped), [28, 32, 36, 40]);
}

/// Pieces one after the other keep 8 ranks busy for 8/15 of the time at most; zigzag wastes nothing.
#[test]
fn efficiency_is_mean_work_over_the_slowest_ranks() {
    let check = |sequence: usize, placement: Placement, expected: f64| {
        let run = run(&(layer(8, sequence, "") + &with(ContextMethod::Ring, placement)));
        let metrics = metrics(&run);
        let busy: u64 = metrics.ranks.iter().map(|rank| rank.busy.0).sum();
        let efficiency = busy as f64 / (8 * metrics.makespan.0) as f64;
        assert!((efficiency - expected).abs() < 5e-4, "{sequence}, {placement}: {efficiency}");
    };
    check(32, Placement::Contiguous, 0.541);
    check(256, Placement::Contiguous, 0.534);
    check(32, Placement::Zigzag, 1.0);
}

/// Keys and values go around twice, but for one hop each time, their gradients once: to the last rank, and home.
#[test]
fn a_ring_moves_what_an_all_gather_moves() {
    for size in [2, 3, 5] {
        let (sequence, ranks) = (4 * size, size as u64);
        // k and v, 1 head of 3, in f32.
        let block = 2 * (sequence as u64 / ranks) * 3 * 4;
        let ring = metrics(&run(&(layer(size, sequence, "") + &with(ContextMethod::Ring, Placement::Zigzag))));
        for rank in &ring.ranks {
            assert_eq!(rank.bytes_sent, Bytes((2 * (ranks - 1) + ranks) * block), "{ranks}");
            assert_eq!(rank.bytes_received, rank.bytes_sent, "{ranks}");
        }
        let gather = metrics(&run(&(layer(size, sequence, "") + &with(ContextMethod::AllGather, Placement::Zigzag))));
        for rank in &gather.ranks {
            assert_eq!(rank.bytes_sent, Bytes(2 * (ranks - 1) * block), "{ranks}");
        }
    }
}

/// Four tensors go all to all forward, and their gradients backward: each rank keeps 1/N of what it has.
#[test]
fn ulysses_swaps_pieces_for_heads() {
    for size in [2, 3, 4] {
        let (method, sequence, ranks) = (ContextMethod::Ulysses, 4 * size, size as u64);
        let run = run(&(layer_of(method, size, sequence, "") + &with(method, Placement::Contiguous)));
        let metrics = metrics(&run);
        // q, out, dout and dq have 2 N heads, kv and dkv 2 N of keys and values together; out has a log-sum-exp for each head, too.
        let token = 2 * ranks * 3 * 4;
        let tokens = sequence as u64 / ranks;
        let own = tokens * (6 * token + 2 * ranks * 4);
        for rank in &metrics.ranks {
            let sent = rank.bytes_sent.0;
            assert!(sent.abs_diff(own * (ranks - 1) / ranks) <= 6 * ranks, "{ranks}: {sent} of {own}");
        }
        let work: Vec<u64> = metrics.ranks.iter().map(|rank| rank.busy.0).collect();
        assert!(work.windows(2).all(|pair| pair[0] == pair[1]), "every rank has the whole mask: {work:?}");
        assert_eq!(metrics.bubble_fraction(), 0.0, "{ranks}");
    }
}

/// The ring holds two blocks of others at a time, however many ranks there are; an all-gather holds them all.
#[test]
fn a_ring_has_two_buffers() {
    let blocks = |method, ranks: usize| {
        let sequence = 2 * ranks * 2;
        let metrics = metrics(&run(&(layer(ranks, sequence, "causal = false") + &with(method, Placement::Zigzag))));
        let block = 2 * 4 * 3 * 4;
        let message = ranklab::program::Role::ALL.iter().position(|role| role.name() == "message").expect("a role");
        metrics.ranks.iter().map(|rank| rank.peak_by_role[message].0 / block).max().unwrap_or(0)
    };
    for ranks in [4, 6, 8] {
        // Two of keys and two of gradients.
        assert!(blocks(ContextMethod::Ring, ranks) <= 4, "{ranks}");
        // All keys of others; one goes when its gradients are there.
        assert_eq!(blocks(ContextMethod::AllGather, ranks), ranks as u64, "{ranks}");
    }
}

#[test]
fn the_reference_vector_comes_out_of_the_ring() {
    for &placement in Placement::ALL {
        let text = format!(
            "[layer]\n[model]\nhidden = 4\nheads = 1\nsequence = 16\n[parallel]\ncontext = 4\n[numerics]\ndtype = \"f64\"\n{}",
            with(ContextMethod::Ring, placement)
        );
        let run = run(&text);
        assert!(matches!(run.verdict.name(), "expected-drift" | "equal"), "{:?}", run.verdict);
        let program = run.session.program();
        let sum = |prefix: &str, elements: std::ops::Range<usize>| -> f64 {
            let ids = (0..program.buffers.len()).map(ranklab::base::BufferId::new);
            let own = ids.filter(|id| {
                let buffer = &program.buffers[id.index()];
                buffer.name.to_string() == format!("{prefix}{}", buffer.rank.0)
            });
            let values = own.map(|id| run.session.value(id).expect("values").elements().expect("readable").unwrap_or_default());
            values.map(|all| all[elements.start..elements.end.min(all.len())].iter().sum::<f64>()).sum()
        };
        for (name, elements, expected) in [
            ("out", 0..16, 17.973_699_202_505),
            ("out", 16..20, 34.602_570_015_264),
            ("dq", 0..16, -2.548_245_734_311),
            ("dkv", 0..16, 0.0),
            ("dkv", 16..32, -23.285_481_337_215),
        ] {
            let found = sum(name, elements);
            assert!((found - expected).abs() < 2e-12, "{placement}: sum of {name} is {found}");
        }
    }
}

#[test]
fn a_run_of_shapes_has_the_same_times_as_one_of_numbers() {
    let text = layer(4, 16, "") + "[hardware]\ncosts = \"h100-nvlink\"\n";
    let [real, shape] = ["real", "shape"].map(|values| {
        let run = Lab::new().run(&scenario(&(text.clone() + &format!("[numerics]\nvalues = \"{values}\"\n")))).expect("a run");
        metrics(&run).makespan
    });
    assert_eq!(real, shape);
}

/// The layer of the reference vector with a bug in it.
fn with_bug(bug: AttentionBug) -> Run {
    let placement = if bug == AttentionBug::SwappedStripes { Placement::Striped } else { Placement::Contiguous };
    // Only scores far above those before overflow, and only in f32.
    let (sharpness, dtype) = if bug == AttentionBug::NaiveLse { (14, "f32") } else { (1, "f64") };
    run(&format!(
        "[layer]\nsharpness = {sharpness}\n[model]\nhidden = 4\nheads = 1\nsequence = 16\n[parallel]\ncontext = 4\n\
         [numerics]\ndtype = \"{dtype}\"\n[[trouble]]\nkind = \"{bug}\"\n{}",
        with(ContextMethod::Ring, placement)
    ))
}

#[test]
fn a_bug_is_recognised_by_its_fingerprint() {
    for &bug in AttentionBug::ALL {
        let run = with_bug(bug);
        assert_eq!(run.verdict.name(), "wrong", "{bug}");
        let looks = run.looks.as_ref().unwrap_or_else(|| panic!("{bug} looks like nothing"));
        // A weight that is not rescaled and one that is averaged look alike: o wrong, lse and dv right.
        let alike = [AttentionBug::NoRescale, AttentionBug::AverageMerge];
        let expected = if alike.contains(&bug) { alike.to_vec() } else { vec![bug] };
        assert_eq!(looks.suspects, expected, "{bug}: {looks}");
        assert!(looks.to_string().contains(bug.name()), "{looks}");
    }
}

/// How far o, lse, dq, dk and dv are off, as an implementation of its own has it; 0 is right, `None` is not compared.
#[test]
fn bugs_are_as_far_off_as_published() {
    let known = [
        (AttentionBug::NoRescale, [Some(1.04), Some(0.0), Some(0.33), Some(0.16), Some(0.0)]),
        (AttentionBug::AverageMerge, [Some(0.44), Some(0.0), Some(0.14), Some(0.12), Some(0.0)]),
        (AttentionBug::MaxLse, [Some(0.67), Some(0.87), Some(0.40), Some(0.33), Some(0.71)]),
        (AttentionBug::Bf16Blocks, [Some(1.6e-3), Some(0.0), Some(5.7e-4), Some(2.8e-4), Some(0.0)]),
        (AttentionBug::LocalMask, [Some(0.89), Some(1.64), None, Some(0.17), Some(1.71)]),
        (AttentionBug::WrongNeighbour, [Some(1.08), Some(0.82), Some(0.17), Some(0.087), Some(0.27)]),
        (AttentionBug::NoDelta, [Some(0.0), Some(0.0), Some(0.23), Some(0.21), Some(0.0)]),
        (AttentionBug::BlockLse, [Some(0.0), Some(0.0), Some(0.55), Some(0.38), Some(2.09)]),
        (AttentionBug::ShortHop, [Some(0.0), Some(0.0), Some(0.0), Some(0.28), Some(2.32)]),
    ];
    for (bug, published) in known {
        let run = with_bug(bug);
        let Task::Layer(layer) = &run.scenario.task else { panic!("a layer") };
        let compared = lab_layer::compare(&run.scenario, layer, &run.session).expect("one device");
        for (result, published) in compared.iter().zip(published) {
            let Some(published) = published else { continue };
            let off = result.off.iter().copied().fold(0.0, f64::max);
            let close = (off - published).abs() <= 0.04 * published + 1e-12;
            assert!(close, "{bug}: {} is off by {off}, published {published}", result.name);
        }
    }
}

/// No wrong merge shows where there is nothing to merge, and no bug changes what it does not touch.
#[test]
fn a_bug_shows_where_it_is() {
    let run = with_bug(AttentionBug::MaxLse);
    let Task::Layer(layer) = &run.scenario.task else { panic!("a layer") };
    let compared = lab_layer::compare(&run.scenario, layer, &run.session).expect("one device");
    assert_eq!(compared[0].wrong, [false, true, true, true], "rank 0 has one block");
    let run = with_bug(AttentionBug::ShortHop);
    let compared = lab_layer::compare(&run.scenario, layer, &run.session).expect("one device");
    assert_eq!(compared[4].wrong, [true; 4], "every rank has another one's gradients");
}
