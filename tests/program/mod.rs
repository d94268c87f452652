//! The language: program texts, the static check, stored traces.

mod check;
mod edit;
mod pytorch;
mod record;
mod sheet;
mod text;

use proptest::prelude::*;

use crate::support::{SMALL, scenario};
use ranklab::base::settings::{AllReduce, PointToPoint, Recompute};
use ranklab::scenario::Scenario;

/// A small training job with one choice of everything that programs depend on.
fn training() -> impl Strategy<Value = Scenario> {
    let schedule = prop::sample::select(vec!["naive", "gpipe", "1f1b"]);
    let p2p = prop::sample::select(PointToPoint::NAMES.to_vec());
    let all_reduce = prop::sample::select(AllReduce::NAMES.to_vec());
    let strategy = prop::sample::select(vec!["ddp", "ddp", "zero-1", "fsdp"]);
    let recompute = prop::sample::select(Recompute::NAMES.to_vec());
    let sizes = (1..=3_usize, 1..=3_usize, 1..=4_u32, 1..=2_u32);
    let names = (schedule, p2p, all_reduce, strategy, recompute);
    (names, sizes, any::<[bool; 3]>()).prop_map(
        |((schedule, p2p, all_reduce, strategy, recompute), (data, pipeline, m, steps), [exact, overlap, no_sync])| {
            scenario(&format!(
                "{SMALL}[batch]\nmicro_batches = {m}\nsteps = {steps}\n[parallel]\ndata = {data}\npipeline = {pipeline}\n\
                 [data_parallel]\nall_reduce = \"{all_reduce}\"\nbucket_mib = 0.01\nfirst_bucket_mib = 0.002\noverlap = {overlap}\n\
                 strategy = \"{strategy}\"\nno_sync = {no_sync}\n[recompute]\nmode = \"{recompute}\"\n\
                 [pipeline]\nschedule = \"{schedule}\"\np2p = \"{p2p}\"\n[hardware]\nranks_per_node = {data}\n[numerics]\nexact = {exact}\n"
            ))
        },
    )
}

/// A bare collective.
fn collective() -> impl Strategy<Value = Scenario> {
    (prop::sample::select(AllReduce::NAMES.to_vec()), 2..=5_usize).prop_map(|(algorithm, ranks)| {
        let per_node = if ranks.is_multiple_of(2) { 2 } else { ranks };
        scenario(&format!(
            "[collective]\nkind = \"all-reduce\"\nbytes = 4096\nranks = {ranks}\nalgorithm = \"{algorithm}\"\n\
             [hardware]\nranks_per_node = {per_node}\n"
        ))
    })
}
