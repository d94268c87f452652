//! Exports: one whole model under its own names, which another implementation computes the same loss with; and the trap.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor};
use ranklab::checkpoint::{Broken, Checkpoint, export};
use ranklab::engine::kernels::cpu::{Dims, data};
use safetensors::SafeTensors;

use super::{finish, text};
use crate::numerics::oracle;
use crate::support::scenario;

fn gathered(state: &Checkpoint) -> Vec<u8> {
    export::gathered(&state.manifest, &state.whole("test").expect("a whole model")).expect("a file")
}

/// The mean loss of the three micro-batches of step 2, computed by candle's own operations from an exported file.
fn loss_of_file(bytes: &[u8], state: &Checkpoint) -> f64 {
    let tensors = SafeTensors::deserialize(bytes).expect("a safetensors file");
    let tensor = |(name, view): (&str, safetensors::tensor::TensorView)| {
        assert_eq!(view.dtype(), safetensors::Dtype::F32);
        let numbers = view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
        (name.to_owned(), Tensor::from_vec(numbers.collect(), view.shape(), &Device::Cpu).expect("its shape"))
    };
    let values: BTreeMap<String, Tensor> = tensors.iter().map(tensor).collect();
    let segment = ranklab::base::model::Segment::WHOLE;
    let dims = Dims { model: state.manifest.model.clone(), micro_batch_size: 1, grid: None, segment, half: false };
    let loss = |sample| {
        let (tokens, targets) = data::batch(sample, &dims, 0).expect("data");
        let outcome = oracle::run(&dims.model, &values, &BTreeMap::new(), &tokens, &targets).expect("a loss");
        outcome.loss.to_dtype(DType::F64).and_then(|loss| loss.to_scalar::<f64>()).expect("a number")
    };
    (6..9).map(loss).sum::<f64>() / 3.0
}

#[test]
fn an_export_is_one_whole_model() {
    for (strategy, mesh, micro_batches) in [("ddp", (3, 1), 1), ("zero-3", (3, 1), 1), ("fsdp", (1, 3), 3), ("zero-2", (3, 1), 1)]
    {
        let scenario_of = |steps| scenario(&text(strategy, mesh, micro_batches, steps, ""));
        let (longer, _) = finish(&scenario_of(3));
        let (_, state) = finish(&scenario_of(2));
        let file = gathered(&state);
        let about = export::check("model.safetensors", &file).unwrap_or_else(|broken| panic!("{}", broken.problems()));
        assert_eq!((about.step, &about.model), (2, &state.manifest.model));
        let (expected, loss) = (longer.losses[2], loss_of_file(&file, &state));
        assert!((loss - expected).abs() < 1e-5, "{strategy}: {loss} of the file, {expected} of the run that went on");
    }
}

/// Ranks that share the tensors of layers have between them the model that one device has, and so have ranks that share sequences.
#[test]
fn slices_are_gathered() {
    let one = finish(&scenario(&text("ddp", (1, 1), 3, 3, ""))).0;
    for (parallel, strategy, more) in [
        ("tensor = 3\n", "ddp", ""),
        ("tensor = 3\n", "fsdp", "[tensor_parallel]\nsequence_parallel = false\n"),
        ("context = 11\n", "zero-3", "[context_parallel]\nplacement = \"striped\"\n"),
        ("tensor = 3\ncontext = 11\n", "zero-1", "[context_parallel]\nplacement = \"contiguous\"\n"),
    ] {
        let text = text(strategy, (1, 1), 3, 2, more).replacen("[parallel]\n", &format!("[parallel]\n{parallel}"), 1);
        let (_, state) = finish(&scenario(&text));
        let file = gathered(&state);
        export::check("model.safetensors", &file).unwrap_or_else(|broken| panic!("{}", broken.problems()));
        let loss = loss_of_file(&file, &state);
        assert!((loss - one.losses[2]).abs() < 1e-5, "{parallel}: {loss} of the file, {} of one device", one.losses[2]);
        // What rank 0 has by itself is no model.
        let alone = export::ungathered(&state).expect("a file");
        assert!(export::check("file", &alone).is_err(), "{parallel}");
    }
}

/// What the check of a file says.
#[track_caller]
fn check(file: &[u8], is_damaged: bool, expected: &[&str]) {
    let broken = export::check("model.safetensors", file).expect_err("it is not whole");
    let text = broken.problems().to_string();
    assert_eq!(matches!(broken, Broken::Damaged(_)), is_damaged, "{text}");
    assert!(expected.iter().all(|expected| text.contains(expected)), "{expected:?} in\n{text}");
    assert!(text.contains("model.safetensors"), "{text}");
}

#[test]
fn what_nobody_gathered_is_found() {
    let ungathered = |strategy, mesh, settings: &str| {
        export::ungathered(&finish(&scenario(&text(strategy, mesh, 2, 1, settings))).1).expect("a file")
    };
    for data in [2, 3, 8] {
        let file = ungathered("zero-3", (data, 1), "");
        let all = super::small().manifest.model.parameters().len();
        let shape = format!("{all} of {all} tensors have the shape [0]");
        check(&file, true, &[&shape, "holds 0 B of the model's", "without gathering", "gathers"]);
        assert!(
            file.len() < gathered(&finish(&scenario(&text("zero-3", (data, 1), 2, 1, ""))).1).len() / 4,
            "it is far too small"
        );
    }
    check(&ungathered("fsdp", (2, 2), ""), true, &["have the shape [0]", "`head.logits.weight` is missing"]);
    check(&ungathered("ddp", (1, 2), ""), true, &["`head.logits.weight` is missing"]);
    // Where every rank has all parameters, one of them can save alone.
    for strategy in ["ddp", "zero-1", "zero-2"] {
        assert!(export::check("file", &ungathered(strategy, (3, 1), "")).is_ok(), "{strategy}");
    }
    assert!(export::check("file", &ungathered("fsdp", (2, 1), "[fsdp]\nshard_size = 1\n")).is_ok());
}

#[test]
fn other_files_are_told_apart() {
    let whole = gathered(&super::small());
    check(&whole[..whole.len() / 2], false, &["no whole safetensors file", "cut off"]);
    check(b"", false, &["no whole safetensors file"]);
    check(&[0xff; 64], false, &["no whole safetensors file"]);
    let foreign = safetensors::serialize(Vec::<(String, safetensors::tensor::TensorView)>::new(), None).expect("a file");
    check(&foreign, false, &["does not say which model"]);
    // A vocabulary of 62 in a file of 61: the lengths of the header stay the same.
    let text = String::from_utf8_lossy(&whole).into_owned();
    let place = text.find("vocab\\\":61").expect("the model stands in the header");
    let mut other = whole.clone();
    other[place + 9] = b'2';
    check(&other, true, &["`embedding.tokens.weight` has the shape [61, 24], and the model says [62, 24]"]);
    other[place + 8] = b'-';
    check(&other, false, &["does not say which model"]);
}
