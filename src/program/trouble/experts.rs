//! The rows of faults of a mixture of experts.

use super::Acts::Making;
use super::RuleKey::{Factor, Rank as OneRank};
use super::{Fault, TroubleKind};

/// What faults of experts need.
const EXPERTS: &str = "a bare [layer] of experts over several ranks";

/// A rank whose experts are chosen too often.
pub(super) const OVERLOAD: Fault = Fault {
    kind: TroubleKind::ExpertOverload,
    name: "expert-overload",
    meaning: "experts: those of the rank are chosen `factor` times as often as before",
    seen: "right numbers, and a slow step: all ranks wait for the results of that rank",
    acts: Making,
    takes: &[OneRank, Factor],
    needs: &[OneRank],
    wants: EXPERTS,
};

/// Room that nobody asked to be so small.
pub(super) const CAPACITY_DROP: Fault = Fault {
    kind: TroubleKind::CapacityDrop,
    name: "capacity-drop",
    meaning: "experts: each takes `factor` times its even share of a rank's choices, and nobody asked for that",
    seen: "a step that is no longer slow, and tokens that come back without what their experts would have made of them",
    acts: Making,
    takes: &[Factor],
    needs: &[],
    wants: EXPERTS,
};

/// Sizes that do not agree.
pub(super) const STALE_SPLITS: Fault = Fault {
    kind: TroubleKind::StaleSplits,
    name: "stale-splits",
    meaning: "experts: the rank cuts its rows as those of another batch, so its sizes are not what the others expect",
    seen: "a hang: an all-to-all whose sizes do not agree never ends",
    acts: Making,
    takes: &[OneRank],
    needs: &[OneRank],
    wants: EXPERTS,
};
