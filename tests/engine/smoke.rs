//! smoke
use ranklab::base::hardware::*;
use ranklab::base::mesh::Mesh;
use ranklab::base::model::*;
use ranklab::base::settings::*;
use ranklab::base::*;
use ranklab::compile;
use ranklab::engine::session::{Numbers, Session};
use ranklab::scenario::*;
use ranklab::schedule::Schedule;
use std::sync::Arc;

fn tiny(layers: usize) -> Model {
    Model {
        layers,
        hidden: 64,
        heads: 8,
        kv_heads: 8,
        sequence: 32,
        vocab: 256,
        ffn: 256,
        activation: Activation::Gelu,
        norm: Norm::Layer,
        positions: Positions::Learned,
        bias: Bias::NoQkv,
        fused_qkv: true,
        tied: false,
        dropout: 0.0,
    }
}

pub fn scenario(schedule: &str, p: usize, dp: usize, m: u32, p2p: PointToPoint) -> Scenario {
    let layers = 8;
    let cut: Vec<usize> = (0..p).map(|s| layers / p + usize::from(s < layers % p)).collect();
    let slot = 840;
    Scenario {
        title: String::new(),
        seed: 7,
        task: Task::Train(Training {
            model: tiny(layers),
            parameter_dtype: Dtype::F32,
            batch: Batch { micro_batches: m, micro_batch_size: 1, steps: 2 },
            mesh: Mesh::new(dp, p),
            data_parallel: DataParallel {
                all_reduce: AllReduce::Ring,
                bucket: Bytes(25 << 20),
                first_bucket: Bytes(1 << 20),
                overlap: true,
            },
            pipeline: Pipeline { schedule: Schedule::find(schedule).unwrap(), p2p, barrier: true, layers_per_stage: cut },
            optimizer: Optimizer::default(),
        }),
        hardware: Hardware {
            costs: Costs::Unit(UnitCosts {
                ticks_per_slot: slot,
                forward: Ticks(slot),
                backward_input: Ticks(slot),
                backward_weight: Ticks(slot),
            }),
            memory: None,
            ranks_per_node: 8,
        },
        numerics: Numerics { values: Values::Real, dtype: Dtype::F32, exact: false },
        trouble: vec![],
    }
}

#[test]
fn smoke() {
    for (schedule, p, dp, m, p2p) in [
        ("1f1b", 4, 1, 8, PointToPoint::EdgeFifo),
        ("gpipe", 4, 1, 8, PointToPoint::EdgeFifo),
        ("naive", 4, 1, 8, PointToPoint::Buffered),
        ("1f1b", 2, 1, 4, PointToPoint::Blocking),
        ("1f1b", 1, 3, 4, PointToPoint::EdgeFifo),
        ("1f1b", 2, 2, 4, PointToPoint::EdgeFifo),
        ("1f1b", 1, 1, 8, PointToPoint::EdgeFifo),
    ] {
        let s = scenario(schedule, p, dp, m, p2p);
        let c = compile::compile(&s);
        let program = Arc::new(c.program);
        let session = Session::record(program.clone(), &s.hardware, &[], Numbers::Real, &mut |_, _| {}).unwrap();
        let t = session.trace();
        let heads = |op| format!("{}", ranklab::program::head::head(&program, op));
        println!(
            "{schedule} p{p} dp{dp} m{m} {p2p} ops {} {:?} step {} events {}",
            program.ops(),
            t.outcome.name(),
            t.clock.show(t.step_end(&program, 0)),
            t.events.len()
        );
        if let ranklab::program::trace::Outcome::Deadlocked(graph) = &t.outcome {
            for e in &graph.edges {
                println!("  {} {} -> {} {:?}", e.rank, heads(e.op), e.on_rank, e.on_op.map(heads));
            }
            println!("  cycles {:?}", graph.cycles);
        }
        let l: Vec<_> = (0..2)
            .map(|s| {
                let v: Vec<f64> = session.values().losses().iter().filter(|l| l.step == s).map(|l| l.value).collect();
                v.iter().sum::<f64>() / v.len() as f64
            })
            .collect();
        println!("  loss {l:?}");
    }
}
