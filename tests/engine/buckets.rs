//! Gradient buckets of real models, from their parameters' shapes alone.

use ranklab::base::Bytes;
use ranklab::compile;

use crate::support::scenario;

/// Compiles two replicas of a model, and reads the buckets of the first step off the program.
fn check(model: &str, cap: f64, count: usize, last: f64, total: f64) {
    let text = format!(
        "[model]\n{model}\n[batch]\nmicro_batches = 1\nsteps = 1\n[parallel]\ndata = 2\n[data_parallel]\nbucket_mib = {cap}\n[numerics]\nvalues = \"shape\"\n"
    );
    let program = compile::compile(&scenario(&text)).program;
    let sizes: Vec<Bytes> = program.collectives.iter().map(|collective| collective.bytes).collect();
    let mib = |bytes: Bytes| f64::from(u32::try_from(bytes.0 >> 10).expect("a few GiB")) / 1024.0;
    assert_eq!(sizes.len(), count, "{model} with {cap} MiB");
    assert!((mib(*sizes.last().expect("a bucket")) - last).abs() < 0.06, "last bucket of {model}: {} MiB", mib(sizes[count - 1]));
    assert!((mib(sizes.iter().copied().sum()) - total).abs() < 0.06, "all buckets of {model}");
}

#[test]
fn buckets_are_those_of_pytorch() {
    check("preset = \"llama-7b\"\nparameter_dtype = \"bf16\"", 25.0, 226, 250.0, 12852.5);
    check("preset = \"llama-7b\"\nparameter_dtype = \"bf16\"", 100.0, 82, 250.0, 12852.5);
    check("preset = \"gpt2\"", 25.0, 13, 168.3, 474.7);
    check("preset = \"gpt2\"\nparameter_dtype = \"bf16\"", 25.0, 7, 97.7, 237.4);
}
