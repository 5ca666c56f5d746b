//! Links on demand: the return link of DVB-RCS2 gives what arrived and waited when it was asked for, a second ago. Sent at what comes
//! through, nothing more is ever asked for; and what an idle link gives first says little.
//!
//! Such a link shows itself by what no other does: more comes while a queue stands than was known. A thin flow on a long path asks for that
//! now and then, by a third of a pipe more for some round trips. From then on slow start goes on
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
    /// Since when a queue has stood, and until when: what it asked for may have come only when it was gone.
    queued: Option<(Time, Time)>,
    /// Whether slow start asks a path of which nothing is known.
    asks: bool,
    /// Rounds with a queue since the rate was so many bytes per second, and how many of them make the path due to be asked.
    held_back: u32,
    held_at: f64,
    due_after: u32,
}

impl Satellite {
    /// What comes while a queue stands is what the path carries, whatever was sent: if that is more than was ever known, it is believed
    /// at once, and the path asked for more.
    pub(super) fn measure_behind_queue(&mut self, now: Time) {
        let half = self.half_base();
        let stands = self.queue.standing() > BUSY_QUEUE * self.base() + self.packet / self.rate;
        let stood = (self.on_demand.queued).filter(|(_, until)| now.since(*until) <= half);
        let since = stood.map_or(now, |(since, _)| since);
        let others = self.competitive.window() > 0.0 || self.losses.is_trying();
        self.on_demand.queued = match stands {
            _ if others => None,
            true => Some((since, now)),
            false => stood,
        };
        let long = (self.on_demand.queued).is_some_and(|(since, until)| {
            until.since(since).as_secs_f64() >= 1.5 * half.as_secs_f64()
        });
        let known = match self.on_demand.seen {
            true => self.rate,
            false => self.capacity.max(self.rate),
        };
        if long
            && (self.on_demand.seen || self.is_thin_and_long())
            && self.loses_few()
            && let Some(rate) = self.more_than(known)
        {
            self.hold(now);
            self.ask_on_demand(now, rate);
        }
    }

    /// Shorter round trips measure little, and are soon made up for.
    pub(super) fn is_long(&self) -> bool {
        self.half_base() >= MIN_RATE_INTERVAL
    }

    /// Fewer packets measure little, too. Longer pipes are asked with trains.
    fn is_thin_and_long(&self) -> bool {
        let packets = self.pipe() / self.packet;
        self.is_long() && (FEW_PACKETS..TRAIN_PIPE).contains(&packets)
    }

    fn half_base(&self) -> Span {
        Span::from_nanos(whole(0.5e9 * self.base()))
    }

    /// Bytes per second of the last half round trip, if they are more than were `known`, and by more than comes in one go.
    fn more_than(&self, known: f64) -> Option<f64> {
        let half = self.half_base();
        let in_one_go = IN_ONE_GO * self.packet / half.as_secs_f64();
        (self.delivery.rate(half)).filter(|rate| *rate > MORE_THAN_KNOWN * known + in_one_go)
    }

    /// The path gives more to those who ask: so many bytes per second, `rate`, until now.
    pub(super) fn ask_on_demand(&mut self, now: Time, rate: f64) {
        self.on_demand.seen = true;
        self.rate = rate;
        self.capacity = self.capacity.max(rate);
        self.ask(now, rate, self.delivery.in_flight() as f64);
    }

    /// A round has ended. What queues have held back for long is asked once whether there is more: who sends what comes through would never
    /// know.
    pub(super) fn ask_when_held_back(&mut self, now: Time, queued: bool, steady: bool) {
        let demand = &mut self.on_demand;
        if self.rate > MORE_THAN_KNOWN * demand.held_at {
            (demand.held_back, demand.held_at, demand.due_after) = (0, self.rate, LEAST_WAIT);
        }
        demand.held_back += u32::from(queued && steady);
        let due = demand.held_back >= demand.due_after && steady;
        if due && self.is_thin_and_long() && self.rate > ALONE_SHARE * self.capacity {
            let demand = &mut self.on_demand;
            (demand.held_back, demand.held_at, demand.asks) = (0, self.rate, true);
            demand.due_after = (2 * demand.due_after).min(MOST_WAIT);
            let known = self.capacity.max(self.rate);
            self.ask(now, known, self.delivery.in_flight() as f64);
        }
    }

    fn ask(&mut self, now: Time, best: f64, window: f64) {
        (self.on_demand.best, self.on_demand.grown) = (best, now);
        self.start_slow_start(now, window);
    }

    /// In slow start: whether a path on demand may still give more, although a queue stands.
    pub(super) fn may_be_given_more(&mut self, now: Time, app_limited: bool) -> bool {
        if !self.on_demand.seen && !self.on_demand.asks {
            return false;
        }
        let more = self.more_than(self.on_demand.best);
        self.on_demand.best = more.unwrap_or(self.on_demand.best);
        if more.is_some() || app_limited {
            self.on_demand.grown = now;
        }
        let waits = self.rtt().as_secs_f64() > (1.0 + BUSY_QUEUE) * self.base();
        self.on_demand.seen |= more.is_some() && waits;
        let (pipes, least) = match self.on_demand.seen {
            true => (MOST_PIPES, self.initial_window),
            false => (ASK_PIPES, 0.0),
        };
        let most = pipes * self.on_demand.best.max(self.rate) * self.base();
        self.start_window = self.start_window.min(most.max(least));
        let may = now.since(self.on_demand.grown) < self.on_demand_time();
        self.on_demand.asks &= may;
        may
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
        self.ask(now, 0.0, window.max(FIRST_PIPES * self.pipe()));
    }
}
