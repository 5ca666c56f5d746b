//! The way from one antenna to the other.

mod reconfiguration;
mod jitter;
pub(crate) mod delay;
pub(crate) mod propagation_delay;
