//! A run and what its readers share: lanes, ledger and metrics, each made when it is first asked for, and once.

use std::borrow::Cow;
use std::cell::OnceCell;

use super::{Lanes, Ledger, Metrics, Run};

/// A run with what is learnt from it.
pub struct Observed<'a> {
    /// The run.
    pub run: Run<'a>,
    lanes: OnceCell<Cow<'a, Lanes>>,
    ledger: OnceCell<Cow<'a, Ledger>>,
    metrics: OnceCell<Cow<'a, Metrics>>,
}

impl<'a> Observed<'a> {
    /// A run of which nothing was learnt yet.
    #[must_use]
    pub fn new(run: Run<'a>) -> Self {
        Self { run, lanes: OnceCell::new(), ledger: OnceCell::new(), metrics: OnceCell::new() }
    }

    /// A run with what was learnt from it before.
    #[must_use]
    pub fn known(run: Run<'a>, lanes: &'a Lanes, ledger: &'a Ledger, metrics: &'a Metrics) -> Self {
        let (lanes, ledger, metrics) = (Cow::Borrowed(lanes), Cow::Borrowed(ledger), Cow::Borrowed(metrics));
        Self { run, lanes: lanes.into(), ledger: ledger.into(), metrics: metrics.into() }
    }

    /// The run as rows and arrows.
    #[must_use]
    pub fn lanes(&self) -> &Lanes {
        self.lanes.get_or_init(|| Cow::Owned(Lanes::new(&self.run)))
    }

    /// What its ranks hold over time.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        self.ledger.get_or_init(|| Cow::Owned(Ledger::new(&self.run)))
    }

    /// Its numbers.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        self.metrics.get_or_init(|| Cow::Owned(Metrics::new(&self.run, self.ledger())))
    }
}
