//! The mesh: ranks placed along named axes, and the groups that the axes make.

use super::ids::Rank;

/// An axis of the mesh. Two ranks that differ along one alone share all that the others cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Tensor parallel: slices of each layer's matrices.
    Tensor,
    /// Context parallel: slices of each sequence.
    Context,
    /// Data parallel: replicas that see different micro-batches.
    Data,
    /// Pipeline parallel: stages of the model.
    Pipeline,
}

/// The ranks along one axis: how many, and how far apart neighbours are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// How many.
    pub ranks: usize,
    /// How far apart.
    pub stride: usize,
}

impl Default for Line {
    /// Each rank by itself.
    fn default() -> Self {
        Self { ranks: 1, stride: 1 }
    }
}

impl Line {
    /// The place of `rank` among them.
    #[must_use]
    pub fn place(self, rank: Rank) -> usize {
        rank.index() / self.stride % self.ranks
    }
}

/// Where `rank` stands among the ranks of both lines, which are numbered along the faster one first.
#[must_use]
pub fn place_on(lines: [Line; 2], rank: Rank) -> usize {
    let [a, b] = lines.map(|line| line.place(rank));
    let [ranks_of_a, ranks_of_b] = lines.map(|line| line.ranks);
    if lines[0].stride < lines[1].stride { b * ranks_of_a + a } else { a * ranks_of_b + b }
}

impl Axis {
    /// All axes in the usual order, fastest first: who talks most stands nearest.
    pub const ALL: [Self; 4] = [Self::Tensor, Self::Context, Self::Data, Self::Pipeline];

    /// The short name that frameworks use for its group.
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Tensor => "tp",
            Self::Context => "cp",
            Self::Data => "dp",
            Self::Pipeline => "pp",
        }
    }

    /// The axis with this short name.
    #[must_use]
    pub fn find(short: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.short() == short)
    }
}

/// Sizes of the axes, and their order: neighbouring ranks differ along the first axis whose size is above 1. The number of ranks is the
/// product of the sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    sizes: [usize; Axis::ALL.len()],
    order: [Axis; Axis::ALL.len()],
}

impl Mesh {
    /// A mesh of `data` x `pipeline` ranks in the usual order.
    ///
    /// # Panics
    /// If a size is 0.
    #[must_use]
    pub fn new(data: usize, pipeline: usize) -> Self {
        let one = Self { sizes: [1; Axis::ALL.len()], order: Axis::ALL };
        one.sized(Axis::Data, data).sized(Axis::Pipeline, pipeline)
    }

    /// The same mesh with `size` ranks along `axis`.
    ///
    /// # Panics
    /// If the size is 0.
    #[must_use]
    pub fn sized(mut self, axis: Axis, size: usize) -> Self {
        assert!(size > 0, "every axis has at least one rank");
        self.sizes[axis as usize] = size;
        self
    }

    /// The same sizes with the axes in this order, fastest first.
    #[must_use]
    pub fn ordered(self, order: [Axis; Axis::ALL.len()]) -> Self {
        Self { order, ..self }
    }

    /// The axes, fastest first.
    #[must_use]
    pub fn order(&self) -> [Axis; Axis::ALL.len()] {
        self.order
    }

    /// The size of `axis`.
    #[must_use]
    pub fn size(&self, axis: Axis) -> usize {
        self.sizes[axis as usize]
    }

    /// The number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Where `rank` stands along `axis`.
    #[must_use]
    pub fn coordinate(&self, rank: Rank, axis: Axis) -> usize {
        rank.index() / self.stride(axis) % self.size(axis)
    }

    /// The rank beside `rank` that stands at `coordinate` along `axis` and where `rank` stands along the others.
    #[must_use]
    pub fn with(&self, rank: Rank, axis: Axis, coordinate: usize) -> Rank {
        let stride = self.stride(axis);
        Rank::new(rank.index() - self.coordinate(rank, axis) * stride + coordinate * stride)
    }

    /// The rank at these coordinates; 0 along the other axes.
    #[must_use]
    pub fn at(&self, coordinates: &[(Axis, usize)]) -> Rank {
        coordinates.iter().fold(Rank(0), |rank, &(axis, coordinate)| self.with(rank, axis, coordinate))
    }

    /// The ranks that differ from `rank` along `axis` alone, `rank` among them, in order.
    #[must_use]
    pub fn group(&self, rank: Rank, axis: Axis) -> Vec<Rank> {
        (0..self.size(axis)).map(|coordinate| self.with(rank, axis, coordinate)).collect()
    }

    /// All groups along `axis`, each in order, ordered by their first rank.
    #[must_use]
    pub fn groups(&self, axis: Axis) -> Vec<Vec<Rank>> {
        let all = (0..self.ranks()).map(Rank::new);
        all.filter(|&rank| self.coordinate(rank, axis) == 0).map(|rank| self.group(rank, axis)).collect()
    }

    /// The ranks along `axis`; where there is one, it is a line by itself.
    #[must_use]
    pub fn line(&self, axis: Axis) -> Line {
        if self.size(axis) == 1 { Line::default() } else { Line { ranks: self.size(axis), stride: self.stride(axis) } }
    }

    /// How far apart neighbours along `axis` are: the product of the sizes of the faster axes.
    #[must_use]
    pub fn stride(&self, axis: Axis) -> usize {
        self.order.iter().take_while(|faster| **faster != axis).map(|&faster| self.size(faster)).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(group: &[Rank]) -> Vec<u32> {
        group.iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn groups_partition_the_ranks() {
        let mesh = Mesh::new(3, 5);
        assert_eq!(ranks(&mesh.group(Rank(7), Axis::Data)), [6, 7, 8]);
        assert_eq!(ranks(&mesh.group(Rank(7), Axis::Pipeline)), [1, 4, 7, 10, 13]);
        let mesh = mesh.sized(Axis::Tensor, 2);
        for order in [Axis::ALL, [Axis::Pipeline, Axis::Tensor, Axis::Data, Axis::Context]] {
            let mesh = mesh.ordered(order);
            for axis in Axis::ALL {
                let mut all: Vec<u32> = mesh.groups(axis).iter().flat_map(|group| ranks(group)).collect();
                all.sort_unstable();
                assert_eq!(all, (0..30).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_order_says_who_is_near() {
        let mesh = Mesh::new(3, 2).sized(Axis::Tensor, 2);
        assert_eq!(ranks(&mesh.group(Rank(7), Axis::Tensor)), [6, 7]);
        assert_eq!(ranks(&mesh.group(Rank(7), Axis::Data)), [7, 9, 11]);
        assert_eq!(mesh.at(&[(Axis::Pipeline, 1), (Axis::Tensor, 1)]), Rank(7));
        let mesh = mesh.ordered([Axis::Data, Axis::Pipeline, Axis::Tensor, Axis::Context]);
        assert_eq!(ranks(&mesh.group(Rank(7), Axis::Data)), [6, 7, 8]);
        assert_eq!(ranks(&mesh.group(Rank(7), Axis::Tensor)), [1, 7]);
        assert_eq!((mesh.stride(Axis::Pipeline), mesh.stride(Axis::Tensor)), (3, 6));
    }
}
