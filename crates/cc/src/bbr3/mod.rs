//! BBRv3 (draft-ietf-ccwg-bbr, text of August 2026).
//!
//! One file per subject of the draft; functions carry its names in their first line.
//! Bytes and bytes per second are floating-point numbers, so that the draft's Infinity
//! is one.
//!
//! Where the draft leaves a choice: the start is paced from the configured round-trip
//! time (the draft's fallback of 1 ms would send a large initial window as one burst);
//! its random waits come from the settings' seed; a retransmission timeout is RFC 9002's
//! persistent congestion.

mod sampler;
mod filter;
mod startup;
mod probe_bw;
mod probe_rtt;
mod loss;
mod control;

use bentpipe_units::{Span, Time};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::convert::whole;
use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};
use filter::WindowedMax;
use loss::Undo;
use probe_bw::Cycle;
use probe_rtt::MinRtt;
use sampler::{Sample, Sampler};
use startup::FullPipe;

/// BBR.LossThresh (section 2.9): share of a round's bytes.
const LOSS_THRESH: f64 = 0.02;
/// BBR.MaxBwFilterLen (section 2.11), cycles.
const MAX_BW_FILTER_LEN: u64 = 2;

/// BBR.state (section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// BBR.pacing_gain, from the table of section 5.6.1; 2.77 is 4 ln 2.
    fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => 2.77,
            Self::Drain => 0.5,
            Self::Down => 0.90,
            Self::Up => 1.25,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 1.0,
        }
    }

    /// BBR.cwnd_gain, from the same table.
    fn window_gain(self) -> f64 {
        match self {
            Self::Up => 2.25,
            Self::ProbeRtt => 0.5,
            _ => 2.0,
        }
    }

    /// IsInAProbeBWState().
    fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Bbr3 {
    packet: f64,
    initial_window: f64,
    initial_rtt: Span,
    random: ChaCha8Rng,
    sampler: Sampler,
    state: State,
    full: FullPipe,
    cycle: Cycle,
    filter_rtt: MinRtt,
    undo: Undo,
    /// Since when losses are being recovered (RFC 9002, section 7.3.2).
    recovery: Option<Time>,
    idle_restart: bool,
    /// C.is_cwnd_limited, in this round.
    window_limited: bool,

    // Rounds (section 5.5.1).
    round_count: u64,
    round_start: bool,
    next_round_delivered: f64,

    // Data rate model (section 2.8).
    filter_bw: WindowedMax,
    bw: f64,
    bw_shortterm: f64,

    // Data volume model (section 2.9).
    inflight_longterm: f64,
    inflight_shortterm: f64,
    extra_acked: WindowedMax,
    extra_acked_from: Time,
    extra_acked_delivered: f64,

    // Signals of the latest round (section 2.10).
    bw_latest: f64,
    inflight_latest: f64,
    loss_in_round: bool,
    loss_round_start: bool,
    loss_round_delivered: f64,

    // Outputs.
    pacing_rate: f64,
    window: f64,
    prior_window: f64,
}

impl Bbr3 {
    /// Starts with `window` bytes, paced as if the round trip were `initial_rtt`
    /// (InitPacingRate(), section 5.6.2); `seed` makes its random waits.
    pub fn new(packet: u64, window: u64, initial_rtt: Span, seed: u64) -> Self {
        let initial_window = window as f64;
        let nominal = initial_window / initial_rtt.as_secs_f64();
        Self {
            packet: packet as f64,
            initial_window,
            initial_rtt,
            random: ChaCha8Rng::seed_from_u64(seed),
            sampler: Sampler::default(),
            state: State::Startup,
            full: FullPipe::default(),
            cycle: Cycle::default(),
            filter_rtt: MinRtt::default(),
            undo: Undo::default(),
            recovery: None,
            idle_restart: false,
            window_limited: false,
            round_count: 0,
            round_start: false,
            next_round_delivered: 0.0,
            filter_bw: WindowedMax::default(),
            bw: 0.0,
            bw_shortterm: f64::INFINITY,
            inflight_longterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            extra_acked: WindowedMax::default(),
            extra_acked_from: Time::ZERO,
            extra_acked_delivered: 0.0,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            loss_in_round: false,
            loss_round_start: false,
            loss_round_delivered: 0.0,
            pacing_rate: State::Startup.pacing_gain() * nominal,
            window: initial_window,
            prior_window: 0.0,
        }
    }

    /// BBR.max_bw, bytes per second.
    fn max_bw(&self) -> f64 {
        self.filter_bw.get()
    }

    /// BBR.min_rtt, seconds.
    fn min_rtt(&self) -> f64 {
        let rtt = self.filter_rtt.value.unwrap_or(self.initial_rtt);
        rtt.as_secs_f64()
    }

    /// StartRound().
    fn start_round(&mut self) {
        self.next_round_delivered = self.sampler.delivered;
    }

    /// UpdateRound() (section 5.5.1).
    fn update_round(&mut self, sample: &Sample) {
        self.round_start = sample.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count += 1;
            self.cycle.rounds += 1;
        }
    }

    /// UpdateMaxBw() (section 5.5.5): what the application held back counts only if it is more.
    fn update_max_bw(&mut self, sample: &Sample) {
        self.update_round(sample);
        if sample.rate > 0.0 && (sample.rate >= self.max_bw() || !sample.app_limited) {
            self.filter_bw
                .update(sample.rate, self.cycle.count, MAX_BW_FILTER_LEN);
        }
    }

    /// UpdateModelAndState() and UpdateControlParameters() (section 5.2.3).
    fn update(&mut self, now: Time, sample: &Sample) {
        self.update_latest_delivery_signals(sample);
        self.update_max_bw(sample);
        self.adapt_lower_bounds();
        self.update_ack_aggregation(now, sample);
        self.check_full_bw_reached(sample);
        self.check_startup_done();
        self.check_drain_done(now);
        self.update_cycle_phase(now, sample);
        self.update_min_rtt(now, sample);
        self.check_probe_rtt(now, sample);
        self.advance_latest_delivery_signals(sample);
        // BoundBWForModel().
        self.bw = self.max_bw().min(self.bw_shortterm);

        self.set_pacing_rate(self.state.pacing_gain());
        self.set_window(sample);
        if self.round_start {
            self.window_limited = false;
        }
    }
}

impl Controller for Bbr3 {
    fn on_sent(&mut self, packet: Sent) {
        // HandleRestartFromIdle() (section 5.4.1).
        if self.sampler.in_flight == 0.0 && self.sampler.is_app_limited() {
            self.idle_restart = true;
            self.extra_acked_from = packet.now;
            self.extra_acked_delivered = 0.0;
            if self.state.is_probe_bw() {
                self.set_pacing_rate(1.0);
            } else if self.state == State::ProbeRtt {
                self.check_probe_rtt_done(packet.now);
            }
        }
        self.sampler.on_sent(packet);
    }

    fn on_window_limited(&mut self) {
        self.window_limited = true;
    }

    fn on_acked(&mut self, packet: &Acked) {
        self.sampler.on_acked(packet);
        if self.recovery.is_some_and(|from| packet.sent > from) {
            self.recovery = None;
            self.restore_window();
            self.check_startup_high_loss();
        }
    }

    fn on_acks_done(&mut self, end: AcksDone) {
        if end.app_limited {
            self.sampler.mark_app_limited();
        }
        let min_rtt = self.filter_rtt.value.unwrap_or(Span::ZERO);
        if let Some(sample) = self.sampler.sample(min_rtt) {
            self.update(end.now, &sample);
        }
    }

    fn on_lost(&mut self, packet: Lost) {
        self.handle_lost_packet(packet);
    }

    fn on_forgotten(&mut self, bytes: u64) {
        self.sampler.on_forgotten(bytes);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        if event.marked {
            self.handle_mark(event.now);
            return;
        }
        if self.recovery.is_none_or(|from| event.sent > from) {
            // OnEnterFastRecovery() (section 5.6.4.4); the first loss has saved the state.
            self.recovery = Some(event.now);
        }
        if event.persistent {
            // OnEnterRTO().
            self.save_state_upon_loss();
            self.window = (self.sampler.in_flight + self.packet).max(self.min_pipe_window());
        }
    }

    fn on_spurious_congestion(&mut self) {
        self.handle_spurious_loss();
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes as f64;
    }

    fn window(&self) -> u64 {
        whole(self.window.max(2.0 * self.packet))
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(whole(
            self.pacing_rate.max(2.0 * self.packet / self.min_rtt()),
        ))
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
