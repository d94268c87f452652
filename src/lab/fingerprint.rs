//! Fingerprints: which of a layer's results are wrong, and how, tells which mistake it is. No rule looks at what the scenario asked for.

use std::fmt;

use super::layer::Compared;
use crate::base::AttentionBug;
use crate::base::context::Attention;
use crate::engine::compare::larger;
use crate::program::{Kernel, OpKind, Program};
use crate::scenario::Layer;

/// What a wrong layer looks like, and the mistakes that look like that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looks {
    /// The results that are wrong.
    pub wrong: Vec<&'static str>,
    /// Those that are right.
    pub right: Vec<&'static str>,
    /// What else is to be seen.
    pub signs: Vec<&'static str>,
    /// The mistakes with this fingerprint.
    pub suspects: Vec<AttentionBug>,
}

/// What is looked at.
struct Evidence {
    /// Whether o, lse, dq, dk and dv are wrong.
    wrong: [bool; 5],
    /// Some result is no number.
    overflowed: bool,
    /// The output is off by no more than a rounding to bf16.
    small: bool,
    /// No log-sum-exp is too large.
    lse_low: bool,
    work: Work,
}

/// How many pairs of a query and a key the ranks computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// As many as the placement leaves of the causal mask.
    Right,
    /// Others, and equally many on all ranks.
    Even,
    /// Others.
    Other,
}

/// A mistake, which results it makes wrong, and what else must be seen.
struct Fingerprint {
    bug: AttentionBug,
    wrong: [bool; 5],
    shows: fn(&Evidence) -> bool,
}

const fn fingerprint(bug: AttentionBug, wrong: [u8; 5], shows: fn(&Evidence) -> bool) -> Fingerprint {
    let [o, lse, dq, dk, dv] = wrong;
    Fingerprint { bug, wrong: [o == 1, lse == 1, dq == 1, dk == 1, dv == 1], shows }
}

/// All of them, over o, lse, dq, dk, dv.
const FINGERPRINTS: [Fingerprint; 11] = [
    fingerprint(AttentionBug::NoRescale, [1, 0, 1, 1, 0], |seen| !seen.small),
    fingerprint(AttentionBug::AverageMerge, [1, 0, 1, 1, 0], |seen| !seen.small),
    fingerprint(AttentionBug::Bf16Blocks, [1, 0, 1, 1, 0], |seen| seen.small),
    fingerprint(AttentionBug::MaxLse, [1, 1, 1, 1, 1], |seen| seen.lse_low && seen.work == Work::Right),
    fingerprint(AttentionBug::WrongNeighbour, [1, 1, 1, 1, 1], |seen| !seen.lse_low && seen.work == Work::Right),
    fingerprint(AttentionBug::LocalMask, [1, 1, 1, 1, 1], |seen| seen.work == Work::Even),
    fingerprint(AttentionBug::SwappedStripes, [1, 1, 1, 1, 1], |seen| seen.work == Work::Other),
    fingerprint(AttentionBug::NoDelta, [0, 0, 1, 1, 0], |_| true),
    fingerprint(AttentionBug::BlockLse, [0, 0, 1, 1, 1], |_| true),
    fingerprint(AttentionBug::ShortHop, [0, 0, 0, 1, 1], |_| true),
    fingerprint(AttentionBug::NaiveLse, [1, 1, 1, 1, 1], |seen| seen.overflowed),
];

/// Results that bf16 rounded are off by no more than this share of the largest.
const BF16: f64 = 1.0 / 64.0;

/// Looks at the results of a layer, and at what its ranks computed.
pub(super) fn diagnose(layer: &Layer, program: &Program, compared: &[Compared]) -> Looks {
    let is_wrong = |result: &Compared| result.wrong.contains(&true);
    let (wrong, right): (Vec<&Compared>, Vec<&Compared>) = compared.iter().partition(|result| is_wrong(result));
    let names = |list: &[&Compared]| list.iter().map(|result| result.name).collect::<Vec<_>>();
    let mut looks = Looks { wrong: names(&wrong), right: names(&right), signs: Vec::new(), suspects: Vec::new() };
    let [o, lse, dq, dk, dv] = compared else { return looks };
    let most = |result: &Compared| result.off.iter().copied().fold(0.0, larger);
    let seen = Evidence {
        wrong: [o, lse, dq, dk, dv].map(is_wrong),
        overflowed: compared.iter().any(|result| !most(result).is_finite()) && work(layer, program) == Work::Right,
        small: most(o) <= BF16 * o.largest,
        lse_low: lse.below,
        work: work(layer, program),
    };
    let signs = [
        (seen.overflowed, "some are no numbers"),
        (seen.wrong[0] && seen.small, "by no more than a rounding to bf16"),
        (seen.wrong[1] && seen.lse_low && !seen.overflowed, "no lse is too large"),
        (seen.work == Work::Even, "all ranks computed equally many pairs, and not the right number"),
        (seen.work == Work::Other, "ranks computed other pairs than their placement leaves"),
    ];
    looks.signs = signs.into_iter().filter(|(is_seen, _)| *is_seen).map(|(_, sign)| sign).collect();
    let fits = |print: &&Fingerprint| {
        let overflow = (print.bug == AttentionBug::NaiveLse) == seen.overflowed;
        overflow && (seen.overflowed || print.wrong == seen.wrong) && (print.shows)(&seen)
    };
    looks.suspects = FINGERPRINTS.iter().filter(fits).map(|print| print.bug).collect();
    looks
}

/// The pairs that the forward kernels of each rank computed, against what the placement leaves of the mask.
fn work(layer: &Layer, program: &Program) -> Work {
    let sound = Attention { bug: None, ..layer.attention };
    let ranks = 0..sound.slices;
    let right: Vec<u64> = ranks.clone().map(|rank| ranks.clone().map(|source| sound.pairs(rank, source)).sum()).collect();
    let found = pairs(program, &sound);
    match () {
        () if found == right => Work::Right,
        () if found.windows(2).all(|pair| pair[0] == pair[1]) => Work::Even,
        () => Work::Other,
    }
}

/// Per rank, the pairs that its forward kernels compute.
fn pairs(program: &Program, attention: &Attention) -> Vec<u64> {
    let flops = |op: &crate::base::OpId| match program.kind(*op) {
        OpKind::Run(kernel) if program.kernels[kernel.index()].kernel == Kernel::Attend => program.kernels[kernel.index()].flops,
        _ => 0,
    };
    program.order.iter().map(|order| order.iter().map(flops).sum::<u64>() / attention.flops_per_pair()).collect()
}

impl fmt::Display for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrong: {}", self.wrong.join(", "))?;
        if !self.right.is_empty() {
            write!(f, "; right: {}", self.right.join(", "))?;
        }
        self.signs.iter().try_for_each(|sign| write!(f, "; {sign}"))?;
        let suspects: Vec<&str> = self.suspects.iter().map(|bug| bug.name()).collect();
        match suspects.as_slice() {
            [] => Ok(()),
            suspects => write!(f, ": as with {}", suspects.join(" or ")),
        }
    }
}
