//! The path as its round-trip times show it: the base, and the queue that stands.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use super::constants::*;
use crate::Acked;

#[derive(Debug, Clone, Default)]
pub(super) struct PathTimes {
    /// Least round-trip times of the base's memory, ascending in both.
    lows: VecDeque<(Time, Span)>,
    recent: VecDeque<(Time, Span)>,
    newest: Option<Acked>,
    /// When a sample was near the base last.
    near: Time,
}

impl PathTimes {
    pub(super) fn on_acked(&mut self, packet: &Acked) {
        // The newest packet of a frame waited least for its acknowledgement.
        if self.newest.is_none_or(|newest| newest.sent <= packet.sent) {
            self.newest = Some(*packet);
        }
    }

    /// `near` is by how much a sample may be above the base and still show it.
    pub(super) fn on_acks_done(&mut self, now: Time, near: f64) -> Option<Span> {
        let sample = self.newest.take()?.rtt();
        while self.lows.back().is_some_and(|(_, low)| *low >= sample) {
            self.lows.pop_back();
        }
        self.lows.push_back((now, sample));
        while self.lows.len() > 1
            && (self.lows.front()).is_some_and(|(at, _)| now.since(*at) > BASE_MEMORY)
        {
            self.lows.pop_front();
        }
        let base = self.base().unwrap_or(sample).as_secs_f64();
        if sample.as_secs_f64() <= base + near {
            self.near = now;
        }
        self.recent.push_back((now, sample));
        let round = sample.max(self.base().unwrap_or(sample));
        let window = STANDING_WINDOW * round.as_secs_f64();
        while self.recent.len() > 2
            && self.recent.front().is_some_and(|(at, _)| {
                let age = now.since(*at);
                age > round || (age.as_secs_f64() > window && self.recent.len() > STANDING_SAMPLES)
            })
        {
            self.recent.pop_front();
        }
        Some(sample)
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

    /// Since when no sample was near the base.
    pub(super) fn near(&self) -> Time {
        self.near
    }

    /// The drain at `now` has shown what there is to see.
    pub(super) fn drained(&mut self, now: Time) {
        self.near = now;
    }
}
