//! Queues that come and go within a round trip, told from one that stays.
//!
//! A single sample above half of the target says that the path is full, and ends the growth: a queue is noticed as
//! soon as it can be. But on a fast path with jitter each round trip has such a sample, so that nothing would ever
//! grow. Hence, once the samples of some rounds were high for a part of the round only, and in none for half of it or
//! longer, such samples are taken for jitter, until a queue stays. Not by a flow that has less of the path than it had: it
//! shares with others, whose queues are brief, too.

use super::constants::brief_queue::*;

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(super) struct BriefQueue {
    /// Whether the latest sample was high.
    high: bool,
    this_round: ThisRound,
    /// Rounds in which samples were high for a part of the round, since a queue last stayed.
    brief_rounds: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct ThisRound {
    /// Whether any sample was high.
    high: bool,
    /// Whether any was above the whole target.
    above: bool,
    /// Bytes that were acknowledged while samples were high.
    bytes: u64,
}

impl BriefQueue {
    pub(super) fn on_acked(&mut self, bytes: u64) {
        if self.high {
            self.this_round.bytes += bytes;
        }
    }

    /// Of `standing`, `target` and `pipe` in bytes, and of whether the flow has less than it had: whether the queue says
    /// that the path is full.
    pub(super) fn on_acks_done(
        &mut self,
        standing: f64,
        target: f64,
        pipe: f64,
        reduced: bool,
    ) -> bool {
        let above = standing > target;
        self.high = standing > HIGH * target;
        self.this_round.high |= self.high;
        self.this_round.above |= above;
        let jitter = self.brief_rounds >= BRIEF_ROUNDS && !reduced;
        self.high && (!jitter || above || self.stays(pipe))
    }

    pub(super) fn on_round(&mut self, pipe: f64, app_limited: bool) {
        if app_limited || self.stays(pipe) {
            self.brief_rounds = 0;
        } else if self.this_round.high && !self.this_round.above {
            self.brief_rounds += 1;
        }
        self.this_round = ThisRound::default();
    }

    /// Whether any sample of this round was high: that may be a queue, or a longer path.
    pub(super) fn was_high(&self) -> bool {
        self.this_round.high
    }

    /// The path is longer: what stood was no queue.
    pub(super) fn on_longer_path(&mut self) {
        self.this_round = ThisRound::default();
    }

    fn stays(&self, pipe: f64) -> bool {
        self.this_round.bytes as f64 > STAYING_SHARE * pipe
    }
}
