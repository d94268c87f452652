//! The cube of ranks: what it says a rank sends its groups is what the rank sent, and wires follow from where ranks stand.

use ranklab::base::mesh::Axis;
use ranklab::base::{Bytes, Rank};
use ranklab::observe::cube::{Cube, Party, Wires};

use crate::support::{metrics, run, scenario};

/// A training step on a mesh with several axes.
fn text(mesh: &str, settings: &str) -> String {
    format!(
        "[model]\nlayers = 4\nhidden = 24\nheads = 4\nkv_heads = 1\nsequence = 12\nvocab = 60\n[batch]\nmicro_batches = 3\nsteps = 2\n\
         [parallel]\n{mesh}\n[numerics]\nvalues = \"shape\"\n{settings}\n"
    )
}

const MESHES: [&str; 6] = [
    "tensor = 2\npipeline = 2\ndata = 3",
    "tensor = 2\npipeline = 4\norder = \"pp-tp-dp-cp\"",
    "data = 8\npipeline = 2\norder = \"dp-pp-tp-cp\"",
    "tensor = 4\ndata = 5\norder = \"dp-tp-cp-pp\"",
    "data = 3",
    "pipeline = 3\ndata = 2\ntensor = 2\norder = \"pp-dp-tp-cp\"",
];

/// Meshes on which ranks meet across two axes.
const ACROSS: [&str; 3] =
    ["context = 2\ndata = 3", "context = 2\ndata = 2\nexpert = 2", "context = 2\ndata = 2\nexpert = 4\norder = \"pp-dp-cp-tp\""];

#[test]
fn what_groups_are_sent_is_what_is_sent() {
    for mesh in MESHES.into_iter().chain(ACROSS) {
        for strategy in ["ddp", "zero-1", "fsdp"] {
            for expand in [true, false] {
                let settings = format!("[data_parallel]\nstrategy = \"{strategy}\"\nexpand = {expand}\nbucket_mib = 0.01");
                let text = text(mesh, &settings);
                let (run, cube) = (run(&text), Cube::of(&scenario(&text)).expect("a mesh"));
                let metrics = metrics(&run);
                let program = run.session.program();
                assert_eq!(cube.mesh.ranks(), program.ranks() * program.fold(), "{text}");
                for rank in (0..cube.mesh.ranks()).map(Rank::new) {
                    let parties = cube.parties(&run.observed().run, rank);
                    let sent: Bytes = parties.iter().map(|party| party.sent).sum();
                    // Ranks that are followed as one send the same.
                    let fold = run.session.program().fold();
                    let followed = metrics.ranks.iter().enumerate().find(|(place, _)| {
                        (0..fold).any(|folded| run.session.program().unfolded(Rank::new(*place), folded) == rank)
                    });
                    let (_, followed) = followed.expect("every rank is followed");
                    assert_eq!(sent, followed.bytes_sent, "{rank} of {text}");
                    assert!(parties.iter().all(|party| party.ranks.contains(&rank)), "{rank} of {text}: {parties:?}");
                }
            }
        }
    }
}

/// The same group, told by any of its members; folded ranks tell what each would.
#[test]
fn members_and_folded_ranks_agree() {
    for mesh in MESHES {
        let settings = "[data_parallel]\nstrategy = \"zero-1\"\nexpand = false";
        let parties = |fold: bool| -> Vec<Vec<Party>> {
            let text = text(&format!("{mesh}\nfold = {fold}"), settings);
            let (run, cube) = (run(&text), Cube::of(&scenario(&text)).expect("a mesh"));
            (0..cube.mesh.ranks()).map(|rank| cube.parties(&run.observed().run, Rank::new(rank))).collect()
        };
        let each = parties(false);
        assert_eq!(each, parties(true), "{mesh}");
        for (rank, parties) in each.iter().enumerate() {
            for party in parties {
                let [axis] = party.axes[..] else { panic!("one axis: {party:?}") };
                for member in &party.ranks {
                    let same = each[member.index()].iter().find(|other| other.axes == [axis]).expect("its group");
                    assert_eq!((&same.ranks, same.wires), (&party.ranks, party.wires), "r{rank} and {member} of {mesh}");
                }
            }
        }
    }
}

/// Ranks that share out experts have a line of their own: who they are, over which wires, and that all-to-alls are what they are sent.
#[test]
fn who_shares_out_experts_is_a_group() {
    for (mesh, expert, ranks_per_node) in
        [("data = 4", 4, 2), ("data = 6\ntensor = 2", 3, 4), ("data = 4\npipeline = 2\norder = \"dp-pp-tp-cp\"", 2, 8)]
    {
        let text = text(
            &format!("{mesh}\nexpert = {expert}"),
            &format!("[experts]\ncount = {}\nskew = 1\n[hardware]\nranks_per_node = {ranks_per_node}", 2 * expert),
        );
        let (run, scenario) = (run(&text), scenario(&text));
        let (cube, ranklab::scenario::Task::Train(training)) = (Cube::of(&scenario).expect("a mesh"), &scenario.task) else {
            panic!("a training step")
        };
        let observed = run.observed().run;
        for rank in (0..cube.mesh.ranks()).map(Rank::new) {
            let parties = cube.parties(&observed, rank);
            let of_experts: Vec<&Party> = parties.iter().filter(|party| party.name() == "ep").collect();
            let [party] = of_experts[..] else { panic!("one group of experts: {parties:?}") };
            assert_eq!((&party.ranks, party.wires), (&training.expert_group(rank), cube.wires(&party.ranks)));
            // Dispatch and combine, forward and backward, of each layer and micro-batch that the rank has.
            let layers = 4 / cube.mesh.size(Axis::Pipeline);
            assert_eq!((party.collectives, party.messages), (4 * layers * 3, 0));
            let exchanged = |op: &&ranklab::base::OpId| {
                observed.of_step(**op, 0).then(|| ranklab::program::exchange::Exchange::of(observed.program, **op)).flatten()
            };
            let sent = observed.program.order[rank.index()].iter().filter_map(|op| exchanged(&op)).map(|part| part.sent);
            assert_eq!(party.sent, sent.sum::<Bytes>());
            assert!(parties.iter().any(|party| party.name() == "dp" && party.sent > Bytes::ZERO), "and gradients: {parties:?}");
        }
    }
}

#[test]
fn wires_follow_from_order_and_nodes() {
    use Wires::{Both, Network, Node};
    let check = |order: &str, per_node: usize, expected: [(Axis, Wires); 3]| {
        let mesh = format!("tensor = 4\ndata = 2\npipeline = 2\norder = \"{order}\"");
        let text = text(&mesh, &format!("[hardware]\nranks_per_node = {per_node}"));
        let cube = Cube::of(&scenario(&text)).expect("a mesh");
        for (axis, wires) in expected {
            for group in cube.mesh.groups(axis) {
                assert_eq!(cube.wires(&group), wires, "{axis:?} {group:?} of {order}, {per_node} to a node");
            }
        }
    };
    check("tp-cp-dp-pp", 4, [(Axis::Tensor, Node), (Axis::Data, Network), (Axis::Pipeline, Network)]);
    check("tp-cp-dp-pp", 8, [(Axis::Tensor, Node), (Axis::Data, Node), (Axis::Pipeline, Network)]);
    check("tp-cp-pp-dp", 8, [(Axis::Tensor, Node), (Axis::Data, Network), (Axis::Pipeline, Node)]);
    check("pp-tp-cp-dp", 4, [(Axis::Tensor, Both(2)), (Axis::Data, Network), (Axis::Pipeline, Node)]);
    check("dp-pp-tp-cp", 4, [(Axis::Tensor, Network), (Axis::Data, Node), (Axis::Pipeline, Node)]);
    check("tp-cp-dp-pp", 1, [(Axis::Tensor, Network), (Axis::Data, Network), (Axis::Pipeline, Network)]);
}

#[test]
fn the_cube_is_a_picture() {
    let text = text(MESHES[0], "[data_parallel]\nstrategy = \"zero-1\"\nexpand = false\n[hardware]\nranks_per_node = 2");
    let (run, cube) = (run(&text), Cube::of(&scenario(&text)).expect("a mesh"));
    insta::assert_snapshot!(cube.text(&run.observed().run, Rank(9)));
    // As many ranks around the chosen one as have room.
    let small = cube.picture(Rank(9), (24, 4));
    let shown: String = small.iter().flatten().map(|cell| cell.text.as_str()).collect();
    assert!(shown.contains("[r9]") && !shown.contains("r0"), "{shown}");
}
