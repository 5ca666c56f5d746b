//! Competitive mode: the window beside a flow that keeps the queue full.
//!
//! A flow that gives way to every queue is left with nothing beside one that fills
//! it. When the queue stays long although the own share of it is gone, the window
//! follows CUBIC's curve (RFC 9438) until the queue is short again. That curve gives
//! half to each of the two, because both take the same losses.

use super::constants::competitive_mode::*;
use bentpipe_units::Time;

/// A round trip as it ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Time,
    /// Whether the standing queue is long.
    pub(super) long_queue: bool,
    /// Whether the own share of it is gone.
    pub(super) own_queue_gone: bool,
    pub(super) in_flight: f64,
    /// Bytes that fill the pipe at our rate.
    pub(super) pipe: f64,
    pub(super) rtt: f64,
    pub(super) packet: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct CompetitiveMode {
    /// Rounds in a row with a long queue of others.
    foreign_queue_rounds: u32,
    /// In flight when it came, bytes.
    in_flight_before: f64,
    /// Rounds in a row with a short queue.
    short_queue_rounds: u32,
    /// Own pipe before the foreign queue came, bytes.
    pipe_before: f64,
    /// Rounds for which a long foreign queue is believed to be a queue.
    expected_rounds: u32,
    curve: Option<Curve>,
}

/// CUBIC's window (section 4.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Curve {
    pub(super) window: f64,
    /// W_max and cwnd_epoch, bytes; when the epoch began.
    w_max: f64,
    epoch_window: f64,
    since: Time,
}

impl CompetitiveMode {
    /// Bytes; 0 when alone.
    pub(super) fn window(&self) -> f64 {
        self.curve.map_or(0.0, |curve| curve.window)
    }

    /// Whether a long queue that is not ours has stood for some rounds.
    pub(super) fn suspects_competitor(&self) -> bool {
        self.foreign_queue_rounds >= DETECTION_ROUNDS && self.curve.is_none()
    }

    /// A drain probe has shown whether what stands is a queue.
    pub(super) fn on_drain_probe(&mut self, queue: bool) {
        if !queue {
            self.foreign_queue_rounds = 0;
            self.expected_rounds = 0;
        } else if self.suspects_competitor() {
            self.expected_rounds = EXPECTED_ROUNDS;
        }
    }

    /// There is no queue.
    pub(super) fn end(&mut self) {
        self.foreign_queue_rounds = 0;
        self.expected_rounds = 0;
        self.curve = None;
    }

    pub(super) fn on_round(&mut self, round: &Round) {
        if round.long_queue {
            self.short_queue_rounds = 0;
        } else {
            self.short_queue_rounds += 1;
            self.foreign_queue_rounds = 0;
            if self.short_queue_rounds >= EXIT_ROUNDS {
                self.curve = None;
                self.pipe_before = round.pipe;
            }
        }
        self.expected_rounds = self.expected_rounds.saturating_sub(1);
        match &mut self.curve {
            Some(curve) => {
                curve.grow(round.now, round.rtt, round.packet);
                self.expected_rounds = EXPECTED_ROUNDS;
            }
            None if round.long_queue && round.own_queue_gone => {
                self.foreign_queue_rounds += 1;
                if self.foreign_queue_rounds == 1 {
                    self.in_flight_before = round.in_flight;
                }
                if self.foreign_queue_rounds >= DETECTION_ROUNDS && self.expected_rounds > 0 {
                    let w_max = self.pipe_before.max(self.in_flight_before);
                    self.curve = Some(Curve::new(round.now, self.in_flight_before, w_max));
                }
            }
            None => {}
        }
    }

    /// Packets were lost, the newest of which left at `sent`.
    pub(super) fn on_congestion(&mut self, now: Time, sent: Time) {
        // Once per recovery period (RFC 9002, section 7.3.2).
        if let Some(curve) = self.curve.as_mut().filter(|curve| sent > curve.since) {
            curve.decrease(now, BETA);
        }
    }
}

impl Curve {
    pub(super) fn new(now: Time, window: f64, w_max: f64) -> Self {
        Self {
            window,
            w_max,
            epoch_window: window,
            since: now,
        }
    }

    /// Since when the window has grown.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// K: seconds until W_max is reached again.
    pub(super) fn k(&self, packet: f64) -> f64 {
        ((self.w_max - self.epoch_window) / packet / C).cbrt()
    }

    pub(super) fn grow(&mut self, now: Time, rtt: f64, packet: f64) {
        let t = now.since(self.since).as_secs_f64() + rtt;
        let target = C * (t - self.k(packet)).powi(3) * packet + self.w_max;
        self.window = target
            .clamp(self.window, 1.5 * self.window)
            .max(2.0 * packet);
    }

    /// Section 4.7, with fast convergence; `share` of the window is left.
    pub(super) fn decrease(&mut self, now: Time, share: f64) {
        self.w_max = if self.window < self.w_max {
            self.window * (1.0 + share) / 2.0
        } else {
            self.window
        };
        self.window *= share;
        self.epoch_window = self.window;
        self.since = now;
    }
}
