//! Folding: ranks that do the same at the same time are followed as one. Along some lines of the mesh the first rank stands for all.

use super::ids::Rank;
use super::mesh::Line;

/// The lines along which ranks are followed as one. A rank is followed if it stands first along each of them; those that are followed are
/// numbered among themselves, in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folding {
    /// In numbers of all ranks, those of neighbours first.
    lines: Vec<Line>,
}

impl Folding {
    /// That along `lines`, of which none has a rank twice.
    #[must_use]
    pub fn new(lines: impl IntoIterator<Item = Line>) -> Self {
        let mut lines: Vec<Line> = lines.into_iter().filter(|line| line.ranks > 1).collect();
        lines.sort_by_key(|line| line.stride);
        Self { lines }
    }

    /// The lines, those of neighbours first.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// How many ranks each that is followed stands for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.lines.iter().map(|line| line.ranks).product()
    }

    /// The number, among all ranks, of the `folded`-th that `rank` stands for; of itself, where that is 0.
    #[must_use]
    pub fn unfold(&self, rank: Rank, mut folded: usize) -> Rank {
        let mut all = rank.index();
        for &Line { ranks, stride } in &self.lines {
            all = all / stride * stride * ranks + folded % ranks * stride + all % stride;
            folded /= ranks;
        }
        Rank::new(all)
    }

    /// Who is followed for `rank`, one of all, and which of those it is that this one stands for.
    #[must_use]
    pub fn fold(&self, rank: Rank) -> (Rank, usize) {
        let (mut followed, mut folded) = (rank.index(), 0);
        for &line in self.lines.iter().rev() {
            let Line { ranks, stride } = line;
            folded = folded * ranks + line.place(Rank::new(followed));
            followed = followed / (stride * ranks) * stride + followed % stride;
        }
        (Rank::new(followed), folded)
    }

    /// Whether `rank`, one of all, is followed itself.
    #[must_use]
    pub fn is_followed(&self, rank: Rank) -> bool {
        self.lines.iter().all(|line| line.place(rank) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_followed_by_one() {
        let line = |ranks, stride| Line { ranks, stride };
        // A mesh of 2 x 3 x 5 x 7: any of its axes, and a part of one.
        for (lines, followed) in [
            (vec![], 210),
            (vec![line(2, 1)], 105),
            (vec![line(5, 6), line(2, 1)], 21),
            (vec![line(3, 2), line(7, 30)], 10),
            (vec![line(2, 1), line(3, 2), line(5, 6), line(7, 30)], 1),
        ] {
            let folding = Folding::new(lines);
            assert_eq!(folding.size() * followed, 210);
            let mut all = Vec::new();
            for rank in (0..followed).map(Rank::new) {
                assert!(folding.is_followed(folding.unfold(rank, 0)));
                for folded in 0..folding.size() {
                    let whole = folding.unfold(rank, folded);
                    assert_eq!(folding.fold(whole), (rank, folded));
                    assert_eq!(folding.is_followed(whole), folded == 0);
                    all.push(whole.index());
                }
            }
            all.sort_unstable();
            assert_eq!(all, (0..210).collect::<Vec<_>>());
        }
        // Those of half a data axis of four, behind two tensor-parallel ranks.
        let half = Folding::new([line(2, 4)]);
        assert_eq!([0, 1, 2, 3, 4].map(|rank| half.unfold(Rank(rank), 0).0), [0, 1, 2, 3, 8]);
    }
}
