//! What a run gives to observers: its record, and what a trace alone does not tell.

use std::sync::Arc;

use super::{Diagnosis, Run, Verdict, repairs, snapshot};
use crate::base::hardware::Costs;
use crate::observe::formula::{self, Quantity};
use crate::observe::report::{
    Diagnosis as ReportDiagnosis, FirstDifference, Given, SilentSwap, Tokens, Verdict as ReportVerdict, VerdictKind,
};
use crate::observe::run::Record;
use crate::observe::{self, Observed};
use crate::program::check::{Finding, FindingKind, check};
use crate::program::head::head;
use crate::program::trace::Outcome;
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
            Task::Layer(_) | Task::Experts(_) => None,
        };
        Given {
            title: self.scenario.title.clone(),
            costs,
            recognised: self.recognised(),
            algorithm,
            peak_flops,
            tokens: self.tokens(),
            loss: self.losses.clone(),
            auxiliary: snapshot::auxiliary_losses(self.session.values().auxiliary()),
            verdict: self.reported_verdict(),
            silent_swaps: self.silent_swaps(),
            repairs: match &self.session.trace().outcome {
                Outcome::Deadlocked(graph) => repairs(&self.scenario, self.session.program(), graph),
                _ => Vec::new(),
            },
            first_nan: self.first_nan,
            diagnosis: self.diagnosis.iter().map(|one| self.reported_diagnosis(one)).collect(),
        }
    }

    /// Only trouble, and a sheet that says where messages stand, can change the order of one end and not of the other.
    fn silent_swaps(&self) -> Vec<SilentSwap> {
        let is_possible = match &self.scenario.task {
            Task::Train(training) => matches!(&training.pipeline.order, Order::Sheet(sheet) if sheet.has_messages()),
            Task::Collective(_) | Task::Layer(_) | Task::Experts(_) => false,
        };
        if !is_possible && self.scenario.trouble.is_empty() {
            return Vec::new();
        }
        let program = self.session.program();
        let swaps = check(program).into_iter().filter(|finding| finding.kind == FindingKind::SilentSwap);
        let swap = |finding: Finding| {
            let [send, receive] = finding.ops[..] else { return None };
            let (rank, text) = (|op| program.whole_rank_of(op).0, |op| head(program, op).to_string());
            Some(SilentSwap { from: rank(send), send: text(send), to: rank(receive), receive: text(receive) })
        };
        swaps.filter_map(swap).collect()
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
        let program = self.session.program();
        let op = diagnosis.op.map(|op| head(program, op).to_string());
        ReportDiagnosis { rank: program.whole(diagnosis.rank).0, op, cause: diagnosis.cause.clone() }
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
        let delayed_weights = match &self.scenario.task {
            Task::Train(training) => kind != VerdictKind::None && training.pipeline.updates.is_asynchronous(),
            Task::Collective(_) | Task::Layer(_) | Task::Experts(_) => false,
        };
        ReportVerdict { kind, max_abs_diff, first_difference, looks, delayed_weights }
    }
}
