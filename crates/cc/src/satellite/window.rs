//! What may be in flight: by the rate that is delivered, and by the window that marks leave.

use super::constants::on_demand::WAITING_PIPES;
use super::constants::*;
use super::{Phase, Satellite};

impl Satellite {
    /// Window that the delivered rate asks for, bytes.
    pub(super) fn own_window(&self) -> f64 {
        let train = match self.training {
            true => TRAIN_ROOM * self.packet,
            false => 0.0,
        };
        match self.phase {
            Phase::Start if self.rate == 0.0 => self.start_window,
            Phase::SlowStart { .. } => self.start_window + train,
            _ => {
                let more = PROBE_GAINS[self.probe_step].max(self.raise_probe.gain(self.last_acked));
                let waits = match self.on_demand.seen {
                    true => WAITING_PIPES,
                    false => 0.0,
                };
                let window = self.pipe() * (1.0 + waits + WINDOW_MARGIN + more)
                    + 2.0 * self.target()
                    + WINDOW_MARGIN_PACKETS * self.packet
                    + train;
                window.max(self.kept_for_steps())
            }
        }
    }

    /// Whether so few packets fill the pipe that a window says little.
    pub(super) fn is_short_pipe(&self) -> bool {
        self.pipe() <= SHORT_PIPE * self.packet
    }

    /// What the marks leave of `own`: a window, or a rate of `per_byte` bytes a second for each byte of a window.
    pub(super) fn with_marks(&self, own: f64, per_byte: f64) -> f64 {
        let asks = self.sends_train() || self.is_trial_beside_marks();
        let Some(marked) = self.marked.bytes().filter(|_| !asks) else {
            return own;
        };
        let others = self.has_less_than_it_had() && !self.is_short_pipe();
        let marked = per_byte * marked;
        if others { marked } else { own.min(marked) }
    }
}
