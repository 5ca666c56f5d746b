//! How much of the round-trip time is standing queue.
//!
//! The base is the least round-trip time of the last ten seconds. The standing
//! queue is the least of the last eighth of a round trip above it (as in Copa,
//! NSDI 2018, section 2.1): jitter and delayed acknowledgements only ever add.

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

/// Both estimates.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// Least round-trip time of each stretch, ascending in both.
    lows: VecDeque<(Time, Span)>,
    recent: VecDeque<(Time, Span)>,
    newest: Option<Acked>,
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
        let eighth = Span::from_nanos(rtt.as_nanos() / 8);
        let over = |at: Span, samples| at > rtt || (at > eighth && samples > SAMPLES);
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

    /// Seconds of standing queue.
    pub(super) fn standing(&self) -> f64 {
        let least = self.recent.iter().map(|(_, sample)| *sample).min();
        match (least, self.base()) {
            (Some(least), Some(base)) => least.as_secs_f64() - base.as_secs_f64(),
            _ => 0.0,
        }
    }
}
