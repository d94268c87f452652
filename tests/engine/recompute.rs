//! Recomputation: the same bits for less memory and more work, and the papers' activation tables.

use ranklab::base::Rank;
use ranklab::observe::volume::Flops;
use ranklab::observe::{Ledger, Metrics, Run as Observed};
use ranklab::program::{Kernel, OpKind, Role};

use crate::support::{SMALL, run, scenario};

/// Three steps with a mode of recomputation equal one device, which recomputes nothing, bit for bit.
fn check(mesh: &str, recompute: &str) {
    let text = format!(
        "{SMALL}[batch]\nmicro_batches = 3\nsteps = 3\n[parallel]\n{mesh}\n[recompute]\n{recompute}\n[numerics]\nexact = true\n"
    );
    let run = run(&text);
    assert_eq!(run.verdict.name(), "equal", "{text}");
    let findings = ranklab::program::check::check(run.session.program());
    assert!(findings.is_empty(), "{findings:?} for\n{text}");
}

#[test]
fn what_is_computed_again_has_the_same_bits() {
    for mode in ["selective", "full"] {
        for every in [1, 2] {
            for mesh in ["data = 1", "pipeline = 2", "data = 2\n[data_parallel]\nstrategy = \"fsdp\""] {
                check(mesh, &format!("mode = \"{mode}\"\nevery = {every}"));
            }
        }
    }
}

/// Bytes of activations behind the last layer's forward, and the FLOPs of a step: `layers` layers of a model on one rank.
fn measure(model: &str, layers: usize, mode: &str) -> (u64, Flops) {
    let text = format!(
        "[model]\n{model}layers = {layers}\n[batch]\nmicro_batches = 1\nsteps = 1\n[recompute]\nmode = \"{mode}\"\n\
         [numerics]\nvalues = \"shape\"\ndtype = \"bf16\"\n"
    );
    let lab = ranklab::lab::Lab::new().run(&scenario(&text)).expect("a run of shapes");
    let observed = Observed::new(lab.session.program(), lab.session.trace());
    let program = observed.program;
    let ledger = Ledger::new(&observed);
    let is_head = |op: &ranklab::base::OpId| {
        let OpKind::Run(kernel) = program.kind(*op) else { return false };
        matches!(program.kernels[kernel.index()].kernel, Kernel::LoadTargets)
    };
    let head = program.all().find(is_head).expect("the head loads its targets behind the last layer");
    let events = lab.session.trace().event_of(head).expect("it ran");
    let activations = ledger.rank(Rank(0)).after(events - 1).by_role[Role::Activation as usize];
    (activations.0, Metrics::new(&observed, &ledger).flops)
}

/// FLOPs of a step with full recomputation: 96 B t l h^2 (1 + t / 6h + v / 16lh) (Narayanan et al. 2021, appendix), B sequences of t tokens.
fn check_flops(layers: u64, hidden: u64, heads: u64) {
    let model = format!("preset = \"mt-530b\"\nhidden = {hidden}\nheads = {heads}\n");
    let (t, v) = (2048, 51_200);
    let formula = 96 * t * layers * hidden * hidden + 16 * t * t * layers * hidden + 6 * t * hidden * v;
    let layers = usize::try_from(layers).expect("a few layers");
    assert_eq!(measure(&model, layers, "full").1.hardware, u128::from(formula), "{layers} layers of {hidden}");
}

#[test]
fn hardware_flops_are_megatrons() {
    check_flops(24, 2304, 24);
    check_flops(48, 8192, 64);
    check_flops(105, 20_480, 128);
    check_flops(128, 25_600, 160);
}

/// Bytes that one more layer keeps: the difference of two models.
fn per_layer(model: &str, mode: &str) -> u64 {
    measure(model, 3, mode).0 - measure(model, 2, mode).0
}

/// MiB of activations a layer without recomputation, with selective, and with full (Korthikanti et al. 2022, table 2, one rank).
fn check_activations(heads: u64, hidden: u64, size: u64, mib: [u64; 3]) {
    let model = format!("preset = \"gpt3-175b\"\nhidden = {hidden}\nheads = {heads}\nvocab = 51200\n");
    let model = format!("{model}sequence = 2048\n");
    let text = |mode: &str| per_layer(&model, mode) * size;
    let sbh = 2048 * hidden * size;
    assert_eq!(text("none"), sbh * 34 + 5 * heads * 2048 * 2048 * size, "h = {hidden}");
    assert_eq!(text("selective"), sbh * 34, "h = {hidden}");
    assert_eq!(text("full"), 2 * sbh, "h = {hidden}");
    assert_eq!([text("none"), text("selective"), text("full")].map(|bytes| bytes >> 20), mib, "h = {hidden}");
}

#[test]
fn activations_are_those_of_the_paper() {
    check_activations(64, 6144, 4, [6752, 1632, 96]);
    check_activations(96, 12_288, 1, [2736, 816, 48]);
    check_activations(128, 20_480, 1, [3920, 1360, 80]);
    check_activations(160, 25_600, 1, [4900, 1700, 100]);
}

#[test]
fn recomputation_costs_what_the_paper_says() {
    let model = "preset = \"gpt3-175b\"\nvocab = 51200\n";
    let flops = |mode: &str| measure(model, 96, mode).1;
    let (none, selective, full) = (flops("none"), flops("selective"), flops("full"));
    assert_eq!(none.model, none.hardware);
    assert_eq!((none.model, none.model), (selective.model, full.model));
    let percent = |extra: u128, of: u128| extra * 10_000 / of;
    // The forward pass is a third of a step.
    let forward = none.model / 3;
    assert_eq!(percent(selective.hardware - none.model, forward) / 10, 26, "2.7 % of the forward, rounded down with the head's");
    assert_eq!(percent(selective.hardware - none.model, none.model), 89, "0.90 % of the step, with the head's FLOPs in it");
    assert!((3250..=3334).contains(&percent(full.hardware - none.model, none.model)), "a third of the step, but for the head");
}
