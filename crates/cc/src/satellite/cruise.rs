//! Cruise: the delivered rate, corrected by the standing queue, raised while none stands.

use bentpipe_units::{Span, Time};

use super::constants::*;
use super::losses::Verdict;
use super::{Phase, Round, Satellite, competitive_mode, drain_probe};
use crate::resume::Path;

impl Satellite {
    /// A round trip is over.
    pub(super) fn end_round(&mut self, now: Time) {
        let Round {
            acked,
            lost,
            queued,
            app_limited,
            acked_packets,
            lost_packets,
            ..
        } = self.round;
        self.round = Round {
            started: now,
            acked_before: acked,
            loss: lost as f64 / (acked + lost).max(1) as f64,
            ..Round::default()
        };
        self.careful = self.careful.saturating_sub(1);
        self.marked_target = (self.marked_target + MARK_FORGOTTEN).min(1.0);
        if self.phase == Phase::Cruise
            && now >= self.blackout_losses_until.max(self.hold_until)
            && self.competitive.window() == 0.0
        {
            self.judge_losses(now, lost_packets, acked_packets + lost_packets);
        }
        if self.phase != Phase::Cruise || app_limited {
            return;
        }
        self.rounds += 1;
        if self.rounds <= TRAIN_DOUBT_ROUNDS && self.queue.is_noisy() {
            self.start_slow_start(2.0 * self.initial_window);
            return;
        }
        self.probe_upwards(queued);
        if self.phase != Phase::Cruise {
            return;
        }
        self.memory.save(Path {
            rate: self.rate,
            rtt: self.queue.base().unwrap_or(self.initial_rtt),
        });
        self.competitive.on_round(&competitive_mode::Round {
            now,
            long_queue: self.queue.standing() > FOREIGN_QUEUE * self.base(),
            own_queue_gone: self.clock.in_flight() as f64
                <= OWN_QUEUE_GONE * self.pipe() + OWN_QUEUE_GONE_PACKETS * self.packet,
            in_flight: self.clock.in_flight() as f64,
            pipe: self.pipe(),
            rtt: self.rtt().as_secs_f64(),
            packet: self.packet,
        });
    }

    /// A round without a queue: more is tried, step by step, and after the last step slow start
    /// goes on. A rate that has never met a limit has one step.
    fn probe_upwards(&mut self, queued: bool) {
        if queued && self.limit_seen {
            self.probe_step = 0;
            self.rounds_without_queue = 0;
            return;
        }
        self.rounds_without_queue += 1;
        let rounds = if self.limit_seen {
            PROBE_ROUNDS[self.probe_step]
        } else {
            CONFIRM_ROUNDS + 1
        };
        if self.rounds_without_queue < rounds {
            return;
        }
        self.rounds_without_queue = 0;
        // What was carried once is tried sooner, what lost packets for want of room later.
        let reduced = self.rate < REDUCED_RATE * self.capacity;
        let next = self.probe_step + if reduced { 2 } else { 1 };
        if !self.limit_seen {
            self.start_slow_start(2.0 * self.packet);
        } else if self.careful > 0 && self.rate > CAREFUL_FROM * self.untried {
            self.probe_step = next.min(1);
        } else if next < PROBE_GAINS.len() {
            self.probe_step = next;
        } else {
            self.start_slow_start(2.0 * self.packet);
        }
    }

    /// Losses without a queue: the radio's, or those of a link that is full all the same?
    pub(super) fn judge_losses(&mut self, now: Time, lost: u64, sent: u64) {
        match self.losses.on_round(lost, sent) {
            Verdict::None => {}
            Verdict::Try(share) => {
                self.untried = self.rate;
                self.probe_step = 0;
                self.rate = (share * self.rate).max(self.packet);
            }
            Verdict::Radio => self.rate = self.rate.max(self.untried),
            Verdict::Full => {
                self.limit_seen = true;
                self.probe_step = 0;
                self.careful = CAREFUL_ROUNDS;
                self.hold(now);
            }
        }
    }

    /// The next measurements still show the rate of before: one round trip to arrive,
    /// one to be measured over.
    pub(super) fn hold(&mut self, now: Time) {
        self.hold_until = now + self.rtt() + self.rtt();
    }

    /// What a frame of acknowledgements changes once the path is known.
    pub(super) fn cruise(&mut self, now: Time, app_limited: bool) {
        let rtt = self.queue.base().unwrap_or(self.initial_rtt);
        let limit = (4.0 * self.target() / self.rate).max(RATE_FALL_QUEUE * self.base());
        let long = now >= self.blackout_losses_until
            && now >= self.held_until
            && !self.is_after_silence(now)
            && self.competitive.window() == 0.0
            && self.queue.standing() > limit;
        if long {
            // The path carries less than it did. What the last quarter of a round trip (no gap
            // between two satellites) delivered is believed for half a round trip; after that we
            // have stopped sending, and what is delivered shows no more than that. Behind a
            // silence packets may have been held: then only what has come since is believed.
            self.rounds = TRAIN_DOUBT_ROUNDS;
            let began = *self.rate_fall_since.get_or_insert(now);
            let half = Span::from_nanos(rtt.as_nanos() / 2);
            let quarter = Span::from_nanos(rtt.as_nanos() / 4).max(MIN_RATE_INTERVAL);
            let silent = self.silence_end + rtt + half >= now && self.silence_end > Time::ZERO;
            let (from, until, over) = if silent {
                let half = half.max(MIN_RATE_INTERVAL);
                (half, half + half, half)
            } else if self.queue.is_noisy() {
                (Span::ZERO, half, quarter.max(half))
            } else {
                (Span::ZERO, half, quarter)
            };
            let since = now.since(began);
            if since >= from
                && since <= until
                && let Some(recent) = self.clock.rate(over)
            {
                self.rate = self.rate.min(recent).max(self.packet);
            }
            self.hold(now);
        } else if self.rate_fall_since.take().is_some() {
            self.clock.restart();
            self.drain_probe.restart();
        }
        if !app_limited
            && now >= self.hold_until
            && !self.is_after_silence(now)
            && !self.losses.is_trying()
            && let Some(rate) = self.clock.rate(rtt)
        {
            // Without a queue it was the sender that was slow: its timers were late.
            let path = self.standing() > 0.5 * self.target();
            self.rate = if path { rate } else { rate.max(self.rate) }.max(self.packet);
        }
        // What the path once carried counts less and less.
        let since = now.since(self.capacity_at).as_secs_f64();
        self.capacity_at = now;
        self.capacity += (self.rate - self.capacity) * (since / CAPACITY_DECAY).min(1.0);
        self.capacity = self.capacity.max(self.rate);
        let verdict = self.drain_probe.on_acks_done(drain_probe::Observation {
            now,
            rtt,
            standing: self.queue.standing(),
            target: self.target() / self.rate,
            doubtful: self.round.queued && self.rate < REDUCED_RATE * self.capacity,
            urgent: self.competitive.suspects_competitor(),
            busy: !app_limited && self.competitive.window() == 0.0,
        });
        if let Some(verdict) = verdict {
            self.competitive
                .on_drain_probe(verdict == drain_probe::Verdict::Queue);
            if verdict == drain_probe::Verdict::LongerPath {
                self.queue.rebase();
                self.round.queued = false;
            }
        }
    }

    pub(super) fn gain(&self) -> f64 {
        if let Some(gain) = self.drain_probe.gain(self.last_acked) {
            return gain;
        }
        let error = (self.target() - self.standing()) / self.pipe();
        (1.0 + QUEUE_GAIN * error).clamp(0.5, 2.0) + self.probe()
    }

    /// Share of the delivered rate that is tried beyond it.
    pub(super) fn probe(&self) -> f64 {
        if self.limit_seen {
            PROBE_GAINS[self.probe_step]
        } else {
            CONFIRM_GAIN
        }
    }
}
