//! The start, and starting again: train, trial, slow start, and what persistent congestion leaves.

use bentpipe_units::{Span, Time};

use super::constants::*;
use super::{Phase, Round, Satellite};
use crate::resume::Path;

impl Satellite {
    /// What a frame of acknowledgements changes until the path is known.
    pub(super) fn start(&mut self, now: Time) {
        match self.phase {
            Phase::Start => {
                if let Some(path) = self.remembered() {
                    self.rate = RESUME_SHARE * path.rate;
                    self.resumed = true;
                }
                let late = self.queue.standing();
                if let Some(shown) = self.train.on_acks_done(now, late) {
                    match shown {
                        Some(capacity) => self.try_share(now, TRIAL_SHARE, capacity),
                        None => {
                            // What the train has lost, it has lost as a burst.
                            self.slow_start_from = self.last_sent;
                            self.round = Round {
                                started: self.last_sent,
                                ..Round::default()
                            };
                            self.start_slow_start(2.0 * self.initial_window);
                        }
                    }
                } else if !self.train.is_out() && self.is_full() {
                    self.leave_slow_start(now);
                }
            }
            Phase::SlowStart { average } => {
                // Slots and jitter do not change the average.
                let average = average.min(self.rtt());
                self.phase = Phase::SlowStart { average };
                let more = self.rtt().as_secs_f64() - average.as_secs_f64();
                let full = more > (EXIT_RTT_GROWTH * self.base()).max(2.0 * self.queue.noise());
                if full || self.is_full() {
                    self.leave_slow_start(now);
                }
            }
            Phase::Trial {
                back: Some(back),
                capacity,
                ..
            } if now.since(back).as_secs_f64() >= TRIAL_TIME * self.base() => {
                if self.queue_is_long() {
                    // Safe retreat (RFC 9959, section 4.4).
                    if std::mem::take(&mut self.resumed) {
                        self.memory.forget();
                    }
                    let shown = self.clock.rate(now.since(back));
                    self.cruise_at(now, shown.unwrap_or(self.rate).min(self.rate));
                } else {
                    self.resumed = false;
                    let known = self
                        .remembered()
                        .map_or(capacity, |path| path.rate.min(capacity));
                    self.cruise_at(now, CRUISE_SHARE * known.max(TRIAL_SHARE * capacity));
                }
            }
            Phase::Trial { .. } => {}
            Phase::Reopen { capacity } if capacity > 0.0 => {
                self.try_share(now, CRUISE_SHARE, capacity);
            }
            Phase::Reopen { .. } => {
                self.slow_start_from = self.last_sent;
                self.start_slow_start(2.0 * self.packet);
            }
            Phase::Cruise => {}
        }
    }

    pub(super) fn cruise_at(&mut self, now: Time, rate: f64) {
        if let Phase::Trial { capacity, .. } = self.phase {
            self.capacity = capacity;
            self.capacity_at = now;
        }
        self.phase = Phase::Cruise;
        self.rate = rate.max(self.packet);
        self.probe_step = 1;
        self.rounds_without_queue = 0;
        self.hold(now);
    }

    /// So many bytes per second have been seen; a share of them is tried for a round trip.
    fn try_share(&mut self, now: Time, share: f64, capacity: f64) {
        self.rate = share * capacity;
        self.phase = Phase::Trial {
            since: now,
            back: None,
            capacity,
        };
    }

    /// Slow start, from the pipe as it is known, and a window of `least` bytes.
    pub(super) fn start_slow_start(&mut self, least: f64) {
        self.start_window = self.pipe().max(least);
        self.phase = Phase::SlowStart {
            average: self.rtt(),
        };
    }

    /// Nothing came through for long (RFC 9002, section 7.6).
    pub(super) fn on_persistent_congestion(&mut self, now: Time) {
        // What was only remembered is not tried again (RFC 9959, section 4.4).
        let confirmed = self.phase == Phase::Cruise && !std::mem::take(&mut self.resumed);
        if !confirmed {
            self.memory.forget();
        }
        let capacity = if confirmed { self.rate } else { 0.0 };
        self.losses.restart();
        self.probe_step = 0;
        self.rate = 0.0;
        self.hold(now);
        self.phase = Phase::Reopen { capacity };
    }

    /// There is a queue: what it delivers is what the path carries.
    pub(super) fn leave_slow_start(&mut self, now: Time) {
        self.limit_seen = true;
        self.rounds = TRAIN_DOUBT_ROUNDS;
        let base = self.queue.base().unwrap_or(self.initial_rtt);
        let half = Span::from_nanos(base.as_nanos() / 2);
        // When nothing could be measured yet: what this round has brought.
        let acked = self.round.acked.max(self.round.acked_before) as f64;
        let round = acked.max(2.0 * self.packet) / self.rtt().as_secs_f64();
        // Without losses all of the window was through (RFC 5681, section 3.1).
        let window = self.start_window / base.as_secs_f64();
        let unmeasured = if self.loses_much() { round } else { window };
        self.cruise_at(now, self.clock.rate(half).unwrap_or(unmeasured));
    }

    /// The path as remembered, if what is measured fits it.
    pub(super) fn remembered(&self) -> Option<Path> {
        let rtt = self.queue.base()?;
        self.memory.get().filter(|path| path.fits(rtt))
    }

    /// Whether so much queue stands that the path must be full.
    pub(super) fn is_full(&self) -> bool {
        self.queue.standing() > FULL_QUEUE * self.base()
    }

    /// Whether this round has lost more than the radio would.
    pub(super) fn loses_much(&self) -> bool {
        let Round { acked, lost, .. } = self.round;
        let lost = lost as f64;
        self.round.started > self.slow_start_from
            && lost > MIN_HIGH_LOSS_PACKETS * self.packet
            && lost > HIGH_LOSS * (acked as f64 + lost)
    }
}
