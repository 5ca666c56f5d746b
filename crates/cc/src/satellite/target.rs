//! The target: how much of its own the controller keeps in the queue, and why it may be more than little.

use super::Satellite;
use super::constants::*;

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
            .max(self.target_for_steps())
    }

    /// Bytes without which a short pipe runs dry before it is seen that its rate has stepped up.
    fn target_for_steps(&self) -> f64 {
        match self.rate_steps.are_expected() && self.is_short_pipe() {
            true => rate_steps::TARGET_PACKETS * self.packet,
            false => 0.0,
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
