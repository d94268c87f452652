//! Every legal mesh of up to eight ranks, under every strategy that goes with it: the numbers of one device, and nobody hangs.

use std::fmt::Write;

use ranklab::program::check as findings;
use ranklab::program::trace::Outcome;

use crate::support::run;

/// Ranks along dp, pp, cp and tp.
#[derive(Clone, Copy, Debug)]
struct Mesh {
    data: usize,
    pipeline: usize,
    context: usize,
    tensor: usize,
}

const STRATEGIES: [&str; 5] = ["ddp", "zero-1", "zero-2", "zero-3", "fsdp"];

impl Mesh {
    /// All with at most `most` ranks.
    fn all(most: usize) -> impl Iterator<Item = Self> {
        let sizes = move |taken: usize| 1..=most / taken;
        let pairs = sizes(1).flat_map(move |data| sizes(data).map(move |pipeline| (data, pipeline)));
        let triples =
            pairs.flat_map(move |(data, pipeline)| sizes(data * pipeline).map(move |context| (data, pipeline, context)));
        triples.flat_map(move |(data, pipeline, context)| {
            sizes(data * pipeline * context).map(move |tensor| Self { data, pipeline, context, tensor })
        })
    }

    /// As DeepSpeed has it, stages and scattered gradients do not go together; a rank by itself shares nothing out.
    fn takes(self, strategy: &str) -> bool {
        let scatters = ["zero-2", "zero-3"].contains(&strategy);
        !(scatters && self.pipeline > 1) && (strategy == "ddp" || self.data * self.context > 1)
    }

    /// Three steps of a model that this mesh can cut; all that it leaves open goes round with `turn`.
    fn text(self, strategy: &str, turn: usize) -> String {
        let Self { data, pipeline, context, tensor } = self;
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
             pipeline = {pipeline}\ncontext = {context}\ntensor = {tensor}\norder = \"{order}\"\n[tensor_parallel]\n\
             sequence_parallel = {}\n[context_parallel]\nmethod = \"{method}\"\nplacement = \"{placement}\"\n[data_parallel]\n\
             strategy = \"{strategy}\"\nbucket_mib = 0.01\nexpand = {}\n[pipeline]\nschedule = \"{schedule}\"\n[recompute]\n\
             mode = \"{}\"\n",
            pipeline.max(1 + turn % 2),
            turn % 4 < 2,
            !turn.is_multiple_of(5),
            of(&["none", "none", "full", "selective"], 1),
        );
        text
    }
}

#[test]
fn every_small_mesh_trains_as_one_device_does() {
    let mut turn = 0;
    for mesh in Mesh::all(8) {
        for strategy in STRATEGIES.into_iter().filter(|strategy| mesh.takes(strategy)) {
            turn += 1;
            let text = mesh.text(strategy, turn);
            let run = run(&text);
            assert_eq!(run.session.trace().outcome, Outcome::Completed, "{mesh:?} {text}");
            assert!(["equal", "expected-drift"].contains(&run.verdict.name()), "{:?} of {mesh:?}\n{text}", run.verdict);
            assert_eq!(findings(run.session.program()), [], "{mesh:?} {text}");
        }
    }
    assert!(turn > 150, "{turn} runs");
}
