//! Conversions of floating-point quantities to whole ones.

/// The whole part of `value` bytes, bytes per second or nanoseconds: 0 where it is negative or
/// not a number, `u64::MAX` where it is beyond.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, as the documentation says"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

/// The whole part of `value` as an index: 0 where it is negative or not a number.
pub(crate) fn index(value: f64) -> usize {
    usize::try_from(whole(value)).unwrap_or(usize::MAX)
}
