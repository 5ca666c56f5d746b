//! ProbeRTT and the least round-trip time (section 5.3.4): every five seconds without a
//! lower sample, half the pipe for 200 ms and a round.

use bentpipe_units::{Span, Time};

use super::probe_bw::AckPhase;
use super::{Bbr3, Sample, State};

/// BBR.MinRTTFilterLen (section 2.16).
const MIN_RTT_FILTER_LEN: Span = Span::from_millis(10_000);
/// BBR.ProbeRTTInterval: all flows must use this one, so that they drain together.
const PROBE_RTT_INTERVAL: Span = Span::from_millis(5_000);
/// BBR.ProbeRTTDuration.
const PROBE_RTT_DURATION: Span = Span::from_millis(200);

/// Both filters and the state of a ProbeRTT.
#[derive(Debug, Clone, Default)]
pub(super) struct MinRtt {
    /// BBR.min_rtt and BBR.min_rtt_stamp.
    pub(super) value: Option<Span>,
    stamp: Time,
    /// BBR.probe_rtt_min_delay and BBR.probe_rtt_min_stamp.
    recent: Option<Span>,
    recent_stamp: Time,
    expired: bool,
    /// BBR.probe_rtt_done_stamp and BBR.probe_rtt_round_done.
    done_at: Option<Time>,
    round_done: bool,
}

impl Bbr3 {
    /// UpdateMinRTT().
    pub(super) fn update_min_rtt(&mut self, now: Time, sample: &Sample) {
        let filter = &mut self.filter_rtt;
        filter.expired = now > filter.recent_stamp + PROBE_RTT_INTERVAL;
        if filter.expired || filter.recent.is_none_or(|recent| sample.rtt < recent) {
            filter.recent = Some(sample.rtt);
            filter.recent_stamp = now;
        }
        let expired = now > filter.stamp + MIN_RTT_FILTER_LEN;
        if expired || filter.value.is_none_or(|value| filter.recent < Some(value)) {
            filter.value = filter.recent;
            filter.stamp = filter.recent_stamp;
        }
    }

    /// CheckProbeRTT().
    pub(super) fn check_probe_rtt(&mut self, now: Time, sample: &Sample) {
        if self.state != State::ProbeRtt && self.filter_rtt.expired && !self.idle_restart {
            self.save_window();
            self.state = State::ProbeRtt;
            self.filter_rtt.done_at = None;
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(now);
        }
        if sample.delivered > 0.0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT(): its samples are low on purpose and do not count.
    fn handle_probe_rtt(&mut self, now: Time) {
        self.sampler.mark_app_limited();
        if self.filter_rtt.done_at.is_none() {
            if self.sampler.in_flight <= self.probe_rtt_window() {
                self.filter_rtt.done_at = Some(now + PROBE_RTT_DURATION);
                self.filter_rtt.round_done = false;
                self.start_round();
            }
            return;
        }
        self.filter_rtt.round_done |= self.round_start;
        if self.filter_rtt.round_done {
            self.check_probe_rtt_done(now);
        }
    }

    /// CheckProbeRTTDone(), with ExitProbeRTT(): straight to Cruise, the pipe is half empty already.
    pub(super) fn check_probe_rtt_done(&mut self, now: Time) {
        if self.filter_rtt.done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.filter_rtt.recent_stamp = now;
        self.restore_window();
        self.reset_short_term_model();
        if self.full.reached {
            self.start_down(now);
            self.start_cruise();
        } else {
            self.enter_startup();
        }
    }

    /// ProbeRTTCwnd().
    pub(super) fn probe_rtt_window(&self) -> f64 {
        self.bdp(State::ProbeRtt.window_gain())
            .max(self.min_pipe_window())
    }
}
