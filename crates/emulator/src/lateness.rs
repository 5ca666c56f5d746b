//! Distributions of lateness.

use bentpipe_units::Span;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// Spans of time by how often they occurred, in memory that does not grow.
#[derive(Debug, Clone)]
pub(super) struct Distribution(Histogram<u64>);

/// A minute late is as bad as an hour.
const LONGEST: u64 = 60_000_000_000;
/// Two digits: a span is known to 1 %.
const DIGITS: u8 = 2;

impl Distribution {
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are in order"))
    }

    pub fn record(&mut self, span: Span) {
        self.0.saturating_record(span.as_nanos());
    }

    /// Takes over the spans of `other`, which is empty afterwards.
    pub fn absorb(&mut self, other: &mut Self) {
        self.0
            .add(&other.0)
            .expect("all distributions have the same bounds");
        other.0.reset();
    }

    /// The part of the spans that people look at.
    pub fn quantiles(&self) -> Quantiles {
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        Quantiles {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            worst: micros(self.0.max()),
        }
    }
}

/// Microseconds with the nanoseconds that the histogram knows.
fn micros(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64() * 1e6
}

/// Quantiles of spans of time, microseconds; all zero when there was none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// One in a hundred is longer.
    pub p99: f64,
    /// One in a thousand is longer.
    pub p999: f64,
    /// The longest.
    pub worst: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_spans() {
        let mut spans = Distribution::new();
        for millis in 1..=1000 {
            spans.record(Span::from_millis(millis));
        }
        let Quantiles {
            p50,
            p99,
            p999,
            worst,
        } = spans.quantiles();
        for (got, wanted) in [(p50, 500e3), (p99, 990e3), (p999, 999e3), (worst, 1000e3)] {
            assert!((got / wanted - 1.0).abs() < 0.01, "{got} for {wanted}");
        }
    }

    #[test]
    fn nothing_recorded_is_never_late() {
        assert!(Distribution::new().quantiles().worst.abs() < f64::EPSILON);
    }

    #[test]
    fn the_absurdly_late_counts_as_the_longest() {
        let mut spans = Distribution::new();
        spans.record(Span::from_nanos(u64::MAX));
        assert!(spans.quantiles().p999 >= micros(LONGEST));
    }
}
