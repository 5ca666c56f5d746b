//! What losses change (section 5.5.10): the long-term bound while probing, the short-term
//! bounds otherwise, and all of it back when the losses were none (section 5.5.11).

use super::{Bbr3, LOSS_THRESH, Sample, State};
use crate::Lost;

/// BBR.Beta (section 2.9): share of the bounds that is left after a round with losses.
const BETA: f64 = 0.7;

/// State to go back to (section 2.15).
#[derive(Debug, Clone)]
pub(super) struct Undo {
    /// BBR.undo_state.
    pub(super) state: Option<State>,
    bw_shortterm: f64,
    inflight_shortterm: f64,
    inflight_longterm: f64,
}

impl Default for Undo {
    fn default() -> Self {
        Self {
            state: None,
            bw_shortterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            inflight_longterm: f64::INFINITY,
        }
    }
}

impl Bbr3 {
    /// IsInflightTooHigh().
    pub(super) fn is_inflight_too_high(lost: f64, tx_in_flight: f64) -> bool {
        lost > tx_in_flight * LOSS_THRESH
    }

    /// HandleLostPacket(), with NoteLoss().
    pub(super) fn handle_lost_packet(&mut self, lost: Lost) {
        let before = (self.sampler.lost, self.sampler.delivered);
        let packet = self.sampler.on_lost(lost.number, lost.bytes);
        self.full.note_loss(lost.number, before.0, before.1);
        if !self.loss_in_round {
            self.loss_round_delivered = self.sampler.delivered;
            self.save_state_upon_loss();
        }
        self.loss_in_round = true;
        let Some(packet) = packet.filter(|_| self.cycle.is_probe_sample) else {
            return;
        };
        let lost_since = self.sampler.lost - packet.lost;
        if Self::is_inflight_too_high(lost_since, packet.tx_in_flight) {
            // InflightAtLoss(): at which volume did the loss cross the threshold?
            let before = packet.tx_in_flight - packet.bytes;
            let lost_before = lost_since - packet.bytes;
            let prefix = (LOSS_THRESH * before - lost_before) / (1.0 - LOSS_THRESH);
            self.handle_inflight_too_high(lost.now, before + prefix, packet.app_limited);
        }
    }

    /// A mark is a signal of congestion as a loss is (RFC 9002, section 7.1). The draft has no answer to it:
    /// here it is a round's loss, and what a probe or the start has in flight is too much at once,
    /// because a queue marks when it is too long and not by chance.
    pub(super) fn handle_mark(&mut self, now: bentpipe_units::Time) {
        if !self.loss_in_round {
            self.loss_round_delivered = self.sampler.delivered;
        }
        self.loss_in_round = true;
        if self.state == State::Startup {
            self.full.reached = true;
            self.inflight_longterm = self.bdp(1.0).max(self.inflight_latest);
        } else if self.cycle.is_probe_sample {
            self.handle_inflight_too_high(now, self.sampler.in_flight, false);
        }
    }

    /// HandleInflightTooHigh(), once per probe.
    fn handle_inflight_too_high(
        &mut self,
        now: bentpipe_units::Time,
        tx_in_flight: f64,
        app_limited: bool,
    ) {
        self.cycle.too_high = true;
        self.cycle.is_probe_sample = false;
        if !app_limited {
            self.inflight_longterm = tx_in_flight.max(self.target_inflight() * BETA);
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_down(now);
        }
    }

    // --- the latest round (section 5.5.10.3) -------------------------------------------

    /// UpdateLatestDeliverySignals(), near the start of an ACK's processing.
    pub(super) fn update_latest_delivery_signals(&mut self, sample: &Sample) {
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        if sample.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = self.sampler.delivered;
            self.loss_round_start = true;
        }
    }

    /// AdvanceLatestDeliverySignals(), near its end.
    pub(super) fn advance_latest_delivery_signals(&mut self, sample: &Sample) {
        if self.loss_round_start {
            self.bw_latest = sample.rate;
            self.inflight_latest = sample.delivered;
        }
    }

    /// ResetCongestionSignals().
    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0.0;
    }

    /// AdaptLowerBoundsFromCongestion(), once per round; not while probing.
    pub(super) fn adapt_lower_bounds(&mut self) {
        if !self.loss_round_start {
            return;
        }
        let probing = matches!(self.state, State::Startup | State::Refill | State::Up);
        if !probing && self.loss_in_round {
            // InitLowerBounds().
            if self.bw_shortterm.is_infinite() {
                self.bw_shortterm = self.max_bw();
            }
            if self.inflight_shortterm.is_infinite() {
                self.inflight_shortterm = self.window;
            }
            // LossLowerBounds().
            self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
            self.inflight_shortterm = self.inflight_latest.max(BETA * self.inflight_shortterm);
        }
        self.loss_in_round = false;
    }

    /// ResetShortTermModel().
    pub(super) fn reset_short_term_model(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = f64::INFINITY;
    }

    // --- undo ---------------------------------------------------------------------------

    /// SaveStateUponLoss().
    pub(super) fn save_state_upon_loss(&mut self) {
        self.save_window();
        self.undo = Undo {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// HandleSpuriousLossDetection().
    pub(super) fn handle_spurious_loss(&mut self) {
        self.restore_window();
        self.recovery = None;
        self.full.forget_losses();
        self.loss_in_round = false;
        self.full.reset();
        let undo = std::mem::take(&mut self.undo);
        self.bw_shortterm = self.bw_shortterm.max(undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        match undo.state {
            Some(State::Startup) if self.state != State::Startup => {
                self.full.reached = false;
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(State::Up) if !matches!(self.state, State::Up | State::ProbeRtt) => {
                self.start_refill();
            }
            _ => {}
        }
    }
}
