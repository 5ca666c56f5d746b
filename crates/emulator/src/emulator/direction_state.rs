//! One direction of a link that runs: the model, and what became of its packets.

use bentpipe_link::spec::DirectionSpec;
use bentpipe_link::{Counters, Direction, Seed};
use bentpipe_units::Span;
use rustix::io::Errno;

use crate::certificate::{DirectionReport, Quantiles};
use crate::direction::DirectionName;
use crate::frame::Frame;
use crate::lateness::Distribution;

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    /// The current interval.
    Interval,
    /// The whole run, once its last interval has ended.
    Run,
}

/// The model of a direction, with what is counted beside it.
pub(super) struct DirectionState {
    pub model: Direction<Frame>,
    pub lateness: WindowedDistribution,
    pub unread: WindowedDistribution,
    pub unwritten: u64,
    pub refusal: Option<Errno>,
    pub oversized: u64,
    /// Read, and not what its header says.
    pub malformed: u64,
    /// The counts when the interval began.
    begun: Counts,
}

/// What had been counted at some moment.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    counters: Counters,
    overflow: u64,
    unwritten: u64,
    oversized: u64,
    malformed: u64,
}

/// Spans of time in the current interval, and in all intervals before it.
pub(super) struct WindowedDistribution {
    interval: Distribution,
    before: Distribution,
}

impl WindowedDistribution {
    fn new() -> Self {
        Self {
            interval: Distribution::new(),
            before: Distribution::new(),
        }
    }

    pub fn record(&mut self, span: Span) {
        self.interval.record(span);
    }

    pub fn quantiles(&self, window: Window) -> Quantiles {
        match window {
            Window::Interval => self.interval.quantiles(),
            Window::Run => self.before.quantiles(),
        }
    }

    fn end_interval(&mut self) {
        self.before.absorb(&mut self.interval);
    }
}

impl DirectionState {
    pub fn new(spec: &DirectionSpec, seed: impl Into<Seed>) -> Self {
        Self {
            model: Direction::new(spec, seed),
            lateness: WindowedDistribution::new(),
            unread: WindowedDistribution::new(),
            unwritten: 0,
            refusal: None,
            oversized: 0,
            malformed: 0,
            begun: Counts::default(),
        }
    }

    /// Begins the next interval. `overflow` is what the kernel has dropped at its entrance
    /// so far, where it could be asked.
    pub fn end_interval(&mut self, overflow: Option<u64>) {
        self.lateness.end_interval();
        self.unread.end_interval();
        self.begun = Counts {
            counters: *self.model.counters(),
            overflow: overflow.unwrap_or(self.begun.overflow),
            unwritten: self.unwritten,
            oversized: self.oversized,
            malformed: self.malformed,
        };
    }

    /// What became of the packets of the window. `ends` are the devices where packets come
    /// in and where they come out, `overflow` as for [`Self::end_interval`].
    pub fn report(
        &self,
        window: Window,
        name: DirectionName,
        ends: [String; 2],
        overflow: Option<u64>,
    ) -> DirectionReport {
        let begun = match window {
            Window::Interval => self.begun,
            Window::Run => Counts::default(),
        };
        let [from, to] = ends;
        DirectionReport {
            name,
            from,
            to,
            counters: self.model.counters().since(&begun.counters),
            held: self.model.held(),
            lateness_us: self.lateness.quantiles(window),
            unread_us: self.unread.quantiles(window),
            overflow: overflow.map(|overflow| overflow.saturating_sub(begun.overflow)),
            unwritten: self.unwritten - begun.unwritten,
            refusal: self.refusal.map(|errno| errno.to_string()),
            oversized: self.oversized - begun.oversized,
            malformed: self.malformed - begun.malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_link::spec::QueueLimit;
    use bentpipe_units::{Bytes, OneWayDelay, Probability, Rate};

    use super::*;

    fn direction() -> DirectionState {
        let spec = DirectionSpec::new(
            Rate::from_bits_per_second(1_000_000),
            OneWayDelay::new(Span::ZERO),
            Probability::ZERO,
            QueueLimit::Bytes(Bytes::new(10_000)),
        );
        DirectionState::new(&spec, 1)
    }

    fn report(state: &DirectionState, window: Window, overflow: u64) -> DirectionReport {
        let ends = ["a", "b"].map(str::to_owned);
        state.report(window, DirectionName::Forward, ends, Some(overflow))
    }

    fn counts(state: &DirectionState, window: Window, overflow: u64) -> [u64; 4] {
        let report = report(state, window, overflow);
        [
            report.overflow.unwrap(),
            report.unwritten,
            report.oversized,
            report.malformed,
        ]
    }

    #[test]
    fn what_goes_wrong_dooms_its_own_interval_and_the_run() {
        let mut state = direction();
        state.end_interval(Some(0));
        (state.unwritten, state.oversized, state.malformed) = (2, 3, 4);
        assert_eq!(counts(&state, Window::Interval, 1), [1, 2, 3, 4]);
        state.end_interval(Some(1));
        let next = counts(&state, Window::Interval, 1);
        assert_eq!(next, [0; 4], "the next interval is not to blame");
        state.malformed += 1;
        assert_eq!(counts(&state, Window::Interval, 1), [0, 0, 0, 1]);
        let run = counts(&state, Window::Run, 1);
        assert_eq!(run, [1, 2, 3, 5], "the run has them all");
    }

    #[test]
    fn an_interval_has_its_own_distributions_and_the_run_all() {
        let mut state = direction();
        state.lateness.record(Span::from_millis(8));
        state.end_interval(None);
        state.lateness.record(Span::from_millis(2));
        let worst = |window| report(&state, window, 0).lateness_us.worst.round();
        assert!(worst(Window::Interval) < 2_100.0);
        assert!(worst(Window::Run) >= 8_000.0);
    }
}
