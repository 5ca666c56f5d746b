//! Losses without a queue: the air's, or those of a policer or a short queue?
//!
//! The air takes its share of however much is sent. What has no room for more stops
//! dropping when less is sent. So when more than a little is lost, less is sent for a
//! round, and the losses of that round are the answer.

use super::constants::*;

/// What a round's losses say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing new.
    None,
    /// Send less for a round or two, to see.
    Try,
    /// It is the air: send as before.
    Air,
    /// Fewer are lost now: there was no room for more.
    Full,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Losses {
    /// Share that the air takes.
    air: f64,
    /// Share that was lost before the trial, and its rounds so far.
    trial: Option<(f64, u32)>,
    wait: u32,
    next_wait: u32,
}

impl Losses {
    /// Share of a round that may be lost without a question.
    pub(super) fn limit(&self) -> f64 {
        LOSS_FREE.max(LOSS_AIR * self.air)
    }

    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// A round has ended with `lost` of `sent` packets given up.
    pub(super) fn on_round(&mut self, lost: u64, sent: u64) -> Verdict {
        let share = lost as f64 / sent.max(1) as f64;
        self.wait = self.wait.saturating_sub(1);
        if let Some((before, rounds)) = self.trial {
            // Losses are told one round trip after the packets left.
            if rounds < 2 {
                self.trial = Some((before, rounds + 1));
                return Verdict::None;
            }
            self.trial = None;
            if share < TRIAL_STAYS * before {
                self.next_wait = 0;
                return Verdict::Full;
            }
            self.air = self.air.max(share.min(before));
            self.next_wait = (2 * self.next_wait).clamp(TRIAL_WAIT.0, TRIAL_WAIT.1);
            self.wait = self.next_wait;
            return Verdict::Air;
        }
        // Chance alone makes twice its root.
        let expected = self.air.max(LOSS_FREE / 2.0) * sent as f64;
        let chance = (self.limit() * sent as f64).max(expected + 2.0 * expected.sqrt());
        if lost >= LOSS_PACKETS && lost as f64 > chance {
            if self.wait == 0 {
                self.trial = Some((share, 0));
                return Verdict::Try;
            }
            return Verdict::None;
        }
        self.air += AIR_GAIN * (share - self.air);
        Verdict::None
    }
}
