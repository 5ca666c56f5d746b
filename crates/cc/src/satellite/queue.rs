//! Standing queue, as a part of the round-trip time.
//!
//! The base is the least round-trip time of the last ten seconds. The standing
//! queue is the least of the last eighth of a round trip above it (as in Copa,
//! NSDI 2018, section 2.1): jitter and delayed acknowledgements only ever add. Where
//! samples jump, by slots of a return link say, the eighth becomes up to a round trip.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use super::constants::queue::*;
use crate::Acked;
use crate::convert::whole;

/// Both estimates.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// Least round-trip time of each interval, ascending in both.
    minima: VecDeque<(Time, Span)>,
    recent: VecDeque<(Time, Span)>,
    newest: Option<Acked>,
    /// Mean step from one sample to the next, nanoseconds. A queue grows in small steps,
    /// jitter and slots make large ones.
    jitter: f64,
    samples: u32,
    last: Option<Span>,
}

impl Queue {
    pub(super) fn on_acked(&mut self, packet: &Acked) {
        // The newest packet of a frame waited least for its acknowledgement.
        if self.newest.is_none_or(|newest| newest.sent <= packet.sent) {
            self.newest = Some(*packet);
        }
    }

    /// A frame is complete; steps of `grain` may be the queue's own.
    pub(super) fn on_acks_done(&mut self, now: Time, rtt: Span, grain: Span) {
        let Some(newest) = self.newest.take() else {
            return;
        };
        let sample = newest.rtt();
        if let Some(last) = self.last.replace(sample) {
            let step = sample.as_nanos().abs_diff(last.as_nanos());
            let step = step
                .saturating_sub(ACK_DELAY_STEP.max(grain).as_nanos())
                .min(MAX_STEP.as_nanos()) as f64;
            self.samples = (self.samples + 1).min(JITTER_SAMPLES);
            self.jitter += (step - self.jitter) / f64::from(self.samples.max(MIN_JITTER_SAMPLES));
        }
        while self.minima.back().is_some_and(|(_, low)| *low >= sample) {
            self.minima.pop_back();
        }
        self.minima.push_back((now, sample));
        while self.minima.len() > 1
            && self
                .minima
                .front()
                .is_some_and(|(at, _)| now.since(*at) > BASE_WINDOW)
        {
            self.minima.pop_front();
        }
        self.recent.push_back((now, sample));
        let among = Span::from_nanos(whole(1e9 * JITTER_STEPS * self.noise()));
        let window = (Span::from_nanos(rtt.as_nanos() / 8) + among).min(rtt);
        let enough = |at: Span, samples| samples > MIN_SAMPLES || at > FEW_SAMPLES_LIMIT;
        let over = |at: Span, samples| at > rtt || (at > window && enough(at, samples));
        while self.recent.len() > 2
            && self
                .recent
                .front()
                .is_some_and(|(at, _)| over(now.since(*at), self.recent.len()))
        {
            self.recent.pop_front();
        }
    }

    /// The round trip without any queue.
    pub(super) fn base(&self) -> Option<Span> {
        self.minima.front().map(|(_, low)| *low)
    }

    /// What stands now is no queue: the path is so long.
    pub(super) fn rebase(&mut self) {
        let newest = self.minima.back().map(|(at, _)| *at);
        let least = self.recent.iter().map(|(_, sample)| *sample).min();
        if let (Some(at), Some(least)) = (newest, least) {
            self.minima.clear();
            self.minima.push_back((at, least));
        }
    }

    /// Seconds of jitter, where there is any to speak of.
    pub(super) fn noise(&self) -> f64 {
        if self.is_noisy() {
            self.jitter * 1e-9
        } else {
            0.0
        }
    }

    /// Whether samples jump: by slots of the return link, or by jitter.
    pub(super) fn is_noisy(&self) -> bool {
        self.jitter >= NOISY_JITTER
    }

    /// Seconds of standing queue.
    pub(super) fn standing(&self) -> f64 {
        let least = self.recent.iter().map(|(_, sample)| *sample).min();
        match (least, self.base()) {
            (Some(least), Some(base)) => {
                (least.as_secs_f64() - base.as_secs_f64() - 2.0 * self.noise()).max(0.0)
            }
            _ => 0.0,
        }
    }
}
