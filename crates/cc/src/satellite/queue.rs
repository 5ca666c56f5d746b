//! How much of the round-trip time is standing queue.
//!
//! The base is the least round-trip time of the last ten seconds. The standing
//! queue is the least of the last eighth of a round trip above it (as in Copa,
//! NSDI 2018, section 2.1): jitter and delayed acknowledgements only ever add. Where
//! samples jump, by slots of a return link say, the eighth becomes up to a round trip.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use crate::Acked;

/// How long a round-trip time counts for the base: BBR's MinRTTFilterLen
/// (draft-ietf-ccwg-bbr, section 2.14.1).
const MEMORY: Span = Span::from_millis(10_000);
/// Half of that: how often the queue is let run dry, so that one dry moment is always inside.
pub(super) const MEMORY_HALF: Span = Span::from_millis(5_000);

/// The least of fewer samples than this is mostly jitter, if their round trip has as many.
const SAMPLES: usize = 12;
/// But machines tremble for no longer than this; a flow with few samples would be slow to yield.
const ENOUGH: Span = Span::from_millis(75);
/// Steps that an acknowledgement waiting for more packets makes anyway.
const USUAL: Span = Span::from_millis(5);
/// Less jitter than this, nanoseconds, is other flows'.
const NOISY: f64 = 2e6;
/// One step counts for no more: a queue that collapses is no jitter.
const MOST_STEP: Span = Span::from_millis(40);
/// Samples over which the jitter is averaged, and as how many the first ones count.
const JITTER_SAMPLES: u32 = 200;
const LEAST_SAMPLES: u32 = 32;
/// The least of so many steps of jitter is near the least there is.
const STEPS: f64 = 150.0;

/// Both estimates.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// Least round-trip time of each stretch, ascending in both.
    lows: VecDeque<(Time, Span)>,
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

    pub(super) fn on_acks_done(&mut self, now: Time, rtt: Span) {
        let Some(newest) = self.newest.take() else {
            return;
        };
        let sample = newest.rtt();
        if let Some(last) = self.last.replace(sample) {
            let step = sample.as_nanos().abs_diff(last.as_nanos());
            let step = step
                .saturating_sub(USUAL.as_nanos())
                .min(MOST_STEP.as_nanos()) as f64;
            self.samples = (self.samples + 1).min(JITTER_SAMPLES);
            self.jitter += (step - self.jitter) / f64::from(self.samples.max(LEAST_SAMPLES));
        }
        while self.lows.back().is_some_and(|(_, low)| *low >= sample) {
            self.lows.pop_back();
        }
        self.lows.push_back((now, sample));
        while self.lows.len() > 1
            && self
                .lows
                .front()
                .is_some_and(|(at, _)| now.since(*at) > MEMORY)
        {
            self.lows.pop_front();
        }
        self.recent.push_back((now, sample));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "less than a round trip, or cut to one"
        )]
        let among = Span::from_nanos((1e9 * STEPS * self.noise()) as u64);
        let window = (Span::from_nanos(rtt.as_nanos() / 8) + among).min(rtt);
        let enough = |at: Span, samples| samples > SAMPLES || at > ENOUGH;
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
        self.lows.front().map(|(_, low)| *low)
    }

    /// What stands now is no queue: the way is so long.
    pub(super) fn rebase(&mut self) {
        let newest = self.lows.back().map(|(at, _)| *at);
        let least = self.recent.iter().map(|(_, sample)| *sample).min();
        if let (Some(at), Some(least)) = (newest, least) {
            self.lows.clear();
            self.lows.push_back((at, least));
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

    /// Whether samples jump: by slots of the way back, or by jitter.
    pub(super) fn is_noisy(&self) -> bool {
        self.jitter >= NOISY
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
