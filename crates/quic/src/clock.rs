//! The time that all that wait on the async runtime go by.

use tokio::time::Instant;

/// The runtime's present moment: virtual in the simulator.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that asks: the runtime's clock is an input itself"
)]
pub fn now() -> Instant {
    Instant::now()
}
