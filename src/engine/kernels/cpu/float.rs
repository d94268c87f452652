//! The two floating-point types the kernels are written for, and the vectorised functions over them.
//!
//! The loops are plain Rust; `vectorised!` compiles them once per instruction set and picks one when the program runs.
//! What makes that work: selects instead of branches, fused multiply-adds, no calls into libm.

use candle_core::WithDType;

/// f32 or f64.
pub trait Float: WithDType + std::ops::Neg<Output = Self> {
    /// Least argument of [`exp`]: below it the result would be subnormal, and is 0 instead.
    const EXP_MIN: Self;
    /// Greatest argument of [`exp`]: above it the result stays at e^`EXP_MAX`, which is finite.
    const EXP_MAX: Self;
    /// log2(e).
    const LOG2_E: Self;
    /// ln(2), rounded to this type, and what the rounding left.
    const LN_2: (Self, Self);
    /// 1.5 2^(digits - 1): adding it rounds to a whole number and puts that number into the lowest bits.
    const ROUNDER: Self;
    /// Negative infinity.
    const NEGATIVE_INFINITY: Self;
    /// 1/k! for k from the Taylor polynomial's degree down to 0.
    const TAYLOR: &'static [Self];

    /// The nearest value to `x`.
    fn of(x: f64) -> Self;
    /// self * a + b, rounded once.
    #[must_use]
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// Square root.
    #[must_use]
    fn sqrt(self) -> Self;
    /// The nearest whole number, ties to even.
    #[must_use]
    fn round(self) -> Self;
    /// The nearest value that bf16 has, ties to even.
    #[must_use]
    fn half(self) -> Self;
    /// self * 2^n, where `rounded` is n + `ROUNDER`, and self and the result are normal.
    #[must_use]
    fn scaled(self, rounded: Self) -> Self;
}

/// e^x. Largest distance found from `f64::exp`: 0.92 units in the last place of the result in f32, 1 in f64.
/// 0 below `EXP_MIN`, constant above `EXP_MAX`; a NaN stays one.
///
/// x = n ln 2 + r with |r| <= ln(2)/2; e^r by its Taylor polynomial, 2^n by adding n to the exponent's bits.
#[inline(always)]
pub fn exp<T: Float>(x: T) -> T {
    let bounded = if x < T::EXP_MIN { T::EXP_MIN } else { x };
    let bounded = if bounded > T::EXP_MAX { T::EXP_MAX } else { bounded };
    let rounded = bounded.mul_add(T::LOG2_E, T::ROUNDER);
    let n = rounded - T::ROUNDER;
    let r = n.mul_add(-T::LN_2.1, n.mul_add(-T::LN_2.0, bounded));
    let mut power = T::zero();
    for &coefficient in T::TAYLOR {
        power = power.mul_add(r, coefficient);
    }
    let result = power.scaled(rounded);
    let result = if x < T::EXP_MIN { T::zero() } else { result };
    if x.partial_cmp(&x).is_none() { x } else { result }
}

/// The logistic function 1 / (1 + e^-x).
#[inline(always)]
pub fn logistic<T: Float>(x: T) -> T {
    T::one() / (T::one() + exp(-x))
}

/// Runs loops compiled for the best instruction set that this machine has. A macro, and loops rather than `for_each`, because only
/// what is inlined here is compiled so.
macro_rules! vectorised {
    ($loops:expr) => {
        pulp::Arch::new().dispatch($crate::engine::kernels::cpu::float::Loops(
            #[inline(always)]
            || $loops,
        ))
    };
}
pub(super) use vectorised;

/// Loops to be vectorised. `FnMut`, since a call as `FnOnce` would go through a shim that isn't inlined.
pub(super) struct Loops<F>(pub(super) F);

impl<F: FnMut()> pulp::WithSimd for Loops<F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(mut self, _: S) {
        (self.0)();
    }
}

impl Float for f32 {
    const EXP_MIN: f32 = -87.0;
    const EXP_MAX: f32 = 88.0;
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN_2: (f32, f32) = (std::f32::consts::LN_2, -1.904_654_3e-9);
    const ROUNDER: f32 = 12_582_912.0;
    const NEGATIVE_INFINITY: f32 = f32::NEG_INFINITY;
    const TAYLOR: &'static [f32] = &[1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];

    #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the purpose")]
    fn of(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn mul_add(self, a: f32, b: f32) -> f32 {
        f32::mul_add(self, a, b)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn round(self) -> f32 {
        self.round_ties_even()
    }
    /// bf16 is the upper half of an f32: half of what is cut off is added first, and a tie's last bit decides.
    #[inline(always)]
    fn half(self) -> f32 {
        let bits = self.to_bits();
        let rounded = f32::from_bits(bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000);
        if self.is_nan() { self } else { rounded }
    }
    #[inline(always)]
    fn scaled(self, rounded: f32) -> f32 {
        f32::from_bits(self.to_bits().wrapping_add(rounded.to_bits() << 23))
    }
}

impl Float for f64 {
    const EXP_MIN: f64 = -708.0;
    const EXP_MAX: f64 = 709.0;
    const LOG2_E: f64 = std::f64::consts::LOG2_E;
    const LN_2: (f64, f64) = (std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    const NEGATIVE_INFINITY: f64 = f64::NEG_INFINITY;
    const TAYLOR: &'static [f64] = &[
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];

    fn of(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn mul_add(self, a: f64, b: f64) -> f64 {
        f64::mul_add(self, a, b)
    }
    #[inline(always)]
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn round(self) -> f64 {
        self.round_ties_even()
    }
    /// By way of f32: a run in f64 stores nothing in half precision.
    #[expect(clippy::cast_possible_truncation, reason = "rounding is the purpose")]
    #[inline(always)]
    fn half(self) -> f64 {
        f64::from((self as f32).half())
    }
    #[inline(always)]
    fn scaled(self, rounded: f64) -> f64 {
        f64::from_bits(self.to_bits().wrapping_add(rounded.to_bits() << 52))
    }
}
