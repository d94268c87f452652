//! Faults: each is injected on several ranks and numbers of ranks, shows what its row says, and is traced to its rank, op and cause.

use ranklab::base::model::Segment;
use ranklab::lab::{Lab, Run};
use ranklab::program::tables::Padded;
use ranklab::program::trace::Outcome;
use ranklab::program::trouble::FAULTS;
use ranklab::scenario::Task;

use crate::support::{SMALL, head_of, metrics, run, scenario};

const BUCKETS: &str = "bucket_mib = 0.01\nfirst_bucket_mib = 0.004\n";

/// A data-parallel training with a rule.
fn text(strategy: &str, data: u32, batch: &str, settings: &str, rule: &str) -> String {
    format!(
        "{SMALL}[batch]\n{batch}\n[parallel]\ndata = {data}\n[data_parallel]\nstrategy = \"{strategy}\"\n{BUCKETS}{settings}\n[[trouble]]\n{rule}\n"
    )
}

/// What is to be found out about a run: how it ends, its verdict, and who is to blame, for which op, with what words.
struct Expected<'a> {
    outcome: &'a str,
    verdict: &'a str,
    rank: u32,
    op: &'a str,
    cause: &'a [&'a str],
}

#[track_caller]
fn check(text: &str, expected: &Expected) -> Run {
    let run = run(text);
    let found = run.diagnosis.first().unwrap_or_else(|| panic!("a diagnosis of\n{text}"));
    let op = found.op.map_or_else(String::new, |op| head_of(&run, op));
    let told = format!("{} `{op}`: {}\n{text}", found.rank, found.cause);
    assert_eq!((run.session.trace().outcome.name(), run.verdict.name()), (expected.outcome, expected.verdict), "{told}");
    assert_eq!(found.rank.0, expected.rank, "{told}");
    assert!(op.contains(expected.op), "`{}` in {told}", expected.op);
    expected.cause.iter().for_each(|words| assert!(found.cause.contains(words), "`{words}` in {told}"));
    run
}

#[test]
fn a_run_without_faults_has_no_diagnosis() {
    for strategy in ["ddp", "zero-1", "zero-2", "zero-3"] {
        let text = text(strategy, 3, "micro_batches = 2", "", "").replace("[[trouble]]", "");
        assert_eq!(run(&text).diagnosis, [], "{text}");
    }
}

/// 6.4: as many times the traffic as there are micro-batches, for the same numbers.
#[test]
fn a_forgotten_no_sync_is_told_by_its_traffic() {
    for (strategy, data, micro_batches) in [("ddp", 2, 2), ("ddp", 3, 4), ("ddp", 8, 3), ("zero-1", 3, 2)] {
        for expand in [true, false] {
            let batch = format!("micro_batches = {micro_batches}");
            let settings = format!("expand = {expand}\n[numerics]\nexact = true");
            let text = text(strategy, data, &batch, &settings, "kind = \"sync-every-micro-batch\"");
            let times = format!("{micro_batches} times a step");
            let expected =
                Expected { outcome: "completed", verdict: "equal", rank: 0, op: "", cause: &["is summed", &times, "`no_sync`"] };
            let run = check(&text, &expected);
            for rank in metrics(&run).ranks {
                assert!((rank.traffic_psi - 2.0 * f64::from(micro_batches)).abs() < 1e-12, "{}", rank.traffic_psi);
            }
        }
    }
}

/// 6.4: nothing is moved, the loss falls, and replicas drift apart.
#[test]
fn gradients_that_nobody_sums_are_told() {
    for (data, step) in [(2, 0), (3, 1), (8, 2)] {
        let text = text("ddp", data, "micro_batches = 2\nsteps = 4", "", &format!("kind = \"no-sync-on-last\"\nstep = {step}"));
        let step_words = format!("in step {step}");
        let cause = ["no rank sums its gradients", &step_words, "drift apart"];
        let expected = Expected { outcome: "completed", verdict: "wrong", rank: 0, op: "(skipped)", cause: &cause };
        let run = check(&text, &expected);
        assert!(run.losses[3] < run.losses[0], "the loss falls: {:?}", run.losses);
    }
}

/// 6.5: every gradient is N times what it should be, exactly.
#[test]
fn sums_that_are_not_averaged_are_told_by_their_factor() {
    for strategy in ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"] {
        for data in [2, 3, 8] {
            let text = text(strategy, data, "micro_batches = 2", "", "kind = \"sum-gradients\"");
            let words = [format!("is {data} times one device's"), format!("summed over {data} ranks, and not divided")];
            let expected = Expected { outcome: "completed", verdict: "wrong", rank: 0, op: "", cause: &[&words[0], &words[1]] };
            check(&text, &expected);
        }
    }
}

/// 6.5: a small bias, and the loss falls all the same.
#[test]
fn unequal_numbers_of_tokens_are_told() {
    for (strategy, data, rank, factor, tokens) in [("ddp", 2, 1, 0.5, 5), ("zero-3", 3, 0, 0.3, 3), ("ddp", 8, 6, 0.7, 7)] {
        let rule = format!("kind = \"unequal-tokens\"\nrank = {rank}\nfactor = {factor}");
        let text = text(strategy, data, "micro_batches = 2\nsteps = 4", "", &rule);
        let words = format!("of its sequences {tokens} of 11 tokens count");
        let cause = [words.as_str(), "a mean of means is not the mean over all tokens"];
        let run = check(&text, &Expected { outcome: "completed", verdict: "wrong", rank, op: "", cause: &cause });
        assert!(run.losses[3] < run.losses[0], "the loss falls: {:?}", run.losses);
    }
}

/// One device weighs micro-batches by their tokens: full ones as much more as they have more of them, and one on average.
#[test]
fn micro_batches_count_by_their_tokens() {
    let padded = Padded { first: 4, each: 2, ranks: 3, place: 1, tokens: 5, weighted: true };
    let weights: Vec<f64> = (4..16).map(|micro_batch| padded.weight(micro_batch, 11, Segment::WHOLE)).collect();
    assert!((weights.iter().sum::<f64>() - 12.0).abs() < 1e-12, "{weights:?}");
    for (place, weight) in weights.iter().enumerate() {
        let tokens = if matches!(place % 6, 2 | 3) { 5.0 } else { 11.0 };
        assert!((weight - tokens * 3.0 / 27.0).abs() < 1e-12, "micro-batch {place} of {weights:?}");
    }
}

/// Losses of three steps whose sequences of 12 tokens go in `segments`, where 4 tokens of those of one rank count.
fn losses_in_segments(segments: usize, weighted: bool) -> Vec<f64> {
    let text = format!(
        "[model]\nlayers = 3\nhidden = 20\nheads = 5\nsequence = 12\nvocab = 23\n[batch]\nmicro_batches = 2\nsteps = 3\n\
         [parallel]\ndata = 3\npipeline = 2\n[pipeline]\nschedule = \"seq1f1b\"\nsegments = {segments}\n[numerics]\ndtype = \"f64\"\n\
         [[trouble]]\nkind = \"unequal-tokens\"\nrank = 4\nfactor = 0.3\n"
    );
    let mut scenario = scenario(&text);
    let Task::Train(training) = &mut scenario.task else { panic!("a training") };
    training.batch.padded = training.batch.padded.map(|padded| Padded { weighted, ..padded });
    Lab::default().run(&scenario).expect("a run").losses
}

/// Segments with fewer tokens that count, or none, count by them: the loss of a micro-batch is what it is in one piece.
#[test]
fn segments_of_padded_sequences_count_by_their_tokens() {
    for weighted in [false, true] {
        let whole = losses_in_segments(1, weighted);
        for segments in [2, 3, 4] {
            let cut = losses_in_segments(segments, weighted);
            let far = whole.iter().zip(&cut).map(|(whole, cut)| (whole - cut).abs()).fold(0.0, f64::max);
            assert!(far < 1e-12, "{segments} segments, weighted {weighted}: {cut:?} is not {whole:?}");
        }
    }
}

/// 6.12: nothing is wrong while it trains.
#[test]
fn a_model_that_nobody_gathers_is_told() {
    for data in [2, 3, 8] {
        let text = text("fsdp", data, "micro_batches = 1", "[numerics]\nexact = true", "kind = \"save-without-gather\"");
        let words = format!("their shards lie on {data} ranks");
        let cause = ["it saves the model by itself", "have the shape [0]", &words];
        check(&text, &Expected { outcome: "completed", verdict: "equal", rank: 0, op: "", cause: &cause });
    }
}

/// 6.11: a hang, and not the ranks that wait are to blame.
#[test]
fn a_read_on_one_rank_is_told() {
    for (strategy, data, rank) in [("zero-3", 2, 0), ("zero-3", 3, 2), ("fsdp", 8, 5)] {
        for expand in [true, false] {
            let rule = format!("kind = \"read-on-one-rank\"\nrank = {rank}\nop = \"0F0 forward blocks.2\"\nstep = 1");
            let text = text(strategy, data, "micro_batches = 1\nsteps = 3", &format!("expand = {expand}"), &rule);
            let all = format!("takes all of r0 to r{}", data - 1);
            let cause = ["it issues `all-gather blocks.2.read` without the others", &all];
            check(&text, &Expected { outcome: "deadlocked", verdict: "none", rank, op: "", cause: &cause });
        }
    }
}

/// The opposite: one rank leaves out what the others issue.
#[test]
fn a_rank_that_leaves_out_a_collective_is_told() {
    for (data, rank) in [(2, 1), (3, 0), (8, 6)] {
        for (strategy, op) in
            [("zero-3", "all-gather blocks.2"), ("ddp", "all-reduce bucket1"), ("zero-2", "reduce-scatter bucket0")]
        {
            let rule = format!("kind = \"skip-op\"\nrank = {rank}\nop = \"{op}\"\nstep = 0");
            let text = text(strategy, data, "micro_batches = 1", "", &rule);
            let words = format!("it leaves out `{op}`");
            check(&text, &Expected { outcome: "deadlocked", verdict: "none", rank, op, cause: &[&words] });
        }
    }
}

/// Ranks along three axes, of whose collectives one rank leaves out one, or issues two the other way round.
fn cube(tensor: u32, data: u32, expand: bool, rule: &str) -> String {
    format!(
        "[model]\nlayers = 4\nhidden = 16\nheads = 8\nsequence = 8\nvocab = 19\nffn = 24\n[batch]\nmicro_batches = 2\nsteps = 2\n\
         [parallel]\ntensor = {tensor}\ndata = {data}\npipeline = 2\n[data_parallel]\nstrategy = \"zero-1\"\nexpand = {expand}\n{BUCKETS}\
         [[trouble]]\n{rule}\n"
    )
}

/// 6.1 on every axis: who leaves something out is told, not who stands behind whom.
#[test]
fn a_rank_of_a_cube_that_leaves_out_a_collective_is_told() {
    for (tensor, data, rank, op) in [
        (2, 2, 3, "all-reduce blocks.1.mlp.down"),
        (4, 2, 12, "all-reduce blocks.2.attn.proj"),
        (2, 3, 1, "reduce-scatter bucket0"),
        (2, 3, 10, "all-gather bucket1"),
    ] {
        for step in [0, 1] {
            let rule = format!("kind = \"skip-op\"\nrank = {rank}\nop = \"{op}\"\nstep = {step}");
            let words = format!("it leaves out `{op}`");
            let expected = Expected { outcome: "deadlocked", verdict: "none", rank, op, cause: &[&words] };
            check(&cube(tensor, data, false, &rule), &expected);
        }
    }
}

/// 6.2: two collectives of one group in another order. Of three ranks the odd one is told; of two nobody can say which.
#[test]
fn a_rank_that_issues_collectives_in_another_order_is_told() {
    for (tensor, data, rank) in [(2, 3, 3), (2, 5, 11), (1, 8, 6)] {
        let rule = format!("kind = \"swap-ops\"\nrank = {rank}\nop = \"reduce-scatter bucket0\"\nstep = 0");
        let cause = ["before `reduce-scatter bucket0`", "the other way round: ranks of a group must agree"];
        check(
            &cube(tensor, data, false, &rule),
            &Expected { outcome: "deadlocked", verdict: "none", rank, op: "", cause: &cause },
        );
    }
    let rule = "kind = \"swap-ops\"\nrank = 3\nop = \"reduce-scatter bucket0\"\nstep = 0";
    let cause = ["it waits in a circle with r3", "each issues first what the other issues later"];
    check(
        &cube(2, 2, false, rule),
        &Expected { outcome: "deadlocked", verdict: "none", rank: 1, op: "reduce-scatter", cause: &cause },
    );
}

/// 6.16: ranks with other slices of a sequence have the same weights. Whose gradients are not summed over them is told, though nothing
/// hangs.
#[test]
fn gradients_that_are_not_summed_over_slices_are_told() {
    for (context, data) in [(2, 1), (4, 1), (2, 2)] {
        let text = format!(
            "[model]\nlayers = 3\nhidden = 16\nheads = 4\nsequence = 16\nvocab = 19\nffn = 24\n[batch]\nmicro_batches = 2\nsteps = 2\n\
             [parallel]\ncontext = {context}\ndata = {data}\n[data_parallel]\nstrategy = \"ddp\"\nexpand = false\n{BUCKETS}\
             [[trouble]]\nkind = \"skip-op\"\nop = \"all-reduce bucket1\"\n"
        );
        let cause = ["it leaves this op out", "is wrong from here on"];
        let expected = Expected { outcome: "completed", verdict: "wrong", rank: 0, op: "all-reduce bucket1", cause: &cause };
        check(&text, &expected);
    }
}

/// 6.15: causal attention over contiguous slices. The last slice sees most, and the others wait for it; zigzag is even.
#[test]
fn contiguous_slices_make_a_staircase() {
    for context in [2_usize, 4] {
        let busy = |placement: &str| {
            let text = format!(
                "[model]\nlayers = 2\nhidden = 256\nheads = 4\nsequence = 4096\nvocab = 64\nffn = 64\n[batch]\nsteps = 1\n[parallel]\n\
                 context = {context}\n[context_parallel]\nplacement = \"{placement}\"\n[hardware]\ncosts = \"h100-nvlink\"\n[numerics]\n\
                 values = \"shape\"\n"
            );
            metrics(&run(&text)).ranks.iter().map(|rank| rank.busy.0).collect::<Vec<_>>()
        };
        let (stairs, even) = (busy("contiguous"), busy("zigzag"));
        assert!(stairs.is_sorted_by(|a, b| a < b), "{stairs:?}");
        let (least, most) = (even.iter().min().expect("ranks"), even.iter().max().expect("ranks"));
        assert!(most * 100 <= least * 101, "{even:?}");
    }
}

/// 6.13: all is well to the end, where the others wait for a rank that has finished.
#[test]
fn a_rank_whose_data_ends_early_is_told() {
    for (strategy, data, rank, step) in [("ddp", 2, 1, 2), ("ddp", 3, 0, 1), ("zero-3", 8, 7, 2), ("zero-1", 3, 1, 2)] {
        let rule = format!("kind = \"fewer-steps\"\nrank = {rank}\nstep = {step}");
        let text = text(strategy, data, "micro_batches = 2\nsteps = 3", "", &rule);
        let words = format!("it does nothing in step {step}: its steps have ended");
        let run = check(&text, &Expected { outcome: "deadlocked", verdict: "none", rank, op: "", cause: &[&words] });
        let program = run.session.program();
        let is_earlier = |&op: &ranklab::base::OpId| program.op(op).origin.step < step;
        assert!(program.all().filter(is_earlier).all(|op| run.session.trace().times(op).is_some()), "the steps before are done");
    }
    let pipeline =
        "[batch]\nmicro_batches = 3\nsteps = 2\n[parallel]\npipeline = 3\n[[trouble]]\nkind = \"fewer-steps\"\nstep = 1\n";
    for rank in 0..3 {
        let text = format!("{SMALL}{pipeline}rank = {rank}\n");
        check(&text, &Expected { outcome: "deadlocked", verdict: "none", rank, op: "", cause: &["it does nothing in step 1"] });
    }
}

/// 6.19: nothing fails, and everybody is as slow as the slowest.
#[test]
fn stragglers_are_told_by_what_was_to_be_expected() {
    let table = "[hardware]\ncosts = \"laptop\"\n";
    for (data, rank, factor) in [(2, 0, 3.0), (3, 2, 1.5), (8, 4, 2.0)] {
        let rule = |kind: &str, op: &str| format!("kind = \"{kind}\"\nrank = {rank}\nfactor = {factor}\n{op}");
        let of = |rule: &str| text("ddp", data, "micro_batches = 1", table, rule);
        let words = [format!("{factor:.2} times as long"), "it is a straggler".to_owned(), "computations".to_owned()];
        let slow =
            Expected { outcome: "completed", verdict: "expected-drift", rank, op: "", cause: &[&words[0], &words[1], &words[2]] };
        let run = check(&of(&rule("slow-rank", "")), &slow);
        assert_eq!(run.diagnosis.len(), 1, "nobody else is to blame: {:?}", run.diagnosis);
        let without = Lab::new().run(&scenario(&of("").replace("[[trouble]]", ""))).expect("a run");
        assert!(metrics(&run).makespan > metrics(&without).makespan);
        let link = Expected { op: "send", cause: &[&words[0], "messages"], ..slow };
        check(&of(&rule("slow-link", "")), &link);
        let one = Expected { op: "forward blocks.3", cause: &["and so did", "forward blocks.3"], ..slow };
        check(&of(&rule("slow-rank", "op = \"0F0 forward blocks.3\"")), &one);
    }
}

/// 6.22: one rank dies, and the others are found waiting elsewhere.
#[test]
fn a_full_device_is_told_and_who_will_time_out() {
    for (data, rank) in [(2, 1), (3, 0), (8, 3)] {
        let of = |settings: &str, rule: &str| text("zero-3", data, "micro_batches = 1", settings, rule);
        let alone = run(&of("", "").replace("[[trouble]]", ""));
        // Twice what the rank needs, of which it is left four fifths.
        let memory = 2 * metrics(&alone).ranks[rank as usize].peak_bytes.0;
        let settings = format!("[hardware]\nmemory_gb = {}.{:09}", memory / 1_000_000_000, memory % 1_000_000_000);
        let text = of(&settings, &format!("kind = \"less-memory\"\nrank = {rank}\nfactor = 0.4"));
        let cause = ["its device is full", "where other devices have", "would report a time-out", "in `"];
        let run = check(&text, &Expected { outcome: "out-of-memory", verdict: "none", rank, op: "", cause: &cause });
        let Outcome::OutOfMemory { op, .. } = run.session.trace().outcome else { panic!("{text}") };
        assert_eq!(op, run.diagnosis[0].op);
        let other = u32::from(rank == 0);
        assert!(run.diagnosis[0].cause.contains(&format!("r{other}")), "{}", run.diagnosis[0].cause);
    }
}

#[test]
fn faults_that_meet_nothing_say_what_they_need() {
    let check = |strategy: &str, data: u32, rule: &str, expected: &str| {
        let text = text(strategy, data, "micro_batches = 2", "", rule);
        let error = Lab::new().run(&scenario(&text)).err().unwrap_or_else(|| panic!("nothing to meet in\n{text}")).to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("ddp", 1, "kind = \"sum-gradients\"", "several data-parallel ranks");
    check("ddp", 1, "kind = \"sync-every-micro-batch\"", "several micro-batches");
    check("zero-2", 3, "kind = \"sync-every-micro-batch\"", "ddp or zero-1");
    check("zero-3", 3, "kind = \"no-sync-on-last\"", "all-reduce whole gradients");
    check("ddp", 3, "kind = \"read-on-one-rank\"\nrank = 1\nop = \"0F0\"", "zero-3 or fsdp");
    check("ddp", 3, "kind = \"less-memory\"\nrank = 1", "a limit of memory");
    check("ddp", 3, "kind = \"unequal-tokens\"\nrank = 1\nfactor = 1", "a factor below 1");
    check("zero-2", 3, "kind = \"save-without-gather\"", "zero-3 or fsdp");
}

/// The table, the scenarios' keys and this file speak of the same faults; the bugs of attention are `engine::layers`' matter.
#[test]
fn every_fault_is_told_apart() {
    let source = concat!(
        include_str!("faults.rs"),
        include_str!("pipeline_faults.rs"),
        include_str!("tensor.rs"),
        include_str!("experts.rs")
    );
    for fault in FAULTS.iter().filter(|fault| fault.kind.attention_bug().is_none()) {
        let is_general = fault.name == "swap-ops";
        assert!(
            is_general || source.contains(&format!("\\\"{}\\\"", fault.name)) || source.contains(&format!("\"{}\"", fault.name)),
            "{}",
            fault.name
        );
        assert!(!fault.seen.is_empty() && !fault.meaning.is_empty());
    }
}
