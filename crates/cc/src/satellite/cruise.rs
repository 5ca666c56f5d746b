//! Cruise: the rate at which the path delivers, corrected by the queue, and what is remembered of it.

use bentpipe_units::{Span, Time};

use super::constants::brief_queue::HIGH as HIGH_SAMPLE;
use super::constants::*;
use super::losses::Verdict;
use super::{Acked, Path, Phase, Satellite, drain_probe, raise_probe};
use crate::convert::whole;

impl Satellite {
    /// Losses without a queue: the radio's, or those of a link that is full all the same? So many bytes per second came
    /// through in the round, `delivered`.
    pub(super) fn judge_losses(&mut self, now: Time, lost: u64, sent: u64, delivered: f64) {
        match self.losses.on_round(lost, sent) {
            Verdict::None => {}
            Verdict::Try(share) => {
                self.rate_before_trial = self.rate;
                self.delivered_before_trial = delivered;
                self.probe_step = 0;
                // More than the rate may have been sent, to ask for more.
                let least = DELIVERED_SHARE * delivered;
                self.rate = least.max(share * self.rate).min(self.rate).max(self.packet);
            }
            Verdict::Radio => self.rate = self.rate.max(self.rate_before_trial),
            Verdict::Full => {
                // What was lost then counted as carried, and the rate as seen.
                self.rate_before_trial = self.rate_before_trial.min(self.delivered_before_trial);
                self.capacity = self
                    .capacity
                    .min(self.delivered_before_trial.max(self.rate));
                self.probe_step = 0;
                self.raise_probe.on_queue();
                self.careful_rounds = CAREFUL_ROUNDS;
                self.hold(now);
            }
        }
    }

    pub(super) fn cruise_at(&mut self, now: Time, rate: f64) {
        if let Phase::Trial { capacity, .. } = self.phase {
            self.capacity = capacity;
            self.capacity_at = now;
            self.raise_probe.restart();
        }
        self.phase = Phase::Cruise;
        self.rate = rate.max(self.packet);
        self.probe_step = 1;
        self.hold(now);
    }

    /// The next measurements still show the rate of before: one round trip to arrive,
    /// one to be measured over.
    pub(super) fn hold(&mut self, now: Time) {
        self.hold_until = now + self.rtt() + self.rtt();
        self.held_from = self.is_short_pipe().then_some(now);
    }

    /// A packet is acknowledged. On a short pipe the first that has left since ends the former of the two: with so few acknowledgements the
    /// average round trip remembers a queue for many round trips (an eighth goes with each; RFC 9002, section 5.3).
    pub(super) fn follow_hold(&mut self, packet: &Acked) {
        if self.held_from.is_some_and(|from| packet.sent > from) {
            self.held_from = None;
            let measured = Span::from_nanos(whole(1e9 * self.base()));
            self.hold_until = self.hold_until.min(packet.now + measured);
        }
    }

    /// Nor are measurements until then the path's.
    pub(super) fn hold_until_at_least(&mut self, until: Time) {
        self.hold_until = self.hold_until.max(until);
        self.held_from = None;
    }

    /// A round that carried most of the rate confirms it. Of one that carried less, what it carried is known;
    /// without more to send that is a floor.
    pub(super) fn remember(&self, acked: u64, over: Span, app_limited: bool) {
        let carried = acked as f64 / over.as_secs_f64();
        let rate = if (acked as f64) < USED * self.pipe() {
            return;
        } else if carried >= CONFIRMED * self.rate {
            self.rate
        } else {
            let known = self.memory.get().filter(|_| app_limited);
            carried
                .max(known.map_or(0.0, |path| path.rate))
                .min(self.rate)
        };
        self.memory.save(Path {
            rate,
            rtt: self.queue.base().unwrap_or(self.initial_rtt),
        });
    }

    /// What a frame of acknowledgements changes once the path is known.
    pub(super) fn cruise(&mut self, now: Time, app_limited: bool) {
        let rtt = self.queue.base().unwrap_or(self.initial_rtt);
        self.follow_fall(now, rtt);
        // What is given and what was asked for even out over so long.
        let over = match self.on_demand.seen {
            true => self.on_demand_time(),
            // What jitter has held comes in one go.
            false if self.queue.has_lasting_jitter() => rtt.max(MIN_RATE_INTERVAL),
            false => rtt,
        };
        if !app_limited
            && now >= self.hold_until
            && !self.losses.is_trying()
            && let Some(rate) = self.delivery.rate(over)
        {
            // On a short way a stall of a host is most of a round trip.
            let longer = match self.stalls() > MIN_TARGET {
                true => self.delivery.rate(rtt.max(MIN_RATE_INTERVAL)),
                false => None,
            };
            let rate = rate.max(longer.unwrap_or(rate));
            // Without a queue it was the sender that was slow: its timers were late.
            let path = now >= self.stalled_until && self.standing() > HIGH_SAMPLE * self.target();
            self.rate = if path { rate } else { rate.max(self.rate) }.max(self.packet);
        }
        self.measure_behind_queue(now);
        // What the path once carried counts less and less.
        let since = now.since(self.capacity_at).as_secs_f64();
        self.capacity_at = now;
        self.capacity += (self.rate - self.capacity) * (since / CAPACITY_DECAY).min(1.0);
        self.unmeasured &= now < self.hold_until;
        if !self.unmeasured {
            self.capacity = self.capacity.max(self.rate);
        }
        let verdict = self.drain_probe.on_acks_done(drain_probe::Observation {
            now,
            rtt,
            standing: self.queue.standing(),
            target: self.target() / self.rate,
            doubtful: (self.round.queued || self.brief_queue.was_high())
                && self.has_less_than_it_had(),
            urgent: self.competitive.suspects_competitor(),
            busy: !app_limited && self.competitive.window() == 0.0,
        });
        if let Some(verdict) = verdict {
            self.competitive
                .on_drain_probe(verdict == drain_probe::Verdict::Queue);
            if verdict == drain_probe::Verdict::LongerPath {
                self.queue.rebase();
                self.round.queued = false;
                self.brief_queue.on_longer_path();
            }
        }
    }

    /// A round has ended, in which a queue, or what looks like one, may have `held_back` the rate: whether it is one is asked with a raise probe.
    pub(super) fn ask_for_more(&mut self, now: Time, held_back: bool, disturbed: bool) {
        // A window that holds less than the rate asks for is in nobody's way.
        let windows = self.competitive.window() >= self.pipe() || self.marked.bytes().is_some();
        let measuring = self.losses.is_trying() || self.training || self.rate_fall.is_some();
        let no_queue = self.raise_probe.on_round(&raise_probe::Round {
            now,
            base: self.base(),
            rtt: self.rtt().as_secs_f64(),
            held_back,
            steady: !(disturbed || windows || measuring || self.is_short_pipe()),
        });
        if no_queue {
            self.competitive.end();
        }
    }

    pub(super) fn gain(&self) -> f64 {
        let raise = self.raise_probe.gain(self.last_acked);
        if raise > 0.0 {
            return 1.0 + raise;
        }
        if let Some(gain) = self.drain_probe.gain(self.last_acked) {
            return gain;
        }
        let error = (self.target() - self.standing()) / self.pipe();
        (1.0 + QUEUE_GAIN * error).clamp(LEAST_GAIN, MOST_GAIN) + PROBE_GAINS[self.probe_step]
    }
}
