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
    /// Losses since the first of a recovery period.
    losses: Option<RecoveryLosses>,
}

/// What has been lost since a recovery period began.
#[derive(Debug, Clone, Copy)]
struct RecoveryLosses {
    /// Discontiguous ranges of packet numbers, and the last number lost.
    ranges: u32,
    last: u64,
    /// Bytes lost and delivered before the first of them.
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

    /// Packet `number` was lost, after so many bytes lost and delivered.
    pub(super) fn note_loss(&mut self, number: u64, lost: f64, delivered: f64) {
        match &mut self.losses {
            Some(losses) => {
                losses.ranges += u32::from(number != losses.last + 1);
                losses.last = number;
            }
            None => {
                self.losses = Some(RecoveryLosses {
                    ranges: 1,
                    last: number,
                    lost_before: lost,
                    delivered_before: delivered,
                });
            }
        }
    }

    /// The losses noted were none.
    pub(super) fn forget_losses(&mut self) {
        self.losses = None;
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
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
            self.full.drain_start_round = self.round_count;
        }
    }

    /// CheckStartupHighLoss() (section 5.3.1.3): a whole round in recovery, more than 2 % lost
    /// in it, in at least six places.
    ///
    /// Called when a recovery period ends. That is when a packet sent in it is acknowledged
    /// (RFC 9002, section 7.3.2), so it has lasted for exactly one packet-timed round trip.
    pub(super) fn check_startup_high_loss(&mut self) {
        let Some(losses) = self.full.losses.take() else {
            return;
        };
        let lost = self.sampler.lost - losses.lost_before;
        let delivered = self.sampler.delivered - losses.delivered_before;
        if self.state == State::Startup
            && lost > LOSS_THRESH * (lost + delivered)
            && losses.ranges >= STARTUP_FULL_LOSS_COUNT
        {
            self.undo.state = Some(State::Startup);
            self.full.reached = true;
            self.inflight_longterm = self.bdp(1.0).max(self.inflight_latest);
        }
    }

    /// CheckDrainDone() (section 5.3.2).
    pub(super) fn check_drain_done(&mut self, now: bentpipe_units::Time) {
        let late = self.round_count > self.full.drain_start_round + DRAIN_ROUNDS;
        if self.state == State::Drain && (self.sampler.in_flight <= self.inflight(1.0) || late) {
            self.start_down(now);
        }
    }
}
