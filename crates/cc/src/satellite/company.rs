//! In company: someone else keeps the queue full.
//!
//! A flow that gives way to every queue is left with nothing beside one that fills
//! it. When the queue stays long although the own share of it is gone, the window
//! follows CUBIC's curve (RFC 9438) until the queue is short again. That curve gives
//! half to each of the two, because both take the same losses.

use bentpipe_units::Time;

/// Rounds with a long queue that is not our own before we want to know whether it is one.
const PATIENCE: u32 = 2;
/// Rounds with a short queue before we believe that it has left: a loss may empty a short
/// queue for a round, and BBR leaves for some every five seconds.
const FAREWELL: u32 = 16;
/// Rounds in which company that was there is expected again.
const MEMORY: u32 = 20;
/// RFC 9438, section 4.6.
const BETA: f64 = 0.7;
/// RFC 9438, section 5: packets per second cubed.
const C: f64 = 0.4;

/// A round trip as it ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Time,
    /// Whether the standing queue is long.
    pub(super) long: bool,
    /// Whether our own share of it is gone.
    pub(super) innocent: bool,
    pub(super) in_flight: f64,
    /// Bytes that fill the pipe at our rate.
    pub(super) pipe: f64,
    pub(super) rtt: f64,
    pub(super) packet: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Company {
    strange: u32,
    /// In flight when it came.
    had: f64,
    quiet: u32,
    /// Our pipe before the strange queue came.
    usual: f64,
    /// For so many rounds more, a strange queue is believed to be one.
    believed: u32,
    curve: Option<Curve>,
}

/// CUBIC's window (section 4.2).
#[derive(Debug, Clone, Copy)]
struct Curve {
    window: f64,
    /// W_max and cwnd_epoch, bytes; when the epoch began.
    most: f64,
    from: f64,
    since: Time,
    /// Whether this round has had its decrease.
    cut: bool,
    now: Time,
}

impl Company {
    /// Bytes; 0 when alone.
    pub(super) fn window(&self) -> f64 {
        self.curve.map_or(0.0, |curve| curve.window)
    }

    /// Whether a long queue that is not ours has stood for some rounds.
    pub(super) fn is_suspected(&self) -> bool {
        self.strange >= PATIENCE && self.curve.is_none()
    }

    /// An ebb has shown whether what stands is a queue.
    pub(super) fn on_verdict(&mut self, queue: bool) {
        if !queue {
            self.strange = 0;
            self.believed = 0;
        } else if self.is_suspected() {
            self.believed = MEMORY;
        }
    }

    pub(super) fn on_round(&mut self, round: &Round) {
        if round.long {
            self.quiet = 0;
        } else {
            self.quiet += 1;
            self.strange = 0;
            if self.quiet >= FAREWELL {
                self.curve = None;
                self.usual = round.pipe;
            }
        }
        self.believed = self.believed.saturating_sub(1);
        match &mut self.curve {
            Some(curve) => {
                curve.grow(round);
                self.believed = MEMORY;
            }
            None if round.long && round.innocent => {
                self.strange += 1;
                if self.strange == 1 {
                    self.had = round.in_flight;
                }
                if self.strange >= PATIENCE && self.believed > 0 {
                    self.curve = Some(Curve {
                        window: self.had,
                        most: self.usual.max(self.had),
                        from: self.had,
                        since: round.now,
                        cut: false,
                        now: round.now,
                    });
                }
            }
            None => {}
        }
    }

    /// Packets were lost.
    pub(super) fn on_congestion(&mut self) {
        if let Some(curve) = self.curve.as_mut().filter(|curve| !curve.cut) {
            // Section 4.7, with fast convergence.
            curve.most = if curve.window < curve.most {
                curve.window * (1.0 + BETA) / 2.0
            } else {
                curve.window
            };
            curve.window *= BETA;
            curve.from = curve.window;
            curve.since = curve.now;
            curve.cut = true;
        }
    }
}

impl Curve {
    fn grow(&mut self, round: &Round) {
        self.now = round.now;
        if self.cut {
            self.cut = false;
            self.since = round.now;
            return;
        }
        let (most, from) = (self.most / round.packet, self.from / round.packet);
        let k = ((most - from) / C).cbrt();
        let t = round.now.since(self.since).as_secs_f64() + round.rtt;
        let target = (C * (t - k).powi(3) + most) * round.packet;
        self.window = target
            .clamp(self.window, 1.5 * self.window)
            .max(2.0 * round.packet);
    }
}
