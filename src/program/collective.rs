//! Collectives: what a group of ranks does together, and the units of state that they do it to.

use super::tables::Program;
use crate::base::folding::Folding;
use crate::base::mesh::Line;
use crate::base::settings::Dtype;
use crate::base::{Bytes, CollectiveId, GroupId, OpId, ParameterId, Rank};

/// A group of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name, such as `dp0` or `world`.
    pub name: String,
    /// Its members that are followed, in order.
    pub ranks: Vec<Rank>,
    /// Whom each of them stands for; empty where for itself.
    pub folds: Vec<Fold>,
}

/// Ranks that a member of a group stands for: those of a line that begins with itself, in numbers of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// The line.
    pub line: Line,
    /// They meet each other if it is `None`. Otherwise each meets its like in a group of its own, whose number is so much higher than that of
    /// the one before.
    pub apart: Option<usize>,
}

impl Group {
    /// That of `ranks`, each of which stands for itself.
    #[must_use]
    pub fn of(name: &str, ranks: Vec<Rank>) -> Self {
        Self { name: name.to_owned(), ranks, folds: Vec::new() }
    }

    /// The group of `all`, numbers among all ranks in order, under a folding that the group agrees with: along each line it has none of the
    /// others, or as many at equal distances. Its name is `kind` and the `number` of its first rank, if there is more than one such group.
    #[must_use]
    pub fn new(folding: &Folding, kind: &str, number: Option<&dyn Fn(Rank) -> usize>, all: &[Rank]) -> Self {
        let first = all.first().copied().unwrap_or_default();
        let name = number.map_or_else(|| kind.to_owned(), |number| format!("{kind}{}", number(first)));
        let folds = folding.lines().iter().flat_map(|&line| folds(line, first, number, all)).collect();
        let ranks = all.iter().filter(|&&rank| folding.is_followed(rank)).map(|&rank| folding.fold(rank).0).collect();
        Self { name, ranks, folds }
    }

    /// How many ranks meet: those among them that the members stand for, too.
    #[must_use]
    pub fn size(&self) -> usize {
        let meeting = self.folds.iter().filter(|fold| fold.apart.is_none());
        self.ranks.len() * meeting.map(|fold| fold.line.ranks).product::<usize>()
    }

    /// How many groups are followed as this one, itself among them.
    #[must_use]
    pub fn alike(&self) -> usize {
        self.folds.iter().filter(|fold| fold.apart.is_some()).map(|fold| fold.line.ranks).product()
    }

    /// The names of the groups that are followed as this one, which comes first.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let kind = self.name.trim_end_matches(|c: char| c.is_ascii_digit());
        let Ok(first) = self.name[kind.len()..].parse::<u32>() else { return vec![self.name.clone()] };
        let mut numbers = vec![first as usize];
        for Fold { line, apart } in &self.folds {
            let others = apart.map_or(0..1, |_| 0..line.ranks).map(|place| place * apart.unwrap_or_default());
            numbers = others.flat_map(|more| numbers.iter().map(move |number| number + more)).collect();
        }
        numbers.into_iter().map(|number| format!("{kind}{number}")).collect()
    }

    /// The numbers among all ranks of the first of them and the last.
    #[must_use]
    pub fn ends(&self, folding: &Folding) -> [Rank; 2] {
        let [first, last] =
            [self.ranks.first(), self.ranks.last()].map(|rank| folding.unfold(rank.copied().unwrap_or_default(), 0));
        let meeting = self.folds.iter().filter(|fold| fold.apart.is_none());
        let length: usize = meeting.map(|Fold { line, .. }| (line.ranks - 1) * line.stride).sum();
        [first, Rank::new(last.index() + length)]
    }

    /// The numbers among all ranks of those who meet `rank`, one of all, in order and itself among them.
    #[must_use]
    pub fn members(&self, folding: &Folding, rank: Rank) -> Vec<Rank> {
        let mut members: Vec<usize> = self.ranks.iter().map(|&member| folding.unfold(member, 0).index()).collect();
        for Fold { line, apart } in &self.folds {
            let own = line.place(rank);
            let places = if apart.is_none() { 0..line.ranks } else { own..own + 1 };
            members = places.flat_map(|place| members.iter().map(move |member| member + place * line.stride)).collect();
        }
        members.sort_unstable();
        members.into_iter().map(Rank::new).collect()
    }
}

/// What the group of `first` makes of a line along which ranks are folded: those of it that meet, and around and between them those that do not.
fn folds(line: Line, first: Rank, number: Option<&dyn Fn(Rank) -> usize>, all: &[Rank]) -> Vec<Fold> {
    let at = |place: usize| Rank::new(first.index() + place * line.stride);
    let met: Vec<usize> = (0..line.ranks).filter(|&place| all.contains(&at(place))).collect();
    let (ranks, distance) = (met.len(), met.get(1).copied().unwrap_or(line.ranks));
    debug_assert!((0..ranks).all(|place| met[place] == place * distance), "they stand at equal distances");
    let apart = |place: usize| number.map_or(0, |number| number(at(place)) - number(first));
    let between = Fold { line: Line { ranks: distance, stride: line.stride }, apart: (distance > 1).then(|| apart(1)) };
    let meeting = Fold { line: Line { ranks, stride: line.stride * distance }, apart: None };
    let (blocks, block) = (line.ranks / (ranks * distance), ranks * distance);
    let around = Line { ranks: blocks, stride: line.stride * block };
    let around = Fold { line: around, apart: (blocks > 1).then(|| apart(block)) };
    [between, meeting, around].into_iter().filter(|fold| fold.line.ranks > 1).collect()
}

/// One collective operation of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The group.
    pub group: GroupId,
    /// What is done.
    pub kind: CollectiveKind,
    /// What it is done to: `bucket3`, `payload`, `step`.
    pub label: String,
    /// The step that it belongs to.
    pub step: u32,
    /// Payload of one rank: what an all-reduce sums, what a reduce-scatter cuts up, what an all-gather puts together.
    pub bytes: Bytes,
    /// Type of the payload's elements.
    pub dtype: Dtype,
    /// What was added to the payload so that every member has an equal share.
    pub padding: Bytes,
    /// The payload is one shard of so many, which have the padding together; 1 where it is whole.
    pub shards: usize,
}

impl Collective {
    /// Elements of the payload without padding; of a shard, their mean over all shards.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "elements of a checked model")]
    pub fn payload(&self) -> f64 {
        let shards = self.shards.max(1) as u64;
        (self.bytes.0 * shards - self.padding.0) as f64 / (shards * self.dtype.size()) as f64
    }
}

/// A unit of sharded state: parameters that are cut up, gathered and reduced together. Their tensors lie flat behind each other, zeros
/// make up the length, and every one of `shards` ranks has an equal piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name: `blocks.3`, `bucket0`.
    pub label: String,
    /// Its parameters, in the order in which they lie.
    pub parameters: Vec<ParameterId>,
    /// Into how many pieces it is cut.
    pub shards: usize,
    /// How far apart those who share it stand among the ranks that see different data.
    pub apart: usize,
}

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Every member's buffers become the sum over the members.
    AllReduce,
    /// Every member gets its N-th of the sum over the members.
    ReduceScatter,
    /// Every member gets the N-ths of all members.
    AllGather,
    /// The members meet.
    Barrier,
    /// Every member cuts what it has along its heads and sends a piece to each, or puts such pieces together again.
    AllToAll,
}

impl CollectiveKind {
    /// All kinds with their names in program texts.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::AllReduce, "all-reduce"),
        (Self::ReduceScatter, "reduce-scatter"),
        (Self::AllGather, "all-gather"),
        (Self::Barrier, "barrier"),
        (Self::AllToAll, "all-to-all"),
    ];

    /// Its name in program texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether it is made of the messages of an algorithm, where messages are followed: sums and gathers.
    #[must_use]
    pub fn is_expanded(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::AllGather)
    }

    /// How often the payload passes a member: an all-reduce is a reduce-scatter and an all-gather.
    #[must_use]
    pub fn rounds(self) -> u64 {
        [2, 1, 1, 0, 1][self as usize]
    }

    /// How many messages stand one behind the other among so many members: a ring's; one where they only meet.
    #[must_use]
    pub fn latencies(self, members: u64) -> u64 {
        if self == Self::Barrier { 1 } else { self.rounds() * members.saturating_sub(1) }
    }
}

impl Unit {
    /// Elements of its parameters.
    #[must_use]
    pub fn elements(&self, program: &Program) -> usize {
        self.parameters.iter().map(|parameter| program.parameters[parameter.index()].elements()).sum()
    }

    /// Elements of one shard: the last ones may hold zeros beside parameters, or nothing else.
    #[must_use]
    pub fn shard_elements(&self, program: &Program) -> usize {
        self.elements(program).div_ceil(self.shards.max(1))
    }

    /// Zeros in the shard at `place`.
    #[must_use]
    pub fn padding(&self, program: &Program, place: usize) -> usize {
        let (all, shard) = (self.elements(program), self.shard_elements(program));
        shard - all.saturating_sub(place * shard).min(shard)
    }
}

impl Program {
    /// The group of a collective.
    #[must_use]
    pub fn group_of(&self, collective: CollectiveId) -> &Group {
        &self.groups[self.collectives[collective.index()].group.index()]
    }

    /// How many ranks each rank stands for.
    #[must_use]
    pub fn fold(&self) -> usize {
        self.setting.folding.size()
    }

    /// The number of `rank` among all ranks, by which screens and texts name it: the first of those that it stands for.
    #[must_use]
    pub fn whole(&self, rank: Rank) -> Rank {
        self.unfolded(rank, 0)
    }

    /// The rank of `op` by its number among all.
    #[must_use]
    pub fn whole_rank_of(&self, op: OpId) -> Rank {
        self.whole(self.rank_of(op))
    }

    /// How many ranks there are, those that are followed and those that they stand for.
    #[must_use]
    pub fn whole_ranks(&self) -> usize {
        self.ranks() * self.fold()
    }

    /// Who is followed for rank `whole` of all; `None` if there are fewer ranks.
    #[must_use]
    pub fn followed(&self, whole: Rank) -> Option<Rank> {
        (whole.index() < self.whole_ranks()).then(|| self.setting.folding.fold(whole).0)
    }

    /// The number, among all ranks, of the `folded`-th that `rank` stands for.
    #[must_use]
    pub fn unfolded(&self, rank: Rank, folded: usize) -> Rank {
        self.setting.folding.unfold(rank, folded)
    }
}
