//! What is learnt from a run: lanes, waits, memory, metrics, the report, and its exports. All of it follows from a program and its trace.

pub mod blocks;
pub mod breakpoint;
pub mod compare;
pub mod cube;
pub mod explain;
pub mod export;
pub mod flow;
pub mod found;
pub mod formula;
pub mod gaps;
pub mod held;
pub mod idle;
pub mod kind;
pub mod lanes;
pub mod ledger;
pub mod metrics;
pub mod mixture;
pub mod observed;
pub mod replay;
pub mod report;
pub mod routes;
pub mod rows;
pub mod run;
pub mod slack;
pub mod spread;
pub mod state;
pub mod traffic;
pub mod volume;
pub mod why;

pub use kind::Kind;
pub use lanes::Lanes;
pub use ledger::Ledger;
pub use metrics::Metrics;
pub use observed::Observed;
pub use report::{Report, Verdict, VerdictKind};
pub use run::Run;
