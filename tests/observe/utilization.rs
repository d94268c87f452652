//! MFU and HFU: shares of the peak, by definition, of a clock that is modelled.

#![expect(clippy::cast_precision_loss, reason = "FLOPs and bytes as shares")]

use ranklab::lab::{Lab, Run};
use ranklab::observe::Report;
use ranklab::observe::slack::Slack;

use crate::support::scenario;

fn report(text: &str) -> (Report, Run) {
    let run = Lab::new().run(&scenario(text)).expect("a run");
    let observed = run.observed();
    let report = Report::new(&observed.run, observed.metrics(), &Slack::new(&observed.run), run.given());
    drop(observed);
    (report, run)
}

const SEVEN: &str = "[model]\npreset = \"llama-7b\"\n[batch]\nmicro_batches = 2\nsteps = 1\n[numerics]\nvalues = \"shape\"\ndtype = \"bf16\"\n\
                     [parallel]\ndata = 8\n[data_parallel]\nstrategy = \"fsdp\"\n";

/// FLOPs over ranks, peak and time; without recomputation both shares are one, with it they differ as the FLOPs do.
#[test]
fn utilization_is_a_share_of_the_peak() {
    for (costs, peak, achieved) in [("h100-nvlink", 989.4e12, 794.5e12), ("a100-nvlink", 312e12, 271.2e12)] {
        for mode in ["none", "full"] {
            let text = format!("{SEVEN}[hardware]\ncosts = \"{costs}\"\nmemory_gb = 1000\n[recompute]\nmode = \"{mode}\"\n");
            let (report, _) = report(&text);
            let (mfu, hfu) = (report.mfu.expect("a peak is known"), report.hfu.expect("a peak is known"));
            let share = |flops: u128| flops as f64 / (8.0 * peak * report.makespan / 1e9);
            assert!((mfu - share(report.flops.model)).abs() < 1e-12 && (hfu - share(report.flops.hardware)).abs() < 1e-12);
            assert!(mfu > 0.1 && hfu < achieved / peak, "{costs}: {mfu} {hfu}");
            // Four passes in place of three, but for the head.
            let ratio = hfu / mfu;
            assert!(
                if mode == "full" { (1.32..4.0 / 3.0).contains(&ratio) } else { (ratio - 1.0).abs() < 1e-12 },
                "{mode}: {ratio}"
            );
            assert_eq!(report.clock.kind, "modelled");
        }
    }
}

/// 6 P T FLOPs and 12 l h t T of attention, P without the embedding (Narayanan et al. 2021, appendix).
#[test]
fn model_flops_are_the_papers() {
    let (report, run) = report(&format!("{SEVEN}[hardware]\ncosts = \"h100-nvlink\"\nmemory_gb = 1000\n"));
    let model = run.session.program().setting.model.as_ref().expect("a model");
    let (l, h, t, v) = (model.layers as u64, model.hidden as u64, model.sequence as u64, model.vocab as u64);
    let norms = (2 * l + 1) * h;
    let weights = model.parameter_count() as u64 - v * h - norms;
    let tokens = 8 * 2 * t;
    assert_eq!(report.flops.model, u128::from(6 * weights * tokens + 12 * l * h * t * tokens));
}

#[test]
fn without_time_or_peak_there_is_no_utilization() {
    for costs in ["costs = \"unit\"", "costs = \"laptop\"\nmemory_gb = 1000"] {
        let (report, _) = report(&format!("{SEVEN}[hardware]\n{costs}\n"));
        assert_eq!((report.mfu, report.hfu), (None, None), "{costs}");
    }
    let (report, _) =
        report(&format!("{SEVEN}[hardware]\ncosts = \"laptop\"\nmemory_gb = 1000\n[hardware.device]\npeak_flops = 2\n"));
    assert!(report.mfu.is_some_and(|mfu| mfu < 0.1));
    let (full, _) = report_of_a_full_card();
    assert_eq!((full.mfu, full.outcome), (None, "out-of-memory"));
}

fn report_of_a_full_card() -> (Report, Run) {
    report(&format!("{SEVEN}[hardware]\ncosts = \"h100-nvlink\"\nmemory_gb = 20\n"))
}
