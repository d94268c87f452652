//! What tensor-parallel ranks move and keep: the papers' numbers, from runs of shapes.

use ranklab::base::{Bytes, OpId, Rank};
use ranklab::observe::ledger::State;
use ranklab::observe::traffic::whole_sent;
use ranklab::observe::{Ledger, Run as Observed};
use ranklab::program::plan::Pass;
use ranklab::program::{Kernel, OpKind, PassName, Program, Role};

use crate::support::scenario;

/// Shapes in half precision, one micro-batch, every collective one operation.
pub(super) fn text(model: &str, parallel: &str) -> String {
    sharded(model, parallel, "ddp")
}

fn sharded(model: &str, parallel: &str, strategy: &str) -> String {
    format!(
        "[model]\n{model}[batch]\nmicro_batches = 1\nsteps = 1\n[numerics]\nvalues = \"shape\"\ndtype = \"bf16\"\n\
         [data_parallel]\nexpand = false\nstrategy = \"{strategy}\"\n[parallel]\n{parallel}"
    )
}

/// Payloads and bytes sent of the collectives inside the layers of one micro-batch on rank 0: forward, backward, and gathers for weights.
pub(super) fn inside_layers(text: &str) -> [(Vec<u64>, u64); 3] {
    let run = ranklab::lab::Lab::new().run(&scenario(text)).expect("a run of shapes");
    let observed = Observed::new(run.session.program(), run.session.trace());
    let program = observed.program;
    let mut all = [(Vec::new(), 0), (Vec::new(), 0), (Vec::new(), 0)];
    for &op in &program.order[0] {
        let view = program.op(op);
        let (OpKind::Collective(id), Some(slot)) = (view.kind, view.origin.slot) else { continue };
        let collective = &program.collectives[id.index()];
        if collective.label.starts_with("blocks.") && !collective.label.ends_with("gradients") {
            let (payloads, sent) = &mut all[match (slot.pass, view.origin.pass) {
                (Pass::F, _) => 0,
                (_, PassName::Recompute) => 2,
                _ => 1,
            }];
            payloads.push(collective.bytes.0);
            *sent += whole_sent(&observed, collective).0;
        }
    }
    all
}

/// 40 layers of hidden 4,096 over 4,096 tokens: 32 MiB a tensor, two of them a layer and way.
const FORTY: &str = "layers = 40\nhidden = 4096\nheads = 32\nsequence = 4096\nvocab = 32000\n";
const TENSOR: u64 = 33_554_432;

#[test]
fn a_layer_sums_two_tensors_each_way() {
    for tensor in [2, 4, 8] {
        let [forward, backward, again] = inside_layers(&text(FORTY, &format!("tensor = {tensor}\n")));
        for (payloads, sent) in [&forward, &backward] {
            assert_eq!((payloads.len(), payloads.iter().all(|&bytes| bytes == TENSOR)), (80, true));
            assert_eq!(payloads.iter().sum::<u64>(), 2_684_354_560);
            // Around a ring: 2 (t - 1) / t of it.
            assert_eq!(*sent, 2_684_354_560 / tensor * 2 * (tensor - 1));
        }
        assert_eq!(forward.0.iter().chain(&backward.0).sum::<u64>(), 5_368_709_120);
        assert!(again.0.is_empty());
    }
}

/// A reduce-scatter and a gather move what an all-reduce moves. Backward gathers the inputs of two products more, so as not to keep them.
#[test]
fn sharing_tokens_moves_the_same_bytes() {
    let tokens = |tensor: u64| format!("tensor = {tensor}\n[tensor_parallel]\nsequence_parallel = true\n");
    for tensor in [2, 8] {
        let plain = inside_layers(&text(FORTY, &format!("tensor = {tensor}\n")));
        let shared = inside_layers(&text(FORTY, &tokens(tensor)));
        assert_eq!([shared[0].1, shared[1].1], [plain[0].1, plain[1].1]);
        assert_eq!((shared[0].0.len(), shared[2].0.len()), (160, 80));
        assert_eq!(shared[2].1 * 2, shared[1].1);
    }
}

/// Full recomputation runs forward's two sums of each layer again.
#[test]
fn recomputation_sums_again() {
    let [.., again] = inside_layers(&text(FORTY, "tensor = 4\n[recompute]\nmode = \"full\"\n"));
    assert_eq!(again.0.iter().sum::<u64>(), 2_684_354_560);
}

/// Bytes of activations on rank 0 behind the last layer's forward.
fn activations(model: &str, layers: usize, parallel: &str) -> u64 {
    let run = ranklab::lab::Lab::new().run(&scenario(&text(&format!("{model}layers = {layers}\n"), parallel))).expect("shapes");
    let observed = Observed::new(run.session.program(), run.session.trace());
    let program = observed.program;
    let is_head = |op: &&OpId| match program.kind(**op) {
        OpKind::Run(kernel) => program.kernels[kernel.index()].kernel == Kernel::LoadTargets,
        _ => false,
    };
    let head = *program.order[0].iter().find(is_head).expect("the head loads its targets behind the last layer");
    let events = run.session.trace().event_of(head).expect("it ran");
    Ledger::new(&observed).rank(Rank(0)).after(events - 1).by_role[Role::Activation as usize].0
}

/// Hundredths of s b h that one more layer of GPT-3 keeps on each of 8 ranks (Korthikanti et al. 2022, table 2).
#[track_caller]
fn check_layer(parallel: &str, hundredths: u64) {
    let model = "preset = \"gpt3-175b\"\nsequence = 2048\nvocab = 51200\n";
    let bytes = activations(model, 3, parallel) - activations(model, 2, parallel);
    assert_eq!(bytes * 100, hundredths * 2048 * 12_288, "{parallel}");
}

#[test]
fn a_layer_of_gpt_3_keeps_what_the_paper_says() {
    check_layer("tensor = 1\n", 11_400);
    check_layer("tensor = 8\n", 2_300);
    check_layer("tensor = 8\n[recompute]\nmode = \"selective\"\n", 1_300);
    check_layer("tensor = 8\n[tensor_parallel]\nsequence_parallel = true\n", 1_425);
    check_layer("tensor = 8\n[tensor_parallel]\nsequence_parallel = true\n[recompute]\nmode = \"selective\"\n", 425);
}

fn state(program: &Program) -> Vec<Bytes> {
    let sum = |State { parameter, gradient, optimizer }: &State| *parameter + *gradient + *optimizer;
    ranklab::observe::ledger::state(program).iter().map(sum).collect()
}

/// 72 billion parameters on 64 ranks: the mean over the ranks is the closed form; embeddings, head and norms stand where they stand.
#[track_caller]
fn check_72b(parallel: &str, strategy: &str, gigabytes: f64) {
    let model = "preset = \"72b\"\ntied = false\nbytes_per_parameter = \"mixed-adam-16\"\n";
    let text =
        sharded(model, parallel, strategy).replace("micro_batches = 1", "micro_batches = 4").replace("dtype = \"bf16\"\n", "");
    let states = state(&ranklab::compile::compile(&scenario(&text)).program);
    let total: u64 = states.iter().map(|bytes| bytes.0 / 1_000_000).sum();
    let mean =
        f64::from(u32::try_from(total).expect("a few terabytes")) / 1e3 / f64::from(u32::try_from(states.len()).expect("few"));
    assert!((mean / gigabytes - 1.0).abs() < 0.01, "{mean} is not {gigabytes}: {parallel} {strategy}");
}

#[test]
fn seventy_two_billion_fit_64_cards() {
    check_72b("tensor = 8\npipeline = 4\ndata = 2\n", "ddp", 36.0);
    check_72b("tensor = 8\npipeline = 4\ndata = 2\n", "zero-1", 22.5);
    check_72b("tensor = 8\npipeline = 2\ndata = 4\n", "ddp", 72.0);
    check_72b("tensor = 8\npipeline = 2\ndata = 4\n", "zero-1", 31.5);
}
