//! Precision: in which types a rank keeps parameters, gradients and optimizer state, and the named conventions that count their bytes.
//!
//! "16 bytes a parameter" means two things, and both are in use: 2 + 2 + 12 of mixed precision, and 4 + 4 + 8 of f32 alone. So every
//! convention has a name, and the name also says what each stage of ZeRO has to share out.

use super::settings::{Dtype, OptimizerKind};

/// The types of a parameter and of what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Parameters, and the activations computed from them.
    pub parameter: Dtype,
    /// Gradients as backward makes them, and as ranks exchange them.
    pub gradient: Dtype,
    /// A second copy of the gradients in which micro-batches add up.
    pub accumulator: Option<Dtype>,
    /// The optimizer's own copy of the parameters.
    pub master: Option<Dtype>,
    /// The optimizer's moments.
    pub moment: Dtype,
}

/// A row of the table: a convention.
#[derive(Debug)]
pub struct Convention {
    /// Name in scenarios; its number is the sum with AdamW.
    pub name: &'static str,
    /// What it counts, and who counts so.
    pub meaning: &'static str,
    /// The types.
    pub precision: Precision,
}

/// Every convention.
pub static CONVENTIONS: [Convention; 6] = [
    Convention {
        name: "mixed-adam-16",
        meaning: "2 + 2 + 12: half precision, an f32 copy and two f32 moments; the ZeRO paper's K = 12",
        precision: MIXED,
    },
    Convention {
        name: "mixed-adam-18",
        meaning: "2 + 4 + 12: the same with gradients in f32, as Megatron keeps them",
        precision: Precision { gradient: Dtype::F32, ..MIXED },
    },
    Convention {
        name: "mixed-adam-20",
        meaning: "2 + 6 + 12: the same with gradients in half precision and once more in f32",
        precision: Precision { accumulator: Some(Dtype::F32), ..MIXED },
    },
    Convention {
        name: "fp32-adam-16",
        meaning: "4 + 4 + 8: everything in f32, no copy",
        precision: Precision { parameter: Dtype::F32, gradient: Dtype::F32, master: None, ..MIXED },
    },
    Convention {
        name: "mixed-adam-12",
        meaning: "2 + 2 + 8: half precision, two f32 moments, no copy",
        precision: Precision { master: None, ..MIXED },
    },
    Convention {
        name: "bf16-adam-8",
        meaning: "2 + 2 + 4: everything in half precision",
        precision: Precision { master: None, moment: Dtype::Bf16, ..MIXED },
    },
];

/// Mixed precision as in Micikevicius et al. 2018.
const MIXED: Precision =
    Precision { parameter: Dtype::Bf16, gradient: Dtype::Bf16, accumulator: None, master: Some(Dtype::F32), moment: Dtype::F32 };

impl Precision {
    /// Parameters and gradients of one type; half-precision parameters keep their moments in f32.
    #[must_use]
    pub fn plain(dtype: Dtype) -> Self {
        Self { parameter: dtype, gradient: dtype, accumulator: None, master: None, moment: dtype.widened() }
    }

    /// What a run that computes keeps: with parameters in half precision, gradients add up in f32, and a copy in f32 is updated
    /// (mixed-adam-18).
    #[must_use]
    pub fn computed(dtype: Dtype) -> Self {
        let wide = dtype.widened();
        Self { gradient: wide, master: (wide != dtype).then_some(wide), ..Self::plain(dtype) }
    }

    /// Bytes for each parameter: its own, its gradient's, the optimizer's.
    #[must_use]
    pub fn bytes(&self, optimizer: OptimizerKind) -> [u64; 3] {
        let extra = |dtype: Option<Dtype>| dtype.map_or(0, Dtype::size);
        let moments = optimizer.moments() as u64 * self.moment.size();
        [self.parameter.size(), self.gradient.size() + extra(self.accumulator), extra(self.master) + moments]
    }
}

impl Convention {
    /// The convention called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        CONVENTIONS.iter().find(|convention| convention.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convention_counts_what_its_name_says() {
        for convention in &CONVENTIONS {
            let sum: u64 = convention.precision.bytes(OptimizerKind::Adamw).iter().sum();
            assert!(convention.name.ends_with(&format!("-{sum}")), "{} counts {sum}", convention.name);
        }
        let bytes = |name: &str| Convention::find(name).expect("a row of the table").precision.bytes(OptimizerKind::Adamw);
        assert_eq!(bytes("mixed-adam-16"), [2, 2, 12]);
        assert_eq!(bytes("mixed-adam-20"), [2, 6, 12]);
        assert_eq!(bytes("fp32-adam-16"), [4, 4, 8]);
        assert_eq!(Precision::computed(Dtype::Bf16), Convention::find("mixed-adam-18").expect("a row of the table").precision);
        assert_eq!(Precision::computed(Dtype::F64), Precision::plain(Dtype::F64));
        assert_eq!(Precision::plain(Dtype::F64).bytes(OptimizerKind::Sgd), [8, 8, 0]);
    }
}
