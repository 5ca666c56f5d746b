//! Conversions of floats to whole numbers, which saturate.
//!
//! What is worked out in floats, of rates, times and sizes, is never negative; where
//! rounding or a trace's extremes make it so, zero is right.

/// The whole number nearest to `value`, halves away from zero; 0 below it and for what
/// is no number, `u64::MAX` above that.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
pub fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// The whole part of `value`; 0 below it and for what is no number, `u64::MAX` above that.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
pub const fn truncated(value: f64) -> u64 {
    value as u64
}
