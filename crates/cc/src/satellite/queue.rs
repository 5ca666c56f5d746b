//! Standing queue, as a part of the round-trip time.
//!
//! The base is the least round-trip time of the last ten seconds. The standing
//! queue is the least of the last eighth of a round trip above it (as in Copa,
//! NSDI 2018, section 2.1): jitter and delayed acknowledgements only ever add. Where
//! samples jump, by slots of a return link say, or jitter lasts for longer than that, the eighth becomes up to a round trip.
//!
//! The base is a full packet's. At 1.5 Mbit/s one takes 8 ms longer to leave than what a handshake sends, as
//! long as a queue of a quarter of a round trip of 30 ms: where only shorter packets have shown the base, the
//! missing bytes are added to it, at the rate at which the path delivers.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use super::constants::lasting_jitter::{HALF, LONG, MOST_SHARE};
use super::constants::queue::*;
use super::lasting_jitter::{Frame, LastingJitter};
use crate::Acked;
use crate::convert::whole;

/// Both estimates.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// Of full packets.
    full: Minima,
    /// Of shorter ones, as a handshake's are: a full one takes longer to leave.
    short: Minima,
    /// Seconds that a byte takes, as far as known.
    per_byte: f64,
    recent: VecDeque<(Time, Span)>,
    newest: Option<Acked>,
    /// Mean step from one sample to the next, nanoseconds. A queue grows in small steps,
    /// jitter and slots make large ones.
    jitter: f64,
    samples: u32,
    last: Option<Span>,
    /// What stands up to so many seconds is jitter.
    floor: f64,
    /// Bytes acknowledged since the latest frame.
    acked: u64,
    lasting_jitter: LastingJitter,
}

impl Queue {
    pub(super) fn on_acked(&mut self, packet: &Acked) {
        self.acked += packet.bytes;
        // The newest packet of a frame waited least for its acknowledgement.
        if self.newest.is_none_or(|newest| newest.sent <= packet.sent) {
            self.newest = Some(*packet);
        }
    }

    /// A frame is complete; steps of `grain` may be the queue's own. Full packets have so many bytes, `packet`, of which each
    /// takes `per_byte` seconds, 0 when that is unknown; the path was seen to carry `capacity` bytes per second.
    pub(super) fn on_acks_done(
        &mut self,
        now: Time,
        rtt: Span,
        grain: Span,
        packet: f64,
        per_byte: f64,
        capacity: f64,
    ) {
        let Some(newest) = self.newest.take() else {
            return;
        };
        self.per_byte = per_byte;
        let sample = newest.rtt();
        let base = self.base().map_or(sample, |base| base.min(sample));
        let frame = Frame {
            now,
            sent: newest.sent,
            bytes: std::mem::take(&mut self.acked),
            capacity,
            above: sample.as_secs_f64() - base.as_secs_f64(),
            stood: self.above_base(),
            rtt,
        };
        match base < LONG {
            true => self.lasting_jitter.on_frame(&frame),
            // On long ways slots of a return link look alike, and what was known is of another path.
            false => self.lasting_jitter = LastingJitter::default(),
        }
        if let Some(last) = self.last.replace(sample) {
            let step = sample.as_nanos().abs_diff(last.as_nanos());
            let step = step
                .saturating_sub(ACK_DELAY_STEP.max(grain).as_nanos())
                .min(MAX_STEP.as_nanos()) as f64;
            self.samples = (self.samples + 1).min(JITTER_SAMPLES);
            self.jitter += (step - self.jitter) / f64::from(self.samples.max(MIN_JITTER_SAMPLES));
        }
        let missing = packet - newest.bytes as f64;
        if missing <= SHORT * packet {
            self.full.add(now, sample, 0.0);
        } else {
            self.short.add(now, sample, missing);
        }
        self.full.forget(now);
        self.short.forget(now);
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

    /// The round trip of a full packet without any queue.
    pub(super) fn base(&self) -> Option<Span> {
        let full = self.full.least.front().map(|low| low.rtt);
        let short = (self.short.least.front())
            .map(|low| low.rtt + Span::from_nanos(whole(1e9 * low.missing * self.per_byte)));
        full.into_iter().chain(short).min()
    }

    /// What stands now is no queue: the path is so long.
    pub(super) fn rebase(&mut self) {
        let newest = self.full.newest().max(self.short.newest());
        let least = self.recent.iter().map(|(_, sample)| *sample).min();
        if let (Some(at), Some(least)) = (newest, least) {
            (self.full, self.short) = (Minima::default(), Minima::default());
            self.full.add(at, least, 0.0);
        }
    }

    /// What a probe has shown to be jitter, seconds above the base.
    pub(super) fn set_jitter(&mut self, seconds: f64) {
        self.floor = seconds;
    }

    /// The latest sample, and the least of the last ones above the base, jitter or not, seconds.
    pub(super) fn latest(&self) -> Option<(f64, f64)> {
        Some((self.last?.as_secs_f64(), self.above_base()))
    }

    /// Mean step from one sample to the next, seconds.
    pub(super) fn jitter(&self) -> f64 {
        self.jitter * 1e-9
    }

    /// Seconds of jitter, where there is any to speak of.
    pub(super) fn noise(&self) -> f64 {
        let most = MOST_SHARE * self.base().map_or(0.0, Span::as_secs_f64);
        let lasting = HALF * self.lasting_jitter.mean();
        self.noise_of_steps().max(lasting.min(most))
    }

    fn noise_of_steps(&self) -> f64 {
        if self.is_noisy() { self.jitter() } else { 0.0 }
    }

    /// Whether there is jitter that lasts.
    pub(super) fn has_lasting_jitter(&self) -> bool {
        self.lasting_jitter.mean() > 0.0
    }

    /// Whether samples jump: by slots of the return link, or by jitter.
    pub(super) fn is_noisy(&self) -> bool {
        self.jitter >= NOISY_JITTER
    }

    /// Seconds of standing queue.
    pub(super) fn standing(&self) -> f64 {
        self.above(self.noise())
    }

    /// The same, and jitter that lasts.
    pub(super) fn standing_with_jitter(&self) -> f64 {
        self.above(self.noise_of_steps())
    }

    fn above(&self, noise: f64) -> f64 {
        (self.above_base() - self.floor.max(2.0 * noise)).max(0.0)
    }

    fn above_base(&self) -> f64 {
        let least = self.recent.iter().map(|(_, sample)| *sample).min();
        match (least, self.base()) {
            (Some(least), Some(base)) => (least.as_secs_f64() - base.as_secs_f64()).max(0.0),
            _ => 0.0,
        }
    }
}

/// Least round-trip times of the last [`BASE_WINDOW`], ascending in time and value.
#[derive(Debug, Clone, Default)]
struct Minima {
    least: VecDeque<Low>,
}

#[derive(Debug, Clone, Copy)]
struct Low {
    at: Time,
    rtt: Span,
    /// Bytes that the packet was shorter than a full one.
    missing: f64,
}

impl Minima {
    fn add(&mut self, at: Time, rtt: Span, missing: f64) {
        while self.least.back().is_some_and(|low| low.rtt >= rtt) {
            self.least.pop_back();
        }
        self.least.push_back(Low { at, rtt, missing });
    }

    fn forget(&mut self, now: Time) {
        while (self.least.front()).is_some_and(|low| now.since(low.at) > BASE_WINDOW) {
            self.least.pop_front();
        }
    }

    fn newest(&self) -> Option<Time> {
        self.least.back().map(|low| low.at)
    }
}
