//! How long answers take, as percentiles in constant memory.

use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_units::Span;
use hdrhistogram::Histogram;

use crate::report::{Latency, nanos};

/// An hour, in nanoseconds: nobody waits longer for an answer.
const LONGEST: u64 = 3_600_000_000_000;

/// Times so far; clones are the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Arc<Mutex<Times>>);

#[derive(Debug)]
struct Times {
    histogram: Histogram<u64>,
    sum: u128,
    least: u64,
    most: u64,
    /// Not yet recorded: when, and how long.
    fresh: Vec<(u64, u64)>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds that are right");
        Self(Arc::new(Mutex::new(Times {
            histogram,
            sum: 0,
            least: u64::MAX,
            most: 0,
            fresh: Vec::new(),
        })))
    }

    /// The answer to a request of `asked` was whole at `now`.
    pub(crate) fn add(&self, asked: Span, now: Span) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let took = nanos(now).saturating_sub(nanos(asked));
        times.histogram.saturating_record(took);
        times.sum += u128::from(took);
        times.least = times.least.min(took);
        times.most = times.most.max(took);
        times.fresh.push((nanos(now), took));
    }

    /// The answers since the last call: when they came, and how long they took.
    pub(crate) fn take(&self) -> Vec<(u64, u64)> {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut times.fresh)
    }

    /// All so far, if there are any.
    pub(crate) fn summary(&self) -> Option<Latency> {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = times.histogram.len();
        if count == 0 {
            return None;
        }
        // The histogram's classes reach beyond what was measured.
        let at =
            |quantile| (times.histogram.value_at_quantile(quantile)).clamp(times.least, times.most);
        Some(Latency {
            count,
            least_ns: times.least,
            mean_ns: u64::try_from(times.sum / u128::from(count)).unwrap_or(u64::MAX),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            most_ns: times.most,
        })
    }
}
