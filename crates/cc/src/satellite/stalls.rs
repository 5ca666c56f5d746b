//! Hosts that stand still: a busy machine's timers are late, and what it has received it reads in one go.

use bentpipe_units::{Span, Time};

use super::constants::*;
use super::{Controller, Phase, Satellite};

impl Satellite {
    /// Seconds for which hosts that are busy stand still: a path on which no queue outlasts that is idle meanwhile.
    pub(super) fn stalls(&self) -> f64 {
        // A packet more or less is a step on a short pipe, and in the beginning it is not known whether it is one.
        let known = self.phase == Phase::Cruise && self.rounds > TRAIN_DOUBT_ROUNDS;
        if !known || self.is_short_pipe() {
            return 0.0;
        }
        (STALLS * self.queue.jitter()).min(MAX_STALLS.min(MAX_STALLS_SHARE * self.base()))
    }

    /// Whether they stand still for longer than timestamps are off by.
    pub(super) fn hosts_stall(&self) -> bool {
        STALLS * self.queue.jitter() > MIN_TARGET
    }

    /// `bytes` leave at `now`, and nothing has for a `pause`, in which more would have: the application's pause, which says nothing of the path,
    /// or a stall of the own host, behind which the rate may rise by what is measured, and not fall.
    pub(super) fn on_pause(&mut self, now: Time, pause: Span, bytes: f64) {
        let pause = pause.as_secs_f64();
        if pause <= MIN_PAUSE {
            return;
        }
        // Behind a long queue less than that is sent: on a short pipe one packet in the time of two.
        let sent = match self.pacing_rate().filter(|_| self.is_short_pipe()) {
            Some(paced) => self.rate.min(paced as f64),
            None => self.rate,
        };
        let room = self.window().saturating_sub(self.delivery.in_flight()) as f64;
        let missed = (sent * pause - bytes).min(room);
        if missed <= (PAUSE * self.pipe()).max(MIN_PAUSE * self.rate) {
            return;
        }
        if self.hosts_stall() && missed <= MIN_STALLED_PAUSE * self.rate {
            self.stalled_until = now + self.rtt();
        } else {
            self.delivery.pause(now + self.rtt());
            self.round.app_limited = true;
        }
    }
}
