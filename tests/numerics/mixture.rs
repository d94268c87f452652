//! Experts inside a training step against candle's autograd of every expert on every token.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor};
use ranklab::base::Placement;
use ranklab::base::mesh::Axis;
use ranklab::base::mixture::Groups;
use ranklab::base::model::{Model, Parameter, Segment};
use ranklab::engine::kernels::cpu::data::batch;
use ranklab::engine::kernels::cpu::{Dims, experts, init};
use ranklab::lab::Run;
use ranklab::program::Name;
use ranklab::scenario::Task;

use super::oracle::{self, Route};
use crate::support::run;

const LR: f64 = 0.5;

const GPT: &str = "layers = 3\nhidden = 12\nheads = 3\nsequence = 7\nvocab = 31\nffn = 10\nbias = \"all\"\n";
const LLAMA: &str = "layers = 2\nhidden = 16\nheads = 4\nkv_heads = 2\nsequence = 5\nvocab = 29\nffn = 6\nbias = \"none\"\n\
    norm = \"rms\"\nactivation = \"swiglu\"\npositions = \"rotary\"\nfused_qkv = false\n";

/// By token of a micro-batch of `b` sequences, its group: the slice that has its position, and the stretch of that slice's tokens.
fn groups(model: &Model, b: usize, of: Groups) -> Vec<usize> {
    let (n, t) = (of.slices, model.sequence);
    let slice = |position: usize| match of.placement {
        _ if n == 1 => 0,
        Placement::Contiguous => position / (t / n),
        Placement::Striped => position % n,
        Placement::Zigzag => {
            let chunk = position / (t / (2 * n));
            chunk.min(2 * n - 1 - chunk)
        }
    };
    let (mut seen, each) = (vec![0; n], b * t / of.count());
    let mut group = |token: usize| {
        let slice = slice(token % t);
        seen[slice] += 1;
        slice * of.stretches + (seen[slice] - 1) / each
    };
    (0..b * t).map(&mut group).collect()
}

/// Where a micro-batch of `b` sequences goes in a layer, as an expert has room for it: in each group first choices before second ones.
fn route(model: &Model, b: usize, place: (u64, u32, u32)) -> Result<Route> {
    let mixture = model.experts.as_ref().expect("experts");
    let (tokens, groups) = (b * model.sequence, groups(model, b, mixture.groups));
    let (k, count, each) = (mixture.top_k, mixture.count, tokens / mixture.groups.count());
    let even = (each * k) as f64 / count as f64;
    let room = if mixture.capacity_factor > 0.0 { (mixture.capacity_factor * even).ceil() as usize } else { each };
    let (mut taken, mut choices) = (vec![0.0; tokens * count], vec![0_u32; count]);
    for group in 0..mixture.groups.count() {
        let chosen = mixture.routing(model, b, place, group..group + 1).chosen;
        let own: Vec<usize> = (0..tokens).filter(|token| groups[*token] == group).collect();
        let mut load = vec![0; count];
        for choice in 0..k {
            for (row, token) in own.iter().enumerate() {
                let expert = chosen[row * k + choice] as usize;
                choices[expert] += 1;
                if load[expert] < room {
                    taken[token * count + expert] = 1.0;
                    load[expert] += 1;
                }
            }
        }
    }
    Ok(Route {
        taken: Tensor::from_vec(taken, (tokens, count), &Device::Cpu)?,
        shares: choices.into_iter().map(|own| f64::from(own) / (tokens * k) as f64).collect(),
    })
}

/// The parameters behind all steps, by plain descent along autograd's gradients, and the mean loss of each step.
fn expected(run: &Run) -> Result<(BTreeMap<String, Tensor>, Vec<f64>)> {
    let Task::Train(training) = &run.scenario.task else { panic!("a training step") };
    let (model, seed, b) = (&training.model, run.scenario.seed, training.batch.micro_batch_size);
    let dims = Dims { model: model.clone(), micro_batch_size: b, grid: None, half: false, segment: Segment::WHOLE };
    let first = |parameter: &Parameter| Ok((parameter.name.clone(), init::parameter(parameter, seed, DType::F64)?));
    let mut values: BTreeMap<String, Tensor> = model.parameters().iter().map(first).collect::<Result<_>>()?;
    let of_step = training.batch.micro_batches * training.mesh.size(Axis::Data) as u32;
    let mut losses = Vec::new();
    for step in 0..training.batch.steps {
        let (mut next, mut loss) = (values.clone(), 0.0);
        for m in step * of_step..(step + 1) * of_step {
            let (tokens, targets) = batch(u64::from(m) * b as u64, &dims, seed)?;
            let routes = (0..model.layers).map(|layer| route(model, b, (seed, layer as u32, m)));
            let routes = routes.collect::<Result<Vec<_>>>()?;
            let outcome = oracle::run_routed(model, &values, (&BTreeMap::new(), &routes), &tokens, &targets)?;
            loss += outcome.loss.to_scalar::<f64>()? / f64::from(of_step);
            for (name, gradient) in outcome.gradients {
                let value = next.get_mut(&name).expect("a parameter");
                *value = (&*value - (gradient * (LR / f64::from(of_step)))?)?;
            }
        }
        values = next;
        losses.push(loss);
    }
    Ok((values, losses))
}

#[track_caller]
fn check(text: &str) -> Result<Run> {
    let text = format!("seed = 5\n{text}[optimizer]\nkind = \"sgd\"\nlr = {LR}\n[numerics]\ndtype = \"f64\"\n");
    let run = run(&text);
    let (values, losses) = expected(&run)?;
    for (found, expected) in run.losses.iter().zip(&losses) {
        assert!((found - expected).abs() < 1e-12, "{:?} is not {losses:?} for\n{text}", run.losses);
    }
    let program = run.session.program();
    let mut compared = 0;
    for (index, buffer) in program.buffers.iter().enumerate() {
        let Name::Parameter(id) = buffer.name else { continue };
        let parameter = &program.parameters[id.index()];
        let Some(found) = run.session.value(ranklab::base::BufferId::new(index)) else { continue };
        let found = found.elements()?.unwrap_or_default();
        let mut expected = values[&parameter.name].clone();
        if let Some(slice) = parameter.slice {
            // Beyond the end of the vocabulary nothing is to be compared.
            let length = parameter.dims[slice.dim].min(slice.of.saturating_sub(slice.start));
            expected = expected.narrow(slice.dim, slice.start.min(slice.of), length)?;
        }
        let expected = expected.flatten_all()?.to_vec1::<f64>()?;
        let found = found[..found.len() - parameter.padding()].to_vec();
        let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(found.len() == expected.len() && off < 1e-11, "{} of {} is {off} off for\n{text}", parameter.name, buffer.rank);
        compared += 1;
    }
    assert!(compared >= values.len(), "{compared} of {} parameters", values.len());
    Ok(run)
}

#[test]
fn a_step_with_experts_is_what_autograd_says() -> Result<()> {
    for (model, rest) in [
        (GPT, "count = 5\ntop_k = 2\n"),
        (GPT, "count = 3\ntop_k = 1\nauxiliary = 0.7\nskew = 1.0\n"),
        (GPT, "count = 4\ntop_k = 3\nloads = [5, 4, 4, 2]\nauxiliary = 0\n"),
        (GPT, "count = 4\ntop_k = 2\ncapacity_factor = 1.0\nskew = 1.5\nauxiliary = 0.3\n"),
        (LLAMA, "count = 8\ntop_k = 2\n"),
        (LLAMA, "count = 2\ntop_k = 2\nauxiliary = 1.5\n"),
        (LLAMA, "count = 1\ntop_k = 1\n"),
    ] {
        check(&format!("[model]\n{model}[batch]\nmicro_batches = 3\nmicro_batch_size = 2\nsteps = 2\n[experts]\n{rest}"))?;
    }
    Ok(())
}

/// The same over ranks that share out the experts.
#[test]
fn so_is_one_over_several_ranks() -> Result<()> {
    for (model, data, expert, count) in [(GPT, 2, 2, 4), (LLAMA, 3, 3, 6), (GPT, 4, 2, 6)] {
        let mesh =
            format!("[parallel]\ndata = {data}\nexpert = {expert}\n[experts]\ncount = {count}\nskew = 0.5\nauxiliary = 0.4\n");
        check(&format!("[model]\n{model}[batch]\nmicro_batches = 2\nmicro_batch_size = 1\nsteps = 2\n{mesh}"))?;
    }
    Ok(())
}

/// The same where ranks share each expert's matrices, and each has tokens of its own.
#[test]
fn so_is_one_of_slices() -> Result<()> {
    for (sequence_parallel, tensor, expert) in [(false, 2, 2), (true, 2, 1), (true, 2, 2), (true, 4, 2)] {
        let mesh = format!("[parallel]\ndata = {expert}\nexpert = {expert}\ntensor = {tensor}\n");
        let rest = format!("{mesh}[tensor_parallel]\nsequence_parallel = {sequence_parallel}\n");
        let experts = "[experts]\ncount = 4\nskew = 0.5\nauxiliary = 0.4\ncapacity_factor = 1.5\n";
        let model = LLAMA.replace("sequence = 5", "sequence = 8").replace("ffn = 6", "ffn = 8");
        check(&format!("[model]\n{model}[batch]\nmicro_batches = 2\nmicro_batch_size = 1\nsteps = 2\n{rest}{experts}"))?;
    }
    Ok(())
}

/// The same where each rank has a slice of every sequence, and experts stand on those with other slices.
#[test]
fn so_is_one_of_slices_of_sequences() -> Result<()> {
    for (model, mesh, context) in [
        (GPT, "context = 2\nexpert = 2", "placement = \"zigzag\""),
        (GPT, "context = 3", "placement = \"striped\""),
        (LLAMA, "context = 4\nexpert = 4", "placement = \"contiguous\"\nmethod = \"all-gather\""),
        (LLAMA, "data = 2\ncontext = 2\nexpert = 4", "method = \"ulysses\""),
        (GPT, "data = 2\ncontext = 3\nexpert = 2\norder = \"tp-ep-dp-cp-pp\"", "placement = \"striped\""),
        (LLAMA, "context = 2\ntensor = 2\nexpert = 2", "placement = \"zigzag\"\n[tensor_parallel]\nsequence_parallel = true"),
    ] {
        let model = model.replace("sequence = 5", "sequence = 8").replace("sequence = 7", "sequence = 12");
        let experts = "[experts]\ncount = 4\nskew = 0.5\nauxiliary = 0.4\ncapacity_factor = 1.5\n";
        let text = format!("[model]\n{model}[batch]\nmicro_batches = 2\nmicro_batch_size = 3\nsteps = 2\n[parallel]\n{mesh}\n");
        check(&format!("{text}[context_parallel]\n{context}\n{experts}"))?;
    }
    Ok(())
}

/// A bias decides who is chosen, the logits what the chosen ones weigh; where they lie so far apart that it could not, nothing is chosen.
#[test]
fn a_choice_that_is_not_clear_is_an_error() -> Result<()> {
    let x = Tensor::new(vec![vec![1.0_f64, 2.0, 3.0], vec![0.5, -1.0, 0.25]], &Device::Cpu)?;
    let router =
        |scale: f64| Tensor::new(vec![vec![scale, 0.0, 0.0], vec![0.0, scale, 0.0], vec![0.0, 0.0, scale]], &Device::Cpu);
    let gates = experts::route_as(&x, &router(1.0)?, 2, &[0, 1, 2, 0])?.to_vec2::<f64>()?;
    let all: f64 = [1.0_f64, 2.0, 3.0].iter().map(|x| x.exp()).sum();
    assert!((gates[0][1] - 2.0_f64.exp() / all).abs() < 1e-15, "{gates:?}");
    // 32 apart: the third expert's logit is as large as the second's with its bias.
    let tie = experts::route_as(&x, &router(32.0)?, 2, &[0, 1, 2, 0]).expect_err("a tie").to_string();
    assert!(tie.contains("rounding could decide"), "{tie}");
    let far = experts::route_as(&x, &router(100.0)?, 2, &[0, 1, 2, 0]).expect_err("another choice").to_string();
    assert!(far.contains("token 0 goes to expert"), "{far}");
    Ok(())
}
