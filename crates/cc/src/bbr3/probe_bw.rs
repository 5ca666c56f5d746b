//! ProbeBW (section 5.3.3): down, cruise, refill, up, and round again.

use bentpipe_units::{Span, Time};
use rand::Rng;

use super::{Bbr3, Sample, State};

/// BBR.Headroom (section 2.9): share of the long-term bound left free for others in Cruise.
const HEADROOM: f64 = 0.15;
/// The Reno-coexistence time scale is at most so many rounds (section 5.3.3.8).
const RENO_ROUNDS: f64 = 63.0;

/// BBR.ack_phase (section 2.14): of which phase the acknowledgements tell now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The probing cycle's state (section 2.14).
#[derive(Debug, Clone)]
pub(super) struct Cycle {
    pub(super) ack_phase: AckPhase,
    /// BBR.cycle_count, the time of the bandwidth filter.
    pub(super) count: u64,
    /// BBR.cycle_stamp and BBR.bw_probe_wait.
    stamp: Time,
    wait: Span,
    /// BBR.rounds_since_probe_up.
    pub(super) rounds: u64,
    /// BBR.is_bw_probe_sample: samples now are of packets sent while probing.
    pub(super) is_probe_sample: bool,
    /// BBR.prev_probe_too_high and BBR.prev_probe_precautionary (section 5.3.3.6).
    pub(super) too_high: bool,
    precautionary: bool,
    /// BBR.bw_probe_up_rounds, BBR.bw_probe_up_acked, BBR.probe_up_acked_per_inc.
    up_rounds: u32,
    up_acked: f64,
    acked_per_increment: f64,
}

impl Default for Cycle {
    fn default() -> Self {
        Self {
            ack_phase: AckPhase::Init,
            count: 0,
            stamp: Time::ZERO,
            wait: Span::ZERO,
            rounds: 0,
            is_probe_sample: false,
            too_high: false,
            precautionary: false,
            up_rounds: 0,
            up_acked: 0.0,
            acked_per_increment: f64::INFINITY,
        }
    }
}

impl Bbr3 {
    /// PickProbeWait(): two to three seconds, or the rounds that Reno would need.
    fn pick_probe_wait(&mut self) {
        self.cycle.rounds = u64::from(self.random.random_bool(0.5));
        self.cycle.wait = Span::from_nanos(self.random.random_range(2_000_000_000..3_000_000_000));
    }

    /// StartProbeBW_DOWN().
    pub(super) fn start_down(&mut self, now: Time) {
        self.reset_congestion_signals();
        self.cycle.acked_per_increment = f64::INFINITY;
        self.pick_probe_wait();
        self.cycle.stamp = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::Down;
    }

    /// StartProbeBW_CRUISE().
    pub(super) fn start_cruise(&mut self) {
        self.state = State::Cruise;
    }

    /// StartProbeBW_REFILL().
    pub(super) fn start_refill(&mut self) {
        self.reset_short_term_model();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0.0;
        self.cycle.precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::Refill;
    }

    /// StartProbeBW_UP().
    fn start_up(&mut self, sample: &Sample) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.full.reset();
        self.full.bandwidth = sample.rate;
        self.state = State::Up;
        self.raise_inflight_longterm_slope();
    }

    /// UpdateProbeBWCyclePhase(): the core of the state machine.
    pub(super) fn update_cycle_phase(&mut self, now: Time, sample: &Sample) {
        if !self.full.reached || self.adapt_long_term_model(sample) {
            return;
        }
        match self.state {
            State::Down => {
                if self.is_time_to_probe(now) {
                    self.start_refill();
                } else if self.is_time_to_cruise() {
                    self.start_cruise();
                }
            }
            State::Cruise if self.is_time_to_probe(now) => self.start_refill(),
            State::Refill if self.round_start => {
                self.cycle.is_probe_sample = true;
                self.start_up(sample);
            }
            State::Up => {
                let enough = self.is_time_to_go_down(sample);
                if enough {
                    // No high loss so far; after a precautionary probe this lets the next one persist.
                    self.cycle.too_high = false;
                    self.start_down(now);
                }
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW(), with IsRenoCoexistenceProbeTime().
    fn is_time_to_probe(&self, now: Time) -> bool {
        let reno = (self.target_inflight() / self.packet).min(RENO_ROUNDS);
        now > self.cycle.stamp + self.cycle.wait || self.cycle.rounds as f64 >= reno
    }

    /// IsTimeToCruise(): the queue is drained and there is headroom.
    fn is_time_to_cruise(&self) -> bool {
        let in_flight = self.sampler.in_flight;
        in_flight <= self.inflight_with_headroom()
            && in_flight <= self.quantized(self.max_bw() * self.min_rtt())
    }

    /// IsTimeToGoDown().
    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        // Precautionary bandwidth probing, deceleration: what was too much last time is
        // not held for a whole round trip.
        if self.cycle.too_high && self.sampler.in_flight >= self.inflight_longterm {
            self.cycle.precautionary = true;
            return true;
        }
        if self.window_limited && self.window >= self.inflight_longterm {
            // Bandwidth is limited by inflight_longterm: its plateau says nothing.
            self.full.reset();
            self.full.bandwidth = sample.rate;
            return false;
        }
        self.full.now
    }

    /// InflightWithHeadroom().
    pub(super) fn inflight_with_headroom(&self) -> f64 {
        let headroom = (HEADROOM * self.inflight_longterm).max(self.packet);
        if self.inflight_longterm.is_infinite() {
            return f64::INFINITY;
        }
        (self.inflight_longterm - headroom).max(self.min_pipe_window())
    }

    /// RaiseInflightLongtermSlope(): 1, 2, 4, ... packets per round.
    fn raise_inflight_longterm_slope(&mut self) {
        let growth = f64::from(1u32 << self.cycle.up_rounds);
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(30);
        self.cycle.acked_per_increment = (self.window / growth).max(self.packet);
    }

    /// ProbeInflightLongtermUpward().
    fn probe_inflight_longterm_upward(&mut self, sample: &Sample) {
        if !self.window_limited || self.window < self.inflight_longterm {
            return;
        }
        self.cycle.up_acked += sample.newly_acked;
        if self.cycle.up_acked >= self.cycle.acked_per_increment {
            let delta = (self.cycle.up_acked / self.cycle.acked_per_increment).floor();
            self.cycle.up_acked -= delta * self.cycle.acked_per_increment;
            self.inflight_longterm += delta * self.packet;
        }
        if self.round_start {
            self.raise_inflight_longterm_slope();
        }
    }

    /// AdaptLongTermModel(): true if it has decided a transition.
    fn adapt_long_term_model(&mut self, sample: &Sample) -> bool {
        if self.cycle.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.cycle.is_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !sample.app_limited {
                // AdvanceMaxBwFilter().
                self.cycle.count += 1;
            }
            // Precautionary bandwidth probing, acceleration: it did no harm, so probe at once.
            if self.state.is_probe_bw() && self.cycle.precautionary && !self.cycle.too_high {
                self.start_refill();
                return true;
            }
        }
        if !Self::is_inflight_too_high(sample.lost, sample.tx_in_flight)
            && self.inflight_longterm.is_finite()
        {
            self.inflight_longterm = self.inflight_longterm.max(sample.tx_in_flight);
            if self.state == State::Up {
                self.probe_inflight_longterm_upward(sample);
            }
        }
        false
    }
}
