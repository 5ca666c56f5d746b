//! On the way from one antenna to the other.

pub mod air;
pub mod distance;
pub mod jitter;
