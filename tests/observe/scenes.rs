//! Runs to observe: scenarios built by hand, compiled and run.

use ranklab::base::hardware::{Costs, Device, Hardware, Link, Table, UnitCosts};
use ranklab::base::mesh::Mesh;
use ranklab::base::model::{Activation, Bias, Model, Norm, Positions};
use ranklab::base::precision::Precision;
use ranklab::base::settings::{
    AllReduce, ContextMethod, Dtype, FeedForwardSplit, Optimizer, Placement, PointToPoint, Recompute, SavedTensors, Strategy,
    Wrap,
};
use ranklab::base::{Bytes, Ticks};
use ranklab::compile;
use ranklab::engine::session::{Numbers, Session};
use ranklab::program::trouble::{Trouble, TroubleKind};
use ranklab::scenario::{
    Batch, Before, Collective, CollectiveKind, ContextParallel, DataParallel, Fsdp, Numerics, Order, Pipeline, Recomputation,
    Reshard, Scenario, Task, TensorParallel, Training, Values,
};
use ranklab::schedule::Schedule;
use std::sync::Arc;

/// Ticks of a slot: every number of blocks up to 8 divides it.
pub const SLOT: u64 = 840;

/// Sizes and choices of a training scenario that tests vary.
#[derive(Clone)]
pub struct Scene {
    pub schedule: &'static str,
    pub stages: usize,
    pub replicas: usize,
    pub micro_batches: u32,
    pub steps: u32,
    pub p2p: PointToPoint,
    pub all_reduce: AllReduce,
    pub backward_weight: u64,
    pub table: bool,
    pub memory: Option<Bytes>,
    pub trouble: Vec<Trouble>,
    pub strategy: Strategy,
    pub recompute: Recompute,
    pub sharing: Option<usize>,
}

pub fn pipeline(schedule: &'static str, stages: usize, micro_batches: u32) -> Scene {
    Scene {
        schedule,
        stages,
        replicas: 1,
        micro_batches,
        steps: 2,
        p2p: PointToPoint::EdgeFifo,
        all_reduce: AllReduce::Ring,
        backward_weight: 1,
        table: false,
        memory: None,
        trouble: vec![],
        strategy: Strategy::Ddp,
        recompute: Recompute::None,
        sharing: None,
    }
}

pub fn trouble(kind: TroubleKind, rank: Option<u32>, op: &str, factor: f64) -> Trouble {
    Trouble { kind, rank: rank.map(ranklab::base::Rank), op: op.to_owned(), step: Some(0), factor }
}

/// A link of 1 GB/s and 5 us, a device of 100 GFLOP/s: messages and compute take similar times for the tiny model.
pub fn table() -> Costs {
    let link = |alpha, gigabytes: f64| Link { alpha: Ticks(alpha), bytes_per_second: gigabytes * 1e9, source: "test".to_owned() };
    let device = Device {
        flops_per_second: 100e9,
        peak_flops_per_second: Some(125e9),
        memory_bytes_per_second: 50e9,
        memory: Bytes(1 << 40),
        source: "test".to_owned(),
    };
    Costs::Table(Table { name: "test".to_owned(), device, inside: link(5_000, 1.0), between: link(20_000, 0.25) })
}

fn hardware(scene: &Scene) -> Hardware {
    let slot = Ticks(SLOT);
    let unit = UnitCosts {
        ticks_per_slot: SLOT,
        forward: slot,
        backward_input: slot,
        backward_weight: Ticks(SLOT * scene.backward_weight),
        overlapped: Ticks(SLOT * (2 + scene.backward_weight)),
    };
    let costs = if scene.table { table() } else { Costs::Unit(unit) };
    Hardware { costs, memory: scene.memory, ranks_per_node: 4, sharing: scene.sharing }
}

impl Scene {
    pub fn scenario(&self) -> Scenario {
        let (layers, p) = (8_usize.max(self.stages), self.stages);
        let layers_per_stage = (0..p).map(|stage| layers / p + usize::from(stage < layers % p)).collect();
        let model = Model {
            layers,
            hidden: 24,
            heads: 3,
            kv_heads: 3,
            sequence: 7,
            vocab: 31,
            ffn: 96,
            activation: Activation::Gelu,
            norm: Norm::Layer,
            positions: Positions::Learned,
            bias: Bias::NoQkv,
            fused_qkv: true,
            tied: false,
            dropout: 0.0,
            experts: None,
        };
        let (all_reduce, overlap) = (self.all_reduce, true);
        let task = Task::Train(Training {
            tensor_parallel: TensorParallel { sequence_parallel: false, feed_forward: FeedForwardSplit::ColRow },
            context_parallel: ContextParallel { method: ContextMethod::Ring, placement: Placement::Zigzag },
            model,
            precision: Precision::plain(Dtype::F32),
            batch: Batch {
                micro_batches: self.micro_batches,
                micro_batch_size: 1,
                sizes: Vec::new(),
                steps: self.steps,
                before: Before::default(),
                padded: None,
            },
            mesh: Mesh::new(self.replicas, p),
            folding: ranklab::base::folding::Folding::default(),
            expert: 1,
            data_parallel: DataParallel {
                strategy: self.strategy,
                no_sync: true,
                all_reduce,
                bucket: Bytes(50_000),
                first_bucket: Bytes(8_000),
                overlap,
                expand: true,
            },
            fsdp: Fsdp {
                shard_size: self.replicas,
                reshard_after_forward: Reshard::Free,
                prefetch: 1,
                in_flight: 2,
                wrap: Wrap::Layer,
            },
            recompute: Recomputation { mode: self.recompute, every: 1, saved: SavedTensors::Lab, preserve_rng_state: true },
            pipeline: Pipeline {
                updates: ranklab::base::Updates::EachStep,
                segments: 1,
                off_by_one: None,
                order: Order::Schedule(Schedule::find(self.schedule).expect("a known schedule")),
                p2p: self.p2p,
                barrier: true,
                layers_per_stage,
            },
            optimizer: Optimizer::default(),
        });
        scenario(task, hardware(self), self.trouble.clone())
    }

    pub fn record(&self) -> Session {
        record(&self.scenario())
    }
}

/// A bare all-reduce of `bytes` over `ranks` ranks.
pub fn collective(algorithm: AllReduce, ranks: usize, bytes: u64, costs: Costs) -> Scenario {
    let chunks = algorithm.chunks(ranks).unwrap_or(1);
    let task = Task::Collective(Collective { kind: CollectiveKind::AllReduce, bytes: Bytes(bytes), ranks, algorithm, chunks });
    scenario(task, Hardware { costs, memory: None, ranks_per_node: ranks, sharing: None }, vec![])
}

fn scenario(task: Task, hardware: Hardware, trouble: Vec<Trouble>) -> Scenario {
    let numerics = Numerics { values: Values::Shape, dtype: Dtype::F32, exact: false };
    Scenario { title: "a test".to_owned(), seed: 7, task, hardware, numerics, trouble }
}

pub fn unit() -> Costs {
    hardware(&pipeline("1f1b", 1, 1)).costs
}

pub fn record(scenario: &Scenario) -> Session {
    let program = Arc::new(compile::compile(scenario).program);
    Session::record(program, &scenario.hardware, &scenario.trouble, Numbers::Shape, &mut |_, _| {}).expect("shapes cannot fail")
}

/// Runs of every kind: schedules, semantics, data parallel, costs, trouble, deadlock, out of memory.
pub fn all() -> Vec<(String, Session)> {
    let mut all: Vec<(String, Session)> = Vec::new();
    let mut add = |name: &str, scene: Scene| all.push((name.to_owned(), scene.record()));
    for table in [false, true] {
        for p2p in PointToPoint::ALL {
            add(&format!("1f1b p3 m5 {p2p} table {table}"), Scene { p2p: *p2p, table, ..pipeline("1f1b", 3, 5) });
        }
        for all_reduce in AllReduce::ALL {
            let scene = Scene { replicas: 5, all_reduce: *all_reduce, table, ..pipeline("gpipe", 2, 3) };
            add(&format!("gpipe p2 dp5 {all_reduce} table {table}"), scene);
        }
        add(&format!("naive p8 table {table}"), Scene { table, ..pipeline("naive", 8, 3) });
        add(&format!("data parallel table {table}"), Scene { replicas: 3, table, ..pipeline("1f1b", 1, 4) });
    }
    for strategy in [Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp] {
        add(&format!("{strategy}"), Scene { replicas: 3, strategy, table: true, ..pipeline("1f1b", 1, 3) });
    }
    for recompute in [Recompute::Selective, Recompute::Full] {
        add(&format!("{recompute} recomputation"), Scene { recompute, ..pipeline("1f1b", 2, 3) });
    }
    for all_reduce in AllReduce::ALL {
        let scene = Scene { replicas: 5, all_reduce: *all_reduce, table: true, sharing: Some(1), ..pipeline("gpipe", 2, 3) };
        add(&format!("gpipe p2 dp5 {all_reduce} on shared links"), scene);
    }
    for p2p in PointToPoint::ALL {
        let scene = Scene { replicas: 4, p2p: *p2p, table: true, sharing: Some(1), ..pipeline("1f1b", 3, 4) };
        add(&format!("1f1b p3 dp4 {p2p} on shared links"), scene);
    }
    let slow = trouble(TroubleKind::SlowRank, Some(1), "", 2.5);
    add("slow rank", Scene { trouble: vec![slow], table: true, ..pipeline("1f1b", 4, 6) });
    let skip = trouble(TroubleKind::SkipOp, Some(1), "all-reduce bucket0", 1.0);
    add("skipped all-reduce on one rank", Scene { replicas: 3, trouble: vec![skip], ..pipeline("1f1b", 1, 2) });
    add("out of memory", Scene { memory: Some(Bytes(600_000)), ..pipeline("gpipe", 2, 8) });
    for algorithm in AllReduce::ALL {
        for (name, costs) in [("unit", unit()), ("table", table())] {
            all.push((format!("bare {algorithm} {name}"), record(&collective(*algorithm, 5, 20 * 4, costs))));
        }
    }
    all
}
