//! The target: how much of its own the controller keeps in the queue, and why it may be more than little: what hosts do that stand still.

use super::constants::*;
use super::{Phase, Satellite};

impl Satellite {
    /// Own bytes that should stand in the queue.
    pub(super) fn target(&self) -> f64 {
        let room = self.capacity.max(self.rate).max(1.0);
        let share = (self.rate / room).max(0.1);
        let pipe = (room * self.base()).max(self.packet);
        let own = self.marked_target * TARGET * (self.packet / pipe).sqrt() / (share * share)
            * self.pipe();
        // Where the way is shorter than hosts are quick, what they do in one go is no queue of the path's.
        own.min(MAX_TARGET * self.pipe())
            .max(MIN_TARGET * self.rate)
            .max(self.marked_target * self.stalls() * self.rate)
            .max(self.ack_wait() * self.rate)
    }

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

    /// Seconds without a packet that are the application's, and not a host's.
    pub(super) fn min_pause(&self) -> f64 {
        match self.hosts_stall() {
            true => MIN_STALLED_PAUSE,
            false => MIN_PAUSE,
        }
    }

    /// Seconds that packets wait for their acknowledgement where a timer sends it, not the
    /// packet that completes the number asked for: no sample is without it.
    fn ack_wait(&self) -> f64 {
        let few = self.pipe() < 2.0 * ACK_PACKETS * self.packet;
        if few && self.silence.interval() * self.rate < ACK_PACKETS * self.packet {
            self.silence.interval().min(0.5 * self.base())
        } else {
            0.0
        }
    }
}
