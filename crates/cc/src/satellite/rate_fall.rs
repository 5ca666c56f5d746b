//! A fall of the rate: a queue stands beyond what the controller makes itself, so the path carries less than it did, or less
//! than was taken for its rate.
//!
//! What the last quarter of a round trip (no gap between two satellites) delivered is believed for half a round trip; after that
//! we have stopped sending, and what is delivered shows no more than that. Behind a silence packets may have been held: then only
//! what has come since is believed.
//!
//! Half of the rate is sent until the queue has run off. If on a short pipe it has not once it could have, the path carries less again: that is
//! measured anew.
//!
//! The least of such quarters is too low where a host stood still in one of them. But all the while a queue stood, so the path
//! was never idle: once the queue is gone, what it delivered on average is its rate. Not for a flow that has less than it had:
//! it shares the path with others, and was to give way. Where the last of it came a quarter faster than what was measured, the
//! path carries more again: that is believed of any flow that had enough to send, up to what the path was seen to carry.

use bentpipe_units::{Span, Time};

use super::Satellite;
use super::constants::*;
use crate::convert::whole;

/// One that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateFall {
    since: Time,
    /// When the queue has run off, if nothing else changes.
    over: Time,
    /// Whether it has been measured.
    measured: bool,
    /// Bytes per second that were delivered since then.
    average: Option<f64>,
    /// Bytes per second that the last half of a round trip has brought.
    last: Option<f64>,
}

impl RateFall {
    /// Whether what the path carries has been measured.
    pub(super) fn is_measured(&self) -> bool {
        self.measured
    }
}

impl Satellite {
    /// A frame of acknowledgements is complete; `rtt` is the round trip without a queue.
    pub(super) fn follow_fall(&mut self, now: Time, rtt: Span) {
        let long = now >= self.blackout_losses_until
            && self.competitive.window() == 0.0
            && self.queue.standing() > self.long_queue();
        if long {
            self.on_long_queue(now, rtt);
        } else if let Some(fall) = self.rate_fall.take() {
            if let Some(average) = fall.average
                && average >= REDUCED_RATE * self.capacity
                && self.hosts_stall()
            {
                self.rate = self.rate.max(average);
            }
            if let Some(last) = fall
                .last
                .filter(|last| *last > rate_steps::STEP * self.rate)
            {
                self.rate = last.min(self.capacity);
            }
            self.delivery.restart();
            self.drain_probe.restart();
        }
    }

    fn on_long_queue(&mut self, now: Time, rtt: Span) {
        self.rounds = TRAIN_DOUBT_ROUNDS;
        let stuck = self.is_short_pipe() && self.is_full();
        let again = |fall: &RateFall| stuck && fall.measured && now > fall.over;
        let mut fall = (self.rate_fall.filter(|fall| !again(fall))).unwrap_or(RateFall {
            since: now,
            over: now + self.rtt() + self.queue_runs_off(),
            measured: false,
            average: None,
            last: None,
        });
        let half = Span::from_nanos(rtt.as_nanos() / 2);
        let quarter = Span::from_nanos(rtt.as_nanos() / 4).max(MIN_RATE_INTERVAL);
        let silent = (self.silence.end()).is_some_and(|end| end + rtt + half >= now);
        let (from, until, over) = if silent {
            let half = half.max(MIN_RATE_INTERVAL);
            (half, half + half, half)
        } else if self.on_demand.seen {
            (Span::ZERO, half, self.on_demand_time())
        } else if self.queue.is_noisy() {
            (Span::ZERO, half, quarter.max(half))
        } else {
            (Span::ZERO, half, quarter)
        };
        let since = now.since(fall.since);
        // Nor does a silence since then show a slow link: what came behind it does, once it has for a while.
        let over = self.without_silence(now, over);
        if since >= from
            && over >= quarter
            && (since <= until || !fall.measured)
            && let Some(recent) = self.delivery.rate(over)
        {
            fall.measured = true;
            self.rate = self.rate.min(recent).max(self.packet);
        }
        if since >= half {
            fall.average = self.delivery.rate(since);
            if !self.round.app_limited {
                fall.last = self.delivery.rate(self.without_silence(now, half));
            }
        }
        self.rate_fall = Some(fall);
        self.hold(now);
    }

    /// How long what stands takes to run off, at half of the rate.
    fn queue_runs_off(&self) -> Span {
        Span::from_nanos(whole(1e9 * self.queue.standing() / (1.0 - LEAST_GAIN)))
    }

    /// Seconds of queue beyond what the controller makes itself.
    fn long_queue(&self) -> f64 {
        (4.0 * self.target() / self.rate).max(RATE_FALL_QUEUE * self.base())
    }
}
