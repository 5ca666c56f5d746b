//! The runtime's clock, counted from the beginning of a measurement.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_units::Span;
use noq::Runtime;

/// The clock of one measurement.
#[derive(Debug, Clone)]
pub struct Clock {
    runtime: Arc<dyn Runtime>,
    zero: Instant,
}

impl Clock {
    /// `runtime`'s clock, from now on.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        let zero = runtime.now();
        Self { runtime, zero }
    }

    /// The same clock counted from now on.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::new(self.runtime.clone())
    }

    /// Time since zero.
    pub fn now(&self) -> Span {
        self.at(self.runtime.now())
    }

    /// `moment` on this clock.
    pub fn at(&self, moment: Instant) -> Span {
        let since = moment.saturating_duration_since(self.zero).as_nanos();
        Span::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Waits until `moment`.
    pub async fn sleep_until(&self, moment: Span) {
        let mut timer = self.runtime.new_timer(self.zero + moment.as_duration());
        poll_fn(|context| timer.as_mut().poll(context)).await;
    }
}
