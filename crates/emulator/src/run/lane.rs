//! One direction of a link: what it has, and what became of it.

use bentpipe_link::scenario::DirectionSpec;
use bentpipe_link::{Counters, Direction};
use rustix::io::Errno;

use crate::certificate::DirectionReport;
use crate::frame::Frame;
use crate::lateness::Distribution;

/// A direction with its counts.
pub(super) struct Lane {
    pub link: Direction<Frame>,
    /// The port that it feeds.
    pub out: usize,
    /// Of this lap, and of all laps before it.
    pub lateness: [Distribution; 2],
    pub unread: [Distribution; 2],
    pub unwritten: u64,
    pub refusal: Option<Errno>,
    pub oversized: u64,
    /// Read, and not what its header says.
    pub malformed: u64,
    /// The counts at the lap's beginning.
    begun: Begun,
}

/// What had been counted when a lap began.
#[derive(Debug, Clone, Copy, Default)]
struct Begun {
    counters: Counters,
    overflow: u64,
    unwritten: u64,
    oversized: u64,
    malformed: u64,
}

/// Index of the current lap in a pair of distributions, and of all before it.
pub(super) const LAP: usize = 0;
pub(super) const BEFORE: usize = 1;

impl Lane {
    pub fn new(spec: &DirectionSpec, seed: u64, out: usize) -> Self {
        Self {
            link: Direction::new(spec, seed),
            out,
            lateness: [Distribution::new(), Distribution::new()],
            unread: [Distribution::new(), Distribution::new()],
            unwritten: 0,
            refusal: None,
            oversized: 0,
            malformed: 0,
            begun: Begun::default(),
        }
    }

    /// Begins the next lap. `overflow` is what the kernel has dropped at its entrance so
    /// far, where it could be asked.
    pub fn close_lap(&mut self, overflow: Option<u64>) {
        for [lap, before] in [&mut self.lateness, &mut self.unread] {
            before.absorb(lap);
        }
        self.begun = Begun {
            counters: *self.link.counters(),
            overflow: overflow.unwrap_or(self.begun.overflow),
            unwritten: self.unwritten,
            oversized: self.oversized,
            malformed: self.malformed,
        };
    }

    /// Goes back to the run's beginning: what is reported next is the whole run.
    pub fn open_run(&mut self) {
        self.begun = Begun::default();
    }

    /// What became of the lap's packets, or with [`BEFORE`] of the whole run's.
    pub fn report(
        &self,
        which: usize,
        name: &'static str,
        (from, to): (&str, &str),
        overflow: Option<u64>,
    ) -> DirectionReport {
        let begun = &self.begun;
        DirectionReport {
            name,
            from: from.to_owned(),
            to: to.to_owned(),
            counters: self.link.counters().since(&begun.counters),
            held: self.link.held(),
            lateness_us: self.lateness[which].quantiles(),
            unread_us: self.unread[which].quantiles(),
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
    use bentpipe_link::scenario::QueueLimit;
    use bentpipe_units::{Bytes, OneWayDelay, Probability, Rate, Span};

    use super::*;

    fn lane() -> Lane {
        let spec = DirectionSpec::new(
            Rate::from_bits_per_second(1_000_000),
            OneWayDelay::new(Span::ZERO),
            Probability::ZERO,
            QueueLimit::Bytes(Bytes::new(10_000)),
        );
        Lane::new(&spec, 1, 0)
    }

    fn counts(lane: &Lane, overflow: u64) -> [u64; 4] {
        let report = lane.report(LAP, "forward", ("a", "b"), Some(overflow));
        [
            report.overflow.unwrap(),
            report.unwritten,
            report.oversized,
            report.malformed,
        ]
    }

    #[test]
    fn what_goes_wrong_dooms_its_own_lap_and_the_run() {
        let mut lane = lane();
        lane.close_lap(Some(0));
        (lane.unwritten, lane.oversized, lane.malformed) = (2, 3, 4);
        assert_eq!(counts(&lane, 1), [1, 2, 3, 4]);
        lane.close_lap(Some(1));
        assert_eq!(counts(&lane, 1), [0; 4], "the next lap is not to blame");
        lane.malformed += 1;
        assert_eq!(counts(&lane, 1), [0, 0, 0, 1]);
        lane.open_run();
        assert_eq!(counts(&lane, 1), [1, 2, 3, 5], "the run has them all");
    }

    #[test]
    fn a_lap_has_its_own_distributions_and_the_run_all() {
        let mut lane = lane();
        lane.lateness[LAP].record(Span::from_millis(8));
        lane.close_lap(None);
        lane.lateness[LAP].record(Span::from_millis(2));
        let worst = |which| {
            let report = lane.report(which, "forward", ("a", "b"), None);
            report.lateness_us.worst.round()
        };
        assert!(worst(LAP) < 2_100.0);
        assert!(worst(BEFORE) >= 8_000.0);
    }
}
