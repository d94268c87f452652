//! What theory says of a schedule, when messages are free and stages are equal: closed forms with the letters of this room, t = F + B.

use super::Size;

/// The closed forms of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct Theory {
    /// How long each rank is idle.
    pub idle: &'static str,
    /// How long a step takes.
    pub makespan: &'static str,
    /// Idle over all time.
    pub fraction: &'static str,
    /// Idle over busy time.
    pub ratio: &'static str,
    /// The value of `idle` in the unit of the times; `None` for sizes and times that the forms say nothing about.
    pub value: fn(Size, Times) -> Option<f64>,
}

/// Times of a chunk's passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// F.
    pub forward: f64,
    /// I.
    pub input: f64,
    /// W.
    pub weight: f64,
    /// F&B, a forward and a backward that run as one.
    pub overlapped: f64,
}

impl Theory {
    /// A step fills once and drains once: every rank waits for the p-1 others, forward and backward.
    pub(super) const RAMPS: Self = Self {
        idle: "(p-1) t",
        makespan: "(m+p-1) t",
        fraction: "(p-1)/(m+p-1)",
        ratio: "(p-1)/m",
        value: |size, t| Some((size.p() - 1.0) * t.all()),
    };

    /// The same over the chunks of a loop.
    pub(super) const SHORT_RAMPS: Self = Self {
        idle: "(p-1) t",
        makespan: "(mv+p-1) t",
        fraction: "(p-1)/(mv+p-1)",
        ratio: "(p-1)/(mv)",
        value: |size, t| (size.micro_batches >= size.ranks).then(|| (size.p() - 1.0) * t.all()),
    };

    /// It fills once for all steps, and is never drained.
    pub(super) const NEVER_DRAINED: Self = Self {
        idle: "(p-1) t once, not in every step",
        makespan: "(m+p-1) t for the first step, mt for each later one",
        fraction: "0 once it is full",
        ratio: "0 once it is full",
        ..Self::RAMPS
    };

    /// For schedules that nobody has a closed form for.
    pub(super) const UNKNOWN: Self = Self {
        idle: "no closed form",
        makespan: "no closed form",
        fraction: "no closed form",
        ratio: "no closed form",
        value: |_, _| None,
    };

    /// Idle for p-1 forwards while the first micro-batch comes, and not again, if there are micro-batches enough.
    pub(super) const PARALLELOGRAM: Self = Self {
        idle: "(p-1) F, and 0 between its first op and its last",
        makespan: "mvt + (p-1) F",
        fraction: "(p-1)/(3mv+p-1)",
        ratio: "(p-1)/(3mv)",
        value: |size, t| {
            let is_filled = size.micro_batches >= 2 * size.ranks - 1;
            (t.are_equal() && is_filled).then(|| (size.p() - 1.0) * t.forward)
        },
    };
}

impl Times {
    /// B, the whole backward.
    #[must_use]
    pub fn backward(self) -> f64 {
        self.input + self.weight
    }

    /// Whether all passes take the same time, as zero-bubble schedules suppose, and nothing is won by running two as one.
    #[must_use]
    pub fn are_equal(self) -> bool {
        let same = |a: f64, b: f64| (a - b).abs() < 1e-9;
        same(self.forward, self.input) && same(self.input, self.weight) && same(self.overlapped, self.all())
    }

    /// t, forward and backward.
    #[must_use]
    pub fn all(self) -> f64 {
        self.forward + self.backward()
    }
}

impl Size {
    pub(super) fn p(self) -> f64 {
        f64::from(self.ranks)
    }

    pub(super) fn m(self) -> f64 {
        f64::from(self.micro_batches)
    }
}
