//! Sharing: what data-parallel ranks keep whole, and what they share out among themselves. One row for a strategy, and all that strategies do
//! follows from the row's three columns.
//!
//! Source: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models", arXiv 1910.02054.

use super::settings::Strategy;

/// A row of the table: of what each rank keeps but its own share.
#[derive(Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The strategy.
    pub strategy: Strategy,
    /// The optimizer's moments and copies.
    pub optimizer: bool,
    /// Gradients.
    pub gradients: bool,
    /// Parameters.
    pub parameters: bool,
}

/// Every strategy.
pub static SHARING: [Sharing; 5] = [
    Sharing { strategy: Strategy::Ddp, optimizer: false, gradients: false, parameters: false },
    Sharing { strategy: Strategy::Zero1, optimizer: true, gradients: false, parameters: false },
    Sharing { strategy: Strategy::Zero2, optimizer: true, gradients: true, parameters: false },
    Sharing { strategy: Strategy::Zero3, optimizer: true, gradients: true, parameters: true },
    Sharing { strategy: Strategy::Fsdp, optimizer: true, gradients: true, parameters: true },
];

impl Strategy {
    /// Its row.
    #[must_use]
    pub fn sharing(self) -> &'static Sharing {
        &SHARING[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_finds_its_row() {
        for &strategy in Strategy::ALL {
            assert_eq!(strategy.sharing().strategy, strategy);
        }
    }
}
