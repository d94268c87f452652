//! Training steps whose sequences several ranks share: the numbers against one device's, beside all other axes.

use ranklab::base::OpId;
use ranklab::lab::{Lab, Run, Verdict};
use ranklab::observe::Run as Observed;
use ranklab::program::trace::{Outcome, Times};
use ranklab::program::{Kernel, OpKind, check as findings};

use crate::support::{head_of, run, scenario};

const GPT: &str = "layers = 4\nhidden = 48\nheads = 8\nvocab = 31\nffn = 40\nbias = \"all\"\n";
const LLAMA: &str = "layers = 2\nhidden = 48\nheads = 12\nkv_heads = 3\nvocab = 29\nffn = 60\nbias = \"none\"\nnorm = \"rms\"\n\
    activation = \"swiglu\"\npositions = \"rotary\"\nfused_qkv = false\n";

/// Two micro-batches of two sequences on `parallel`, with further sections behind it.
fn text(model: &str, sequence: usize, parallel: &str, more: &str) -> String {
    format!(
        "[model]\n{model}sequence = {sequence}\n[batch]\nmicro_batches = 2\nmicro_batch_size = 2\nsteps = 3\n[optimizer]\nkind = \"sgd\"\n\
         lr = 0.1\n[parallel]\n{parallel}\n{more}"
    )
}

/// Runs it, and holds it against one device.
#[track_caller]
fn check(text: &str) -> Run {
    let run = run(text);
    assert_eq!(run.session.trace().outcome, Outcome::Completed, "{text}");
    assert!(["equal", "expected-drift"].contains(&run.verdict.name()), "{:?} for\n{text}", run.verdict);
    assert_eq!(findings(run.session.program()), [], "{text}");
    assert!(run.losses[2] < run.losses[0], "the loss falls: {:?}\n{text}", run.losses);
    run
}

#[test]
fn slices_of_sequences_compute_what_one_device_does() {
    for method in ["ring", "all-gather", "ulysses"] {
        for (placement, context, sequence) in
            [("contiguous", 2, 6), ("zigzag", 2, 12), ("striped", 3, 9), ("zigzag", 3, 18), ("contiguous", 5, 5)]
        {
            let parallel = format!("context = {context}\n[context_parallel]\nmethod = \"{method}\"\nplacement = \"{placement}\"");
            // Ulysses shares out heads, of keys, too.
            let fits = |kv_heads: usize| method != "ulysses" || kv_heads.is_multiple_of(context);
            for (model, _) in [(GPT, 8), (LLAMA, 3)].into_iter().filter(|(_, kv_heads)| fits(*kv_heads)) {
                check(&text(model, sequence, &parallel, ""));
                check(&text(model, sequence, &parallel, "[numerics]\ndtype = \"f64\"\n"));
            }
        }
    }
}

/// The tensors of each slice's layers may be shared out as well, and its tokens, and the replicas' state, and the stages.
#[test]
fn other_axes_stand_beside_slices() {
    for parallel in [
        "context = 2\ntensor = 2",
        "context = 2\ntensor = 2\n[tensor_parallel]\nsequence_parallel = true",
        "context = 2\ndata = 3",
        "context = 3\ndata = 2\n[data_parallel]\nstrategy = \"zero-1\"\nbucket_mib = 0.01",
        "context = 2\ndata = 2\n[data_parallel]\nstrategy = \"zero-2\"\nbucket_mib = 0.01",
        "context = 2\ndata = 2\norder = \"dp-cp-tp-pp\"\n[data_parallel]\nstrategy = \"zero-3\"",
        "context = 2\ndata = 2\n[data_parallel]\nstrategy = \"fsdp\"\n[fsdp]\nshard_size = 2",
        "context = 2\npipeline = 2",
        "context = 2\npipeline = 2\n[pipeline]\nschedule = \"zb-h1\"",
        "context = 2\npipeline = 2\ntensor = 3\ndata = 2\n[data_parallel]\nstrategy = \"fsdp\"",
        "context = 2\n[recompute]\nmode = \"full\"",
        "context = 2\n[recompute]\nmode = \"selective\"",
        "context = 2\n[data_parallel]\nexpand = false",
        "context = 2\n[context_parallel]\nmethod = \"all-gather\"\n[data_parallel]\nexpand = false",
        "context = 2\n[context_parallel]\nmethod = \"all-gather\"\n[recompute]\nmode = \"full\"",
    ] {
        // Two ranks do not divide three key and value heads, nor three ranks eight heads.
        if !parallel.contains("tensor = 2") {
            check(&text(LLAMA, 12, parallel, ""));
        }
        if !parallel.contains("tensor = 3") {
            check(&text(GPT, 12, parallel, "[numerics]\ndtype = \"f64\"\n"));
        }
    }
}

#[test]
fn slices_in_half_precision_drift_no_more_than_they_may() {
    let model = format!("{LLAMA}parameter_dtype = \"bf16\"\n");
    for parallel in ["context = 2", "context = 2\ntensor = 3"] {
        check(&text(&model, 12, parallel, ""));
    }
}

/// An element has its number among those of whole sequences, whoever has it: what one device drops is dropped, of attention's weights, too.
#[test]
fn slices_drop_what_one_device_drops() {
    let (gpt, llama) = (format!("{GPT}dropout = 0.3\n"), format!("{LLAMA}dropout = 0.2\n"));
    for (model, parallel, rest) in [
        (&gpt, "context = 2", ""),
        (&gpt, "context = 3\n[context_parallel]\nplacement = \"striped\"", "[numerics]\ndtype = \"f64\"\n"),
        (&llama, "context = 2\n[context_parallel]\nmethod = \"all-gather\"", "[recompute]\nmode = \"full\"\n"),
        (&llama, "context = 3\n[context_parallel]\nmethod = \"ulysses\"", "[numerics]\ndtype = \"f64\"\n"),
        (&gpt, "context = 2\ntensor = 2\n[context_parallel]\nmethod = \"ulysses\"", "[recompute]\nmode = \"selective\"\n"),
        (&llama, "context = 2\ntensor = 3\ndata = 2", "[tensor_parallel]\nsequence_parallel = false\n"),
        (&gpt, "context = 2\ntensor = 2\n[tensor_parallel]\nsequence_parallel = true", "[numerics]\ndtype = \"f64\"\n"),
        (&gpt, "context = 2\npipeline = 2\ndata = 2\nexpert = 4\n[experts]\ncount = 4", ""),
    ] {
        let text = text(model, 12, parallel, rest);
        let run = run(&text);
        assert!(["equal", "expected-drift"].contains(&run.verdict.name()), "{:?} for\n{text}", run.verdict);
        assert_eq!(findings(run.session.program()), [], "{text}");
    }
}

/// Ulysses beside the other axes: each rank of a group that shares tensors shares its heads once more.
#[test]
fn heads_are_swapped_for_tokens() {
    for parallel in [
        "context = 4\ntensor = 2\n[tensor_parallel]\nsequence_parallel = true",
        "context = 2\ntensor = 4",
        "context = 2\ndata = 2\n[data_parallel]\nstrategy = \"zero-3\"",
        "context = 2\npipeline = 2\n[pipeline]\nschedule = \"zb-h1\"",
        "context = 8\norder = \"dp-cp-tp-pp\"\n[recompute]\nmode = \"full\"",
        "context = 2\n[recompute]\nmode = \"selective\"\n[data_parallel]\nexpand = false",
    ] {
        let (parallel, sections) = parallel.split_once("\n[").map_or((parallel, String::new()), |(a, b)| (a, format!("[{b}")));
        let ulysses = format!("{sections}\n[context_parallel]\nmethod = \"ulysses\"\n");
        check(&text(GPT, 32, parallel, &ulysses));
        check(&text(GPT, 32, parallel, &format!("{ulysses}placement = \"contiguous\"\n[numerics]\ndtype = \"f64\"\n")));
    }
    let half = format!("{LLAMA}parameter_dtype = \"bf16\"\n");
    check(&text(&half, 12, "context = 3", "[context_parallel]\nmethod = \"ulysses\"\nplacement = \"striped\"\n"));
}

/// The loss of a step is the mean over the tokens of all slices.
#[test]
fn losses_are_those_of_one_device() {
    let one = run(&text(GPT, 12, "data = 2", ""));
    for parallel in ["context = 2\ndata = 2", "context = 3\ndata = 2\ntensor = 2", "context = 2\ndata = 2\npipeline = 2"] {
        let losses = check(&text(GPT, 12, parallel, "")).losses;
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
        assert!(losses.len() == 3 && losses.iter().zip(&one.losses).all(close), "{losses:?}, {:?}: {parallel}", one.losses);
    }
}

/// What goes wrong where ranks meet for attention, or for gradients, is named by the op where it shows first.
#[test]
fn faults_among_slices_of_sequences_are_named() {
    let wrong = |sections: &str, expected: &str| {
        let text = text(GPT, 12, "context = 2", sections);
        let run = run(&text);
        let Verdict::Wrong { first_difference, .. } = &run.verdict else { panic!("{:?} for\n{text}", run.verdict) };
        assert_eq!(head_of(&run, first_difference.op), expected, "{text}");
    };
    let gather = "[context_parallel]\nmethod = \"all-gather\"\n[[trouble]]\nkind = \"skip-op\"\n";
    wrong(&format!("{gather}op = \"all-gather kv blocks.2.attn\"\nstep = 1\n"), "all-gather kv blocks.2.attn (skipped)");
    wrong(&format!("{gather}op = \"reduce-scatter dkv\"\n"), "reduce-scatter dkv blocks.3.attn (skipped)");
    let swap = gather.replace("all-gather", "ulysses");
    wrong(&format!("{swap}op = \"all-to-all kv\"\n"), "all-to-all kv blocks.0.attn (skipped)");
    wrong("[[trouble]]\nkind = \"skip-op\"\nop = \"all-reduce bucket0\"\nstep = 2\n", "all-reduce bucket0 (skipped)");
}

/// All but those that come home are there before the block that they are added to is through.
#[test]
fn gradients_of_keys_travel_while_blocks_are_computed() {
    const RANKS: usize = 4;
    let text = format!(
        "[layer]\nkind = \"attention\"\n[model]\nhidden = 1024\nheads = 8\nsequence = 32768\n[parallel]\ncontext = {RANKS}\n\
         [numerics]\nvalues = \"shape\"\ndtype = \"bf16\"\n[hardware]\ncosts = \"h100-nvlink\"\n"
    );
    let run = Lab::new().run(&scenario(&text)).expect("a run of shapes");
    let observed = Observed::new(run.session.program(), run.session.trace());
    let program = observed.program;
    for order in &program.order {
        let times = |is_it: &dyn Fn(OpId) -> bool| -> Vec<_> {
            order.iter().copied().filter(|&op| is_it(op)).map(|op| observed.times(op).expect("it ran")).collect()
        };
        let blocks = times(&|op| program.kernel_of(op) == Some(Kernel::AttendBackward));
        let came = times(&|op| program.streams[program.stream_of(op).index()].name == "cp.dkv.in");
        assert_eq!((blocks.len(), came.len()), (RANKS, RANKS));
        for come in &came[..RANKS - 1] {
            let is_behind = |block: &Times| block.start <= come.start && come.end <= block.end;
            assert!(blocks.iter().any(is_behind), "{come:?} behind {blocks:?}");
        }
    }
}

/// Keys and values go around the ring once forward and once backward, and their gradients once: of each micro-batch and layer, on streams
/// of their own.
#[test]
fn keys_travel_around_the_ring() {
    let run = check(&text(GPT, 12, "context = 3", "[data_parallel]\nexpand = false\n"));
    let program = run.session.program();
    let (layers, micro_batches, steps) = (4, 2, 3);
    for order in &program.order {
        let sends = |stream: &str| {
            let is_it = |op: &&OpId| {
                let is_send = matches!(program.kind(**op), OpKind::Send(_));
                is_send && program.streams[program.stream_of(**op).index()].name == stream
            };
            order.iter().filter(is_it).count()
        };
        assert_eq!(sends("cp.kv.out"), 2 * 2 * layers * micro_batches * steps);
        assert_eq!(sends("cp.dkv.out"), 3 * layers * micro_batches * steps);
    }
}

/// A program of slices reads back as the same program.
#[test]
fn a_program_of_slices_of_sequences_is_text() {
    let run = check(&text(LLAMA, 12, "context = 2\ntensor = 3", ""));
    let text = run.session.program().to_string();
    let back = ranklab::program::text::parse(&text).expect("a program");
    assert_eq!(*run.session.program().as_ref(), back);
}
