//! What a run gives to observers: its record, and what a trace alone does not tell.

use std::sync::Arc;

use super::{Diagnosis, Run, Verdict};
use crate::base::hardware::Costs;
use crate::observe::formula::{self, Quantity};
use crate::observe::report::{
    Diagnosis as ReportDiagnosis, FirstDifference, Given, Tokens, Verdict as ReportVerdict, VerdictKind,
};
use crate::observe::run::Record;
use crate::observe::{self, Observed};
use crate::program::head::head;
use crate::scenario::{Order, Task};
use crate::schedule::Schedule;

impl Run {
    /// The program and its trace, to be kept.
    #[must_use]
    pub fn record(&self) -> Record {
        Record::new(self.session.program().clone(), Arc::new(self.session.trace().clone()))
    }

    /// The program and its trace, to learn from.
    #[must_use]
    pub fn observed(&self) -> Observed<'_> {
        Observed::new(observe::Run::new(self.session.program(), self.session.trace()))
    }

    /// What reports and exports say beside the trace.
    #[must_use]
    pub fn given(&self) -> Given {
        let (costs, peak_flops) = match &self.scenario.hardware.costs {
            Costs::Unit(_) => ("unit".to_owned(), None),
            Costs::Table(table) => (table.name.clone(), table.device.peak_flops_per_second),
        };
        let algorithm = match &self.scenario.task {
            Task::Train(training) => Some(training.data_parallel.all_reduce),
            Task::Collective(collective) => Some(collective.algorithm),
            Task::Layer(_) => None,
        };
        Given {
            title: self.scenario.title.clone(),
            costs,
            recognised: self.recognised(),
            algorithm,
            peak_flops,
            tokens: self.tokens(),
            loss: self.losses.clone(),
            verdict: self.reported_verdict(),
            first_nan: self.first_nan,
            diagnosis: self.diagnosis.iter().map(|one| self.reported_diagnosis(one)).collect(),
        }
    }

    /// Tokens of a micro-batch, and how many hide its traffic.
    fn tokens(&self) -> Option<Tokens> {
        let Task::Train(training) = &self.scenario.task else { return None };
        let hide_traffic = formula::find(&formula::of(&self.scenario), Quantity::HidingTokens)?.value;
        let micro_batch = (training.batch.micro_batch_size * training.model.sequence) as u64;
        Some(Tokens { micro_batch, hide_traffic })
    }

    /// A named schedule is itself; a plan of one's own is looked up.
    fn recognised(&self) -> Option<&'static str> {
        let Task::Train(training) = &self.scenario.task else { return None };
        match &training.pipeline.order {
            Order::Schedule(schedule) => Some(schedule.name),
            Order::Sheet(_) | Order::Plan(_) => Schedule::recognise(self.plan.as_ref()?).map(|schedule| schedule.name),
        }
    }

    fn reported_diagnosis(&self, diagnosis: &Diagnosis) -> ReportDiagnosis {
        let op = diagnosis.op.map(|op| head(self.session.program(), op).to_string());
        ReportDiagnosis { rank: diagnosis.rank.0, op, cause: diagnosis.cause.clone() }
    }

    fn reported_verdict(&self) -> ReportVerdict {
        let (kind, max_abs_diff, first_difference) = match &self.verdict {
            Verdict::Equal => (VerdictKind::Equal, Some(0.0), None),
            Verdict::ExpectedDrift { max_abs_diff } => (VerdictKind::ExpectedDrift, Some(*max_abs_diff), None),
            Verdict::Wrong { max_abs_diff, first_difference } => {
                (VerdictKind::Wrong, Some(*max_abs_diff), Some(first_difference))
            }
            Verdict::None => (VerdictKind::None, None, None),
        };
        let first_difference = first_difference.map(|difference| FirstDifference {
            step: difference.step,
            op: head(self.session.program(), difference.op).to_string(),
            tensor: difference.tensor.clone(),
            rank: difference.rank.0,
        });
        let looks = self.looks.as_ref().map(ToString::to_string);
        ReportVerdict { kind, max_abs_diff, first_difference, looks }
    }
}
