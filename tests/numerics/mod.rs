//! The kernels against an independent composition of plain candle operations, finite differences, and themselves.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::many_single_char_names,
    reason = "tests compare numbers exactly, of small sizes, named as in the formulas"
)]

mod backward;
mod cases;
mod delayed;
mod dropout;
mod elementary;
mod exact;
mod experts;
mod flash;
mod half;
mod misuse;
mod mixture;
pub mod oracle;
mod segments;
mod training;
