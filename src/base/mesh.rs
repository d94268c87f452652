//! The mesh: ranks placed along named axes, and the groups that the axes make.

use super::ids::Rank;

/// An axis of the mesh, fastest first: neighbouring ranks differ along the first axis whose size is above 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Data parallel: replicas that see different micro-batches.
    Data,
    /// Pipeline parallel: stages of the model.
    Pipeline,
}

impl Axis {
    /// All axes, fastest first.
    pub const ALL: [Self; 2] = [Self::Data, Self::Pipeline];

    /// The short name that frameworks use for its group.
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Data => "dp",
            Self::Pipeline => "pp",
        }
    }
}

/// Sizes of the axes; the number of ranks is their product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    sizes: [usize; Axis::ALL.len()],
}

impl Mesh {
    /// A mesh of `data` x `pipeline` ranks.
    ///
    /// # Panics
    /// If a size is 0.
    #[must_use]
    pub fn new(data: usize, pipeline: usize) -> Self {
        assert!(data > 0 && pipeline > 0, "every axis has at least one rank");
        Self { sizes: [data, pipeline] }
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

    fn stride(&self, axis: Axis) -> usize {
        self.sizes[..axis as usize].iter().product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_partition_the_ranks() {
        let mesh = Mesh::new(3, 5);
        let ranks = |group: &[Rank]| group.iter().map(|rank| rank.0).collect::<Vec<_>>();
        assert_eq!(ranks(&mesh.group(Rank(7), Axis::Data)), [6, 7, 8]);
        assert_eq!(ranks(&mesh.group(Rank(7), Axis::Pipeline)), [1, 4, 7, 10, 13]);
        for axis in Axis::ALL {
            let mut all: Vec<u32> = mesh.groups(axis).iter().flat_map(|group| ranks(group)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..15).collect::<Vec<_>>());
        }
    }
}
