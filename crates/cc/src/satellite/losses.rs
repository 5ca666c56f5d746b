//! Losses without a queue: the radio's, or those of a policer or a short queue?
//!
//! The radio takes its share of however much is sent. What has no room for more delivers
//! no less when less is sent. So when more than a little is lost, what was delivered is
//! sent and no more for two rounds, and the losses of these are the answer.

use super::constants::losses::*;

/// What a round's losses say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// Nothing new.
    None,
    /// Send this share for two rounds, to see.
    Try(f64),
    /// It is the radio: send as before.
    Radio,
    /// Fewer are lost now: there was no room for more.
    Full,
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct Losses {
    /// Share that the radio loses.
    radio: f64,
    /// The most that it may be taken for: what a trial has shown. Losses of a link that is too full grow a little
    /// each round, and would be followed.
    shown: f64,
    /// Packets lost and sent since they were judged last.
    lost: u64,
    sent: u64,
    /// Whether the judgement before found too many.
    suspected: bool,
    trial: Option<Trial>,
    wait: u32,
    next_wait: u32,
}

#[derive(Debug, Clone, Copy)]
struct Trial {
    /// Share that was lost before.
    before: f64,
    rounds: u32,
}

impl Default for Losses {
    fn default() -> Self {
        Self {
            radio: 0.0,
            shown: LOSS_THRESH / RADIO_MARGIN,
            lost: 0,
            sent: 0,
            suspected: false,
            trial: None,
            wait: 0,
            next_wait: 0,
        }
    }
}

impl Losses {
    /// Share of a round that may be lost without a question.
    pub(super) fn limit(&self) -> f64 {
        LOSS_THRESH.max(RADIO_MARGIN * self.radio)
    }

    /// Whether too few are lost to be asked about.
    pub(super) fn are_few(&self) -> bool {
        RADIO_MARGIN * self.radio < LOSS_THRESH
    }

    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// A round has ended with `lost` of `sent` packets given up.
    pub(super) fn on_round(&mut self, lost: u64, sent: u64) -> Verdict {
        self.wait = self.wait.saturating_sub(1);
        if let Some(trial) = &mut self.trial {
            // Losses are told one round trip after the packets left.
            trial.rounds += 1;
            if trial.rounds <= BLIND_ROUNDS {
                return Verdict::None;
            }
        }
        self.lost += lost;
        self.sent += sent;
        let over = (self.trial.as_ref()).is_some_and(|trial| trial.rounds >= TRIAL_ROUNDS);
        if !over && self.lost < LOST_PACKETS && self.sent < JUDGED_PACKETS {
            return Verdict::None;
        }
        let (lost, sent) = (
            std::mem::take(&mut self.lost),
            std::mem::take(&mut self.sent),
        );
        let share = lost as f64 / sent.max(1) as f64;
        if let Some(trial) = self.trial.take() {
            if share < STAYS * trial.before || share > MOST_RADIO {
                self.next_wait = 0;
                return Verdict::Full;
            }
            self.shown = self.shown.max(share.min(trial.before));
            self.radio += 0.5 * (share.min(trial.before) - self.radio).max(0.0);
            self.next_wait = (2 * self.next_wait).clamp(WAIT.0, WAIT.1);
            self.wait = self.next_wait;
            return Verdict::Radio;
        }
        // Losses come in bursts: chance alone makes several times its root more, but not twice.
        let expected = self.limit() * sent as f64;
        let many = lost >= LOST_PACKETS && lost as f64 > expected + CHANCE * expected.sqrt();
        if many && !std::mem::replace(&mut self.suspected, many) {
            return Verdict::None;
        }
        self.suspected = many;
        if many {
            // Far more than the radio has ever taken is no chance.
            if self.wait == 0 || share > MOST_RADIO.max(2.0 * self.limit()) {
                self.suspected = false;
                self.trial = Some(Trial {
                    before: share,
                    rounds: 0,
                });
                return Verdict::Try((1.0 - 1.1 * share).clamp(TRIAL_SHARES.0, TRIAL_SHARES.1));
            }
            return Verdict::None;
        }
        self.radio += GAIN * (share.min(self.shown) - self.radio);
        Verdict::None
    }
}
