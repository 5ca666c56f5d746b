//! Control parameters (section 5.6): pacing rate and congestion window.

use bentpipe_units::Time;

use super::{Bbr3, Sample, State};

/// BBR.PacingMarginPercent (section 2.5), share of the rate.
const PACING_MARGIN: f64 = 0.01;
/// BBR.MinPipeCwnd (section 2.7), packets.
const MIN_PIPE_WINDOW: f64 = 4.0;
/// BBR.ExtraAckedFilterLen (section 2.12), rounds.
const EXTRA_ACKED_FILTER_LEN: u64 = 10;
/// C.send_quantum at the pacing rate, seconds (section 5.6.3).
const QUANTUM: f64 = 0.001;
/// Most of it, bytes.
const MAX_QUANTUM: f64 = 65_536.0;

impl Bbr3 {
    /// SetPacingRateWithGain(): before the pipe is full only ever upwards (section 5.6.2).
    pub(super) fn set_pacing_rate(&mut self, gain: f64) {
        let rate = gain * self.bw * (1.0 - PACING_MARGIN);
        if self.full.reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    // --- volumes (section 5.6.4.2) ------------------------------------------------------

    /// BDPMultiple(), bytes.
    pub(super) fn bdp(&self, gain: f64) -> f64 {
        self.filter_rtt.value.map_or(self.initial_window, |rtt| {
            gain * self.bw * rtt.as_secs_f64()
        })
    }

    pub(super) fn min_pipe_window(&self) -> f64 {
        MIN_PIPE_WINDOW * self.packet
    }

    /// QuantizationBudget().
    pub(super) fn quantized(&self, volume: f64) -> f64 {
        let quantum = (self.pacing_rate * QUANTUM).clamp(2.0 * self.packet, MAX_QUANTUM);
        let probe = if self.state == State::Up {
            2.0 * self.packet
        } else {
            0.0
        };
        volume.max(quantum).max(self.min_pipe_window()) + probe
    }

    /// Inflight().
    pub(super) fn inflight(&self, gain: f64) -> f64 {
        self.quantized(self.bdp(gain))
    }

    /// TargetInflight().
    pub(super) fn target_inflight(&self) -> f64 {
        self.bdp(1.0).min(self.window)
    }

    /// UpdateACKAggregation() (section 5.5.9): what came beyond the bandwidth.
    pub(super) fn update_ack_aggregation(&mut self, now: Time, sample: &Sample) {
        let expected = self.bw * now.since(self.extra_acked_from).as_secs_f64();
        let mut extra = self.extra_acked_delivered - expected;
        if extra <= 0.0 {
            self.extra_acked_delivered = 0.0;
            self.extra_acked_from = now;
            extra = 0.0;
        }
        self.extra_acked_delivered += sample.newly_acked;
        extra = (extra + sample.newly_acked).min(self.window);
        let length = if self.full.reached {
            EXTRA_ACKED_FILTER_LEN
        } else {
            1
        };
        self.extra_acked.update(extra, self.round_count, length);
    }

    // --- the window (section 5.6.4) -----------------------------------------------------

    /// SetCwnd().
    pub(super) fn set_window(&mut self, sample: &Sample) {
        let most = self.quantized(self.bdp(self.state.window_gain()) + self.extra_acked.get());
        if self.full.reached {
            self.window = (self.window + sample.newly_acked).min(most);
        } else if self.window < most || self.sampler.delivered < self.initial_window {
            self.window += sample.newly_acked;
        }
        self.window = self.window.max(self.min_pipe_window());
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        self.bound_window_for_model();
    }

    /// BoundCwndForModel() (section 5.6.4.7).
    fn bound_window_for_model(&mut self) {
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::ProbeRtt | State::Cruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => f64::INFINITY,
        };
        let cap = cap.min(self.inflight_shortterm).max(self.min_pipe_window());
        self.window = self.window.min(cap);
    }

    /// SaveCwnd() (section 5.6.4.4).
    pub(super) fn save_window(&mut self) {
        self.prior_window = if self.recovery.is_none() && self.state != State::ProbeRtt {
            self.window
        } else {
            self.prior_window.max(self.window)
        };
    }

    /// RestoreCwnd().
    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }
}
