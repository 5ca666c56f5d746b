//! Links on demand: the return link of DVB-RCS2 gives what arrived and waited when it was asked for, a second ago. Sent at what comes
//! through, nothing more is ever asked for; and what an idle link gives first says little.
//!
//! Such a link shows itself by what no other does: more comes while a queue stands than was known. From then on slow start goes on
//! while it is given more, whatever stands; rates are measured over the time that a request takes; and a pause is followed by slow
//! start, because what was given has run out.

use bentpipe_units::{Span, Time};

use super::constants::on_demand::*;
use super::constants::*;
use super::{Phase, Satellite};
use crate::convert::whole;

/// See the [module](self).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OnDemand {
    /// Whether the path has given more while a queue stood.
    pub(super) seen: bool,
    /// Bytes per second that it has given at best since slow start began, and when that had last grown.
    best: f64,
    grown: Time,
}

impl Satellite {
    /// What comes while a queue stands is what the path carries, whatever was sent: if that is more than was ever known, it is believed
    /// at once, and the path asked for more.
    pub(super) fn measure_behind_queue(&mut self, now: Time, rtt: Span) {
        let stands = self.queue.standing() > BUSY_QUEUE * self.base() + self.packet / self.rate;
        if !stands || self.competitive.window() > 0.0 || self.losses.is_trying() {
            self.queued_since = None;
            return;
        }
        let since = *self.queued_since.get_or_insert(now);
        let half = Span::from_nanos(rtt.as_nanos() / 2);
        let known = match self.on_demand.seen {
            true => self.rate,
            false => self.capacity.max(self.rate),
        };
        // Less than that measures little, and shorter round trips are soon made up for. Longer pipes are asked with trains.
        if half >= MIN_RATE_INTERVAL
            && (self.on_demand.seen || self.pipe() < TRAIN_PIPE * self.packet)
            && self.loses_few()
            && now.since(since).as_secs_f64() >= 1.5 * half.as_secs_f64()
            && let Some(rate) = self.delivery.rate(half)
            && rate > MORE_THAN_KNOWN * known
        {
            self.hold(now);
            self.ask_on_demand(now, rate);
        }
    }

    /// The path gives more to those who ask: so many bytes per second, `rate`, until now.
    pub(super) fn ask_on_demand(&mut self, now: Time, rate: f64) {
        self.on_demand = OnDemand {
            seen: true,
            best: rate,
            grown: now,
        };
        self.rate = rate;
        self.capacity = self.capacity.max(rate);
        self.start_slow_start(now, self.delivery.in_flight() as f64);
    }

    /// In slow start: whether a path on demand may still give more, although a queue stands.
    pub(super) fn may_be_given_more(&mut self, now: Time, app_limited: bool) -> bool {
        if !self.on_demand.seen {
            return false;
        }
        let half = Span::from_nanos(whole(0.5e9 * self.base()));
        let more =
            (self.delivery.rate(half)).filter(|rate| *rate > MORE_THAN_KNOWN * self.on_demand.best);
        self.on_demand.best = more.unwrap_or(self.on_demand.best);
        if more.is_some() || app_limited {
            self.on_demand.grown = now;
        }
        let most = MOST_PIPES * self.on_demand.best.max(self.rate) * self.base();
        self.start_window = self.start_window.min(most.max(self.initial_window));
        now.since(self.on_demand.grown) < self.on_demand_time()
    }

    /// For so long what was asked for is not there.
    pub(super) fn on_demand_time(&self) -> Span {
        Span::from_nanos(whole(1e9 * ROUNDS * self.base()))
    }

    /// A flight begins behind a `pause`, in which what was given may have run out.
    pub(super) fn ask_behind_pause(&mut self, now: Time, pause: Span) {
        if !self.on_demand.seen || pause < self.on_demand_time() {
            return;
        }
        let window = match self.phase {
            Phase::SlowStart { .. } => self.start_window,
            Phase::Cruise => 0.0,
            _ => return,
        };
        self.rate = self.rate.max(self.on_demand.best);
        let window = window.max(FIRST_PIPES * self.pipe());
        (self.on_demand.best, self.on_demand.grown) = (0.0, now);
        self.start_slow_start(now, window);
    }
}
