//! Routes of layers of experts inside training steps: what they say of a layer and micro-batch is what its ops move and compute.

use std::collections::BTreeSet;

use ranklab::base::OpId;
use ranklab::base::model::Part;
use ranklab::base::module::Module;
use ranklab::observe::blocks::Stage;
use ranklab::observe::routes::step::Step;
use ranklab::observe::routes::{Routes, Way};
use ranklab::observe::state::Progress;
use ranklab::program::exchange::Exchange;
use ranklab::program::{Kernel, OpKind, Program};

use crate::support::run;

/// A training step with experts on several ranks, with odd sizes.
fn text(parallel: &str, experts: &str, more: &str) -> String {
    format!(
        "[model]\nlayers = 2\nhidden = 12\nheads = 2\nsequence = 10\nvocab = 31\nffn = 20\n[batch]\nmicro_batches = 2\nsteps = 2\n\
         micro_batch_size = 2\n[parallel]\n{parallel}\n[experts]\ncount = 6\nskew = 0.8\n{experts}\n{more}"
    )
}

fn experts_forward(program: &Program) -> Vec<OpId> {
    let is_it = |op: &OpId| matches!(program.kernel_of(*op), Some(Kernel::Forward(Part::Module(_, Module::Experts))));
    program.all().filter(is_it).collect()
}

/// Rows that the op computes: the first dims of the tensors that it reads.
fn rows_read(program: &Program, op: OpId) -> usize {
    let layout = program.buffers[program.reads(op)[0].index()].layout;
    program.layouts[layout.index()].parts.iter().map(|part| part.dims[0]).sum()
}

/// Of the rank at `place`: its tokens' choices are what the grid says, and what goes to other ranks is what its dispatch sends.
fn check(program: &Program, routes: &Routes, place: usize) {
    let choices = routes.choices(program, place).expect("few tokens");
    assert_eq!(choices.len(), routes.layer.tokens_per_rank() * routes.layer.top_k);
    for expert in 0..routes.layer.count {
        let kept = choices.iter().filter(|choice| choice.expert as usize == expert && choice.kept).count();
        assert_eq!(routes.sent(place, expert), kept);
    }
    let lost = choices.iter().filter(|choice| !choice.kept).count();
    assert_eq!(lost * routes.ranks.len(), routes.all_dropped());
    let member = |id: &ranklab::base::CollectiveId| {
        let is_it = |op: &OpId| program.kind(*op) == OpKind::Collective(*id) && program.rank_of(*op) == routes.ranks[place];
        program.all().find(is_it)
    };
    // A layer that is computed again dispatches and combines again.
    if let Some(dispatch) = routes.collectives.first() {
        let sent = Exchange::of(program, member(dispatch).expect("its part")).expect("pieces").sent;
        let to_others = |expert: &usize| routes.layer.home(*expert) != place;
        let rows: usize = (0..routes.layer.count).filter(to_others).map(|expert| routes.sent(place, expert)).sum();
        assert_eq!(sent.0, (rows * routes.layer.hidden * 4) as u64);
    }
    assert_eq!(routes.collectives.is_empty(), routes.ranks.len() == 1);
}

#[test]
fn a_layer_of_a_step_has_its_routes() {
    for (parallel, experts, more) in [
        ("data = 3\nexpert = 3", "", ""),
        ("data = 4\nexpert = 2", "capacity_factor = 1.0", ""),
        ("data = 2\nexpert = 2\npipeline = 2", "top_k = 3", "[recompute]\nmode = \"full\""),
        ("data = 2\nexpert = 2\ntensor = 2", "", "[tensor_parallel]\nsequence_parallel = true"),
        ("data = 2", "", "[data_parallel]\nexpand = false"),
    ] {
        let run = run(&text(parallel, experts, more));
        let (program, observed) = (run.session.program().clone(), run.observed());
        let groups =
            program.setting.model.as_ref().and_then(|model| model.experts.as_ref()).map_or(1, |experts| experts.groups.count());
        let step = Step::of(&observed.run).expect("layers of experts");
        let progress = Progress::new(&observed.run);
        let mut sites = BTreeSet::new();
        let ops = experts_forward(&program);
        for &op in &ops {
            let rank = program.rank_of(op);
            let routes = step.routes_of(&program, op).expect("the layer of an op");
            let place = routes.ranks.iter().position(|&member| member == rank).expect("the op's rank is there");
            check(&program, &routes, place);
            // Ranks that keep tokens of their own bring their rows together before the experts.
            let together = groups / routes.layer.groups_per_rank();
            assert_eq!(routes.rows(place) * together, rows_read(&program, op), "{parallel}: {rank}");
            let event = observed.run.trace.event_of(op).expect("it ran");
            let way = |event| routes.way(&progress.at(&observed.run, event), place);
            assert_eq!([way(0), way(run.session.trace().events.len())], [Way::Waiting, Way::Computed(Stage::HasGradients)]);
            assert!(matches!(way(event), Way::Computed(Stage::Forward | Stage::HasOutput)), "{parallel}: {:?}", way(event));
            let last = step.routes_at(&program, (rank, event)).expect("something began");
            assert_eq!((&last.site, &last.ranks), (&routes.site, &routes.ranks), "{parallel}: {rank} at event {event}");
            sites.insert((routes.site, routes.ranks));
        }
        let members: usize = sites.iter().map(|(_, ranks)| ranks.len()).sum();
        assert_eq!(members, ops.len(), "{parallel}: every op is at one place of one layer");
    }
}
