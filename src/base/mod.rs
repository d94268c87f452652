//! The words: units, ids, the model's shape, the mesh of ranks, hardware tables.

pub mod context;
pub mod experts;
pub mod folding;
pub mod hardware;
pub mod ids;
pub mod mesh;
pub mod mixture;
pub mod model;
pub mod module;
pub mod precision;
pub mod saved;
pub mod prefetch;
pub mod routing;
pub mod settings;
pub mod sharing;
pub mod split;
pub mod tables;
pub mod units;
pub mod words;

pub use ids::{BufferId, ChannelId, CollectiveId, GroupId, KernelId, LayoutId, OpId, ParameterId, Rank, StreamId};
pub use settings::{
    AllReduce, AttentionBug, AttentionTensor, ChunkCosts, CollectiveKind, ContextMethod, Dtype, ExpertTensor, FeedForwardSplit,
    LayerKind, OptimizerKind, Placement, PointToPoint, Recompute, SavedTensors, Strategy, Updates, Values, Wrap,
};
pub use units::{Bytes, Ticks};
