//! Delivery rate of the path: the slope of delivered bytes over the moments of
//! the acknowledgements.
//!
//! From acknowledgement to acknowledgement the slope does not depend on how many
//! packets each one covers, nor on when the packets were sent. Intervals in which
//! the sender had too little to send and no queue stood say nothing about the path and are left
//! out.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

/// Delivered bytes over time.
#[derive(Debug, Clone, Default)]
pub struct DeliveryRate {
    points: VecDeque<(Time, u64)>,
    delivered: u64,
    in_flight: u64,
    /// Acknowledgements until then are of packets that left while the sender had too little.
    limited_until: Time,
}

/// Longest interval that a slope is asked for over: some eight GEO round trips.
const MAX_INTERVAL: Span = Span::from_millis(5_000);

impl DeliveryRate {
    /// Bytes sent and neither delivered nor given up.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A packet leaves.
    pub fn on_sent(&mut self, bytes: u64) {
        if self.in_flight == 0 {
            self.points.clear();
        }
        self.in_flight += bytes;
    }

    /// A packet has arrived.
    pub fn on_acked(&mut self, bytes: u64) {
        self.delivered += bytes;
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// A packet was given up. `carried` says whether the link carried it all the
    /// same: a packet lost by the radio has used the transmitter, one that found
    /// the queue full has not.
    pub fn on_lost(&mut self, bytes: u64, carried: bool) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        if carried {
            self.delivered += bytes;
        }
    }

    /// The acknowledgements of one frame are complete. Where a queue stands, the bottleneck is
    /// `busy`: what it delivers is its rate, whatever the sender had to send.
    pub fn on_acks_done(&mut self, now: Time, app_limited: bool, busy: bool, rtt: Span) {
        if app_limited {
            self.pause(now + rtt);
        }
        if now < self.limited_until && !busy {
            self.points.clear();
            return;
        }
        while self
            .points
            .front()
            .is_some_and(|(at, _)| now.since(*at) > MAX_INTERVAL)
        {
            self.points.pop_front();
        }
        self.points.push_back((now, self.delivered));
    }

    /// The sender has had too little: acknowledgements until then say nothing of the path.
    pub fn pause(&mut self, until: Time) {
        self.limited_until = self.limited_until.max(until);
    }

    /// Forgets the past: it was another path, or another rate.
    pub fn restart(&mut self) {
        self.points.clear();
    }

    /// Bytes per second over the last `window`, a little more when no acknowledgement
    /// came just then. `None` when acknowledgements do not go back that far.
    pub fn rate(&self, window: Span) -> Option<f64> {
        let (now, delivered) = *self.points.back()?;
        let at = self
            .points
            .partition_point(|(at, _)| now.since(*at) >= window);
        let (from, before) = *self.points.get(at.checked_sub(1)?)?;
        let over = now.since(from).as_secs_f64();
        (over > 0.0).then(|| (delivered - before) as f64 / over)
    }
}
