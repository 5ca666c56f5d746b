//! A trial of the rate that a train has shown, and what it ends with.
//!
//! Beside marks, and losses that count as such, it asks whether anybody else is there at all: for a whole round trip, and at nearly all of the
//! rate, so that what others use stands as a queue. If none does, the window that was kept for them ends.

use bentpipe_units::{Span, Time};

use super::constants::*;
use super::{MarkedWindow, Phase, Satellite};

impl Satellite {
    /// A trial has been coming back for long enough, `over`; the train had shown that the path carries `capacity`.
    pub(super) fn judge_trial(&mut self, now: Time, over: Span, capacity: f64) {
        if self.is_trial_beside_marks() {
            // Nobody else has shown.
            self.marked = MarkedWindow::default();
        }
        if self.queue_is_long() {
            // Safe retreat (RFC 9959, section 4.4).
            if std::mem::take(&mut self.resumed) {
                self.memory.forget();
            }
            let shown = self.delivery.rate(self.without_silence(now, over));
            self.cruise_at(now, shown.unwrap_or(self.rate).min(self.rate));
        } else {
            let resumed = std::mem::take(&mut self.resumed);
            let known = self
                .remembered()
                .filter(|_| resumed)
                .map_or(capacity, |path| path.rate.min(capacity));
            self.cruise_at(now, CRUISE_SHARE * known.max(TRIAL_SHARE * capacity));
        }
    }

    /// Whether what is tried is more than marks leave.
    pub(super) fn is_trial_beside_marks(&self) -> bool {
        matches!(
            self.phase,
            Phase::Trial {
                before: Some(_),
                ..
            }
        )
    }

    /// Whether others show while it comes back: what they use of the path is then too much.
    pub(super) fn others_show_in_trial(&self) -> bool {
        self.is_trial_beside_marks() && self.queue.standing() > MARKED_TRIAL_QUEUE * self.base()
    }

    /// Others use what was tried beside marks, if that was tried: it is as it was before.
    pub(super) fn end_trial_beside_marks(&mut self, now: Time) {
        if let Phase::Trial {
            before: Some(before),
            ..
        } = self.phase
        {
            self.phase = Phase::Cruise;
            self.rate = before;
            self.probe_step = 0;
            self.rounds_without_queue = 0;
            self.wait_for_train();
            self.hold(now);
        }
    }

    /// Seconds for which a trial must have been coming back before it is judged.
    pub(super) fn trial_time(&self) -> f64 {
        let share = match self.is_trial_beside_marks() {
            true => MARKED_TRIAL_TIME,
            false => TRIAL_TIME,
        };
        (share * self.base()).max(TRIAL_PACKETS * self.packet / self.rate.max(self.packet))
    }
}
