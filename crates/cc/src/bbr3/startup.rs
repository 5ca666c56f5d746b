//! Startup and Drain (sections 5.3.1 and 5.3.2): double until the delivered rate stops
//! growing or losses say so, then let the queue run dry.

use super::{Bbr3, LOSS_THRESH, Sample, State};

/// Growth that counts as growth (section 5.3.1.2).
const FULL_BW_GROWTH: f64 = 1.25;
/// Rounds without it until the pipe counts as full.
const FULL_BW_ROUNDS: u32 = 3;
/// BBRStartupFullLossCnt: discontiguous losses in a round that end Startup (section 5.3.1.3).
const STARTUP_FULL_LOSS_COUNT: u32 = 6;
/// Drain gives up after so many rounds (section 5.3.2).
const DRAIN_ROUNDS: u64 = 3;

/// The full-pipe estimator's state (section 2.13).
#[derive(Debug, Clone, Default)]
pub(super) struct FullPipe {
    /// BBR.full_bw_reached: Startup is over.
    pub(super) reached: bool,
    /// BBR.full_bw_now: this probe has found the ceiling.
    pub(super) now: bool,
    pub(super) bandwidth: f64,
    count: u32,
    drain_start_round: u64,
    /// Losses of this round: ranges, the last lost number, and bytes lost and delivered when it began.
    ranges: u32,
    last_lost: Option<u64>,
    lost_before: f64,
    delivered_before: f64,
}

impl FullPipe {
    /// ResetFullBW().
    pub(super) fn reset(&mut self) {
        self.bandwidth = 0.0;
        self.count = 0;
        self.now = false;
    }

    pub(super) fn note_loss(&mut self, number: u64) {
        if self.last_lost.is_none_or(|last| number != last + 1) {
            self.ranges += 1;
        }
        self.last_lost = Some(number);
    }
}

impl Bbr3 {
    /// EnterStartup().
    pub(super) fn enter_startup(&mut self) {
        self.state = State::Startup;
    }

    /// CheckFullBWReached() (section 5.3.1.2).
    pub(super) fn check_full_bw_reached(&mut self, sample: &Sample) {
        if self.full.now || !self.round_start || sample.app_limited {
            return;
        }
        if sample.rate >= self.full.bandwidth * FULL_BW_GROWTH {
            self.full.reset();
            self.full.bandwidth = sample.rate;
            return;
        }
        self.full.count += 1;
        self.full.now = self.full.count >= FULL_BW_ROUNDS;
        self.full.reached |= self.full.now;
    }

    /// CheckStartupDone().
    pub(super) fn check_startup_done(&mut self) {
        if self.round_start {
            self.check_startup_high_loss();
        }
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
            self.full.drain_start_round = self.round_count;
        }
    }

    /// CheckStartupHighLoss() (section 5.3.1.3): a whole round in recovery, more than 2 % lost
    /// in it, in at least six places.
    fn check_startup_high_loss(&mut self) {
        let lost = self.sampler.lost - self.full.lost_before;
        let delivered = self.sampler.delivered - self.full.delivered_before;
        let recovering = self
            .recovery
            .is_some_and(|recovery| self.round_count > recovery.round + 1);
        if self.state == State::Startup
            && recovering
            && lost > LOSS_THRESH * (lost + delivered)
            && self.full.ranges >= STARTUP_FULL_LOSS_COUNT
        {
            self.undo.state = Some(State::Startup);
            self.full.reached = true;
            self.inflight_longterm = self.bdp(1.0).max(self.inflight_latest);
        }
        self.full.ranges = 0;
        self.full.last_lost = None;
        self.full.lost_before = self.sampler.lost;
        self.full.delivered_before = self.sampler.delivered;
    }

    /// CheckDrainDone() (section 5.3.2).
    pub(super) fn check_drain_done(&mut self, now: bentpipe_units::Time) {
        let late = self.round_count > self.full.drain_start_round + DRAIN_ROUNDS;
        if self.state == State::Drain && (self.sampler.in_flight <= self.inflight(1.0) || late) {
            self.start_down(now);
        }
    }
}
