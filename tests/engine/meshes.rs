//! Every legal mesh of up to eight ranks, under every strategy that goes with it, without experts and with them: the numbers of one device, and
//! nobody hangs.

use std::fmt::Write;

use ranklab::program::check as findings;
use ranklab::program::trace::Outcome;

use crate::support::run;

/// Ranks along dp, pp, cp and tp, and of those that see different data, how many share out experts; 0 where the model has none.
#[derive(Clone, Copy, Debug)]
struct Mesh {
    data: usize,
    pipeline: usize,
    context: usize,
    tensor: usize,
    expert: usize,
}

const STRATEGIES: [&str; 5] = ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"];

impl Mesh {
    /// All with at most `most` ranks, without experts.
    fn all(most: usize) -> impl Iterator<Item = Self> {
        let sizes = move |taken: usize| 1..=most / taken;
        let pairs = sizes(1).flat_map(move |data| sizes(data).map(move |pipeline| (data, pipeline)));
        let triples =
            pairs.flat_map(move |(data, pipeline)| sizes(data * pipeline).map(move |context| (data, pipeline, context)));
        triples.flat_map(move |(data, pipeline, context)| {
            sizes(data * pipeline * context).map(move |tensor| Self { data, pipeline, context, tensor, expert: 0 })
        })
    }

    fn ranks(self) -> usize {
        self.data * self.pipeline * self.context * self.tensor
    }

    /// The same with experts: shared out among any number of ranks that divides those that see different data.
    fn with_experts(self) -> impl Iterator<Item = Self> {
        let all = self.data * self.context;
        (2..=all).filter(move |&expert| all.is_multiple_of(expert)).map(move |expert| Self { expert, ..self })
    }

    /// As DeepSpeed has it, stages and scattered gradients do not go together; a rank by itself shares nothing out.
    fn strategies(self) -> impl Iterator<Item = &'static str> {
        let scatters = |strategy: &str| ["zero-2", "zero-3"].contains(&strategy);
        STRATEGIES.into_iter().filter(move |strategy| {
            !(scatters(strategy) && self.pipeline > 1) && (*strategy == "ddp" || self.data * self.context > 1)
        })
    }

    /// Three steps of a model that this mesh can cut; all that it leaves open goes round with `turn`.
    fn text(self, strategy: &str, turn: usize) -> String {
        let Self { data, pipeline, context, tensor, expert } = self;
        let of = |choices: &[&'static str], every: usize| choices[turn / every % choices.len()];
        let (method, placement) = (of(&["ring", "all-gather", "ulysses"], 1), of(&["zigzag", "contiguous", "striped"], 3));
        let order = of(&["tp-cp-ep-dp-pp", "pp-dp-cp-tp", "cp-pp-tp-dp", "dp-tp-pp-cp"], 1);
        let schedule = of(&["1f1b", "zb-h1", "gpipe"], 2);
        // Twice as many query heads as heads of keys, of which every rank can take some.
        let heads = 2 * tensor * context;
        let mut text = format!(
            "[model]\nlayers = {}\nhidden = {}\nheads = {heads}\nkv_heads = {}\nffn = {}\nsequence = {}\nvocab = 19\n",
            pipeline.max(2),
            4 * heads,
            heads / 2,
            3 * tensor,
            2 * context * tensor,
        );
        text += ["", "norm = \"rms\"\nactivation = \"swiglu\"\npositions = \"rotary\"\nbias = \"none\"\n"][turn % 2];
        let _ = write!(
            text,
            "[batch]\nmicro_batches = {}\nsteps = 3\n[optimizer]\nkind = \"sgd\"\nlr = 0.1\n[parallel]\ndata = {data}\n\
             pipeline = {pipeline}\ncontext = {context}\ntensor = {tensor}\norder = \"{order}\"\n{}[tensor_parallel]\n\
             sequence_parallel = {}\n[context_parallel]\nmethod = \"{method}\"\nplacement = \"{placement}\"\n[data_parallel]\n\
             strategy = \"{strategy}\"\nbucket_mib = 0.01\nexpand = {}\n[pipeline]\nschedule = \"{schedule}\"\n[recompute]\n\
             mode = \"{}\"\n",
            pipeline.max(1 + turn % 2),
            if expert > 0 { format!("expert = {expert}\n") } else { String::new() },
            turn % 4 < 2,
            !turn.is_multiple_of(5),
            of(&["none", "none", "full", "selective"], 1),
        );
        if expert > 0 {
            let (count, room) = (expert * (1 + turn % 3), of(&["0", "1.0", "1.5"], 1));
            let (top_k, skew) = (1 + turn % 2, of(&["0", "0.7"], 3));
            let _ = write!(text, "[experts]\ncount = {count}\ntop_k = {top_k}\nskew = {skew}\ncapacity_factor = {room}\n");
        }
        text
    }

    /// Runs it, and holds it against one device.
    fn check(self, strategy: &str, turn: usize) {
        let text = self.text(strategy, turn);
        let run = run(&text);
        assert_eq!(run.session.trace().outcome, Outcome::Completed, "{self:?} {text}");
        assert!(["equal", "expected-drift"].contains(&run.verdict.name()), "{:?} of {self:?}\n{text}", run.verdict);
        assert_eq!(findings(run.session.program()), [], "{self:?} {text}");
    }
}

#[test]
fn every_small_mesh_trains_as_one_device_does() {
    let all = Mesh::all(8).flat_map(|mesh| mesh.strategies().map(move |strategy| (mesh, strategy)));
    let turns = (1..).zip(all).map(|(turn, (mesh, strategy))| mesh.check(strategy, turn)).count();
    assert!(turns > 150, "{turns} runs");
}

/// Each mesh takes three strategies or five: every third pair of a mesh and a strategy has every mesh.
#[test]
fn experts_stand_on_every_small_mesh() {
    let meshes = Mesh::all(8).flat_map(Mesh::with_experts);
    let all = meshes.flat_map(|mesh| mesh.strategies().map(move |strategy| (mesh, strategy)));
    let turns = (1..).zip(all.step_by(3)).map(|(turn, (mesh, strategy))| mesh.check(strategy, turn)).count();
    assert!(turns > 70, "{turns} runs");
}

/// A few of the larger ones, each with the next strategy.
#[test]
fn experts_stand_on_larger_meshes() {
    let large = Mesh::all(16).filter(|mesh| mesh.ranks() > 8).flat_map(Mesh::with_experts).step_by(17);
    let turns = (1..).zip(large).map(|(turn, mesh)| {
        let strategies: Vec<&str> = mesh.strategies().collect();
        mesh.check(strategies[turn % strategies.len()], turn);
    });
    assert!(turns.count() > 10);
}
