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

/// The same where there is an async runtime; none in simulations that do without.
pub fn now_on_runtime() -> Option<std::time::Instant> {
    tokio::runtime::Handle::try_current()
        .is_ok()
        .then(|| now().into_std())
}
