//! CUBIC (RFC 9438) with a slow start that ends before the queue is full.

mod hystart;
mod search;

use bentpipe_units::{Span, Time};

use crate::convert::whole;
use crate::{Acked, AcksDone, Congestion, Controller, Sent};

/// Section 5: C, packets per second cubed.
const C: f64 = 0.4;
/// Section 4.6: multiplicative decrease, share of the window that is left.
const BETA: f64 = 0.7;
/// Section 4.3: additive increase that makes a Reno flow with this decrease fair, 3 (1 - beta) / (1 + beta).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// What ends slow start besides a loss.
#[derive(Debug, Clone)]
pub enum Exit {
    /// RFC 9406.
    HyStart(hystart::HyStart),
    /// draft-chung-ccwg-search.
    Search(search::Search),
}

impl Exit {
    /// HyStart++ (RFC 9406).
    pub fn hystart() -> Self {
        Self::HyStart(hystart::HyStart::default())
    }

    /// SEARCH (draft-chung-ccwg-search).
    pub fn search() -> Self {
        Self::Search(search::Search::default())
    }
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Cubic {
    packet: f64,
    window: f64,
    threshold: f64,
    recovery_from: Option<Time>,
    exit: Exit,
    epoch: Option<Epoch>,
    /// W_max of the last decrease, bytes; 0 before the first, and after a timeout.
    w_max: f64,
    /// cwnd_prior: the window before the last decrease, bytes; 0 before the first.
    prior: f64,
    /// What to put back if the last congestion was none (section 4.9).
    undo: Option<Undo>,
    /// Time spent with too little to send does not count (section 5.8).
    limited_since: Option<Time>,
}

/// State before a decrease.
#[derive(Debug, Clone, Copy)]
struct Undo {
    window: f64,
    threshold: f64,
    w_max: f64,
    prior: f64,
}

/// A congestion avoidance stage (section 4.2).
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Time,
    /// K: seconds until W_max is reached again.
    k: f64,
    /// W_max, packets.
    w_max: f64,
    /// W_est: what Reno would have, packets (section 4.3).
    reno: f64,
}

impl Cubic {
    /// Starts with `window` bytes, in slow start.
    pub fn new(packet: u64, window: u64, exit: Exit) -> Self {
        Self {
            packet: packet as f64,
            window: (window as f64).max(2.0 * packet as f64),
            threshold: f64::INFINITY,
            recovery_from: None,
            exit,
            epoch: None,
            w_max: 0.0,
            prior: 0.0,
            undo: None,
            limited_since: None,
        }
    }

    fn avoid(&mut self, packet: &Acked) {
        let window = self.window / self.packet;
        let w_max = self.w_max / self.packet;
        let epoch = self.epoch.get_or_insert_with(|| {
            // Section 4.2: K = cbrt((W_max - cwnd_epoch) / C); sections 4.8 and 4.10:
            // after a timeout, and without a decrease before it, W_max is the window and K is 0.
            let w_max = w_max.max(window);
            Epoch {
                start: packet.now,
                k: ((w_max - window) / C).cbrt(),
                w_max,
                reno: window,
            }
        });
        let t = packet.now.since(epoch.start).as_secs_f64();
        let cubic = |t: f64| C * (t - epoch.k).powi(3) + epoch.w_max;
        // Section 4.3: as fast as Reno once W_est has reached cwnd_prior.
        let alpha = if epoch.reno >= self.prior / self.packet {
            1.0
        } else {
            ALPHA
        };
        epoch.reno += alpha * (packet.bytes as f64 / self.packet) / window;
        if cubic(t) < epoch.reno {
            self.window = self.window.max(epoch.reno * self.packet);
            return;
        }
        // Section 4.4: towards the window one round trip ahead, at most half as much again.
        let target = cubic(t + packet.smoothed_rtt.as_secs_f64()).clamp(window, 1.5 * window);
        self.window += (target - window) / window * packet.bytes as f64;
    }

    fn leave_slow_start(&mut self) {
        self.threshold = self.window;
    }
}

impl Controller for Cubic {
    fn on_sent(&mut self, packet: Sent) {
        if let Exit::Search(search) = &mut self.exit {
            search.on_sent(packet.bytes);
        }
        if let (Some(since), Some(epoch)) = (self.limited_since.take(), &mut self.epoch) {
            epoch.start = epoch.start + packet.now.since(since);
        }
    }

    fn on_acked(&mut self, packet: &Acked) {
        let slow = self.window < self.threshold;
        if slow && let Exit::Search(search) = &mut self.exit {
            search.on_acked(packet);
        }
        if packet.app_limited || self.recovery_from.is_some_and(|from| packet.sent <= from) {
            return;
        }
        if !slow {
            self.avoid(packet);
            return;
        }
        match &mut self.exit {
            // Both are for the first slow start only.
            _ if self.threshold.is_finite() => self.window += packet.bytes as f64,
            Exit::HyStart(hystart) => {
                self.window += packet.bytes as f64 / hystart.on_acked(packet);
                if hystart.done() {
                    self.leave_slow_start();
                }
            }
            Exit::Search(search) if search.draining() => {}
            Exit::Search(_) => self.window += packet.bytes as f64,
        }
    }

    fn on_acks_done(&mut self, end: AcksDone) {
        if self.threshold.is_infinite()
            && let Exit::Search(search) = &mut self.exit
            && let Some((window, drained)) = search.drained(end.in_flight, self.packet)
        {
            self.window = window;
            if drained {
                self.leave_slow_start();
            }
        }
        if end.app_limited && end.in_flight == 0 {
            self.limited_since.get_or_insert(end.now);
        }
    }

    fn on_congestion(&mut self, event: &Congestion) {
        // Once per recovery period (RFC 9002, section 7.3.2), for losses and marks alike.
        if self.recovery_from.is_none_or(|from| event.sent > from) {
            self.undo = Some(Undo {
                window: self.window,
                threshold: self.threshold,
                w_max: self.w_max,
                prior: self.prior,
            });
            self.recovery_from = Some(event.now);
            // Section 4.7, fast convergence: a flow that did not reach its old W_max makes room.
            self.w_max = if self.window < self.w_max {
                self.window * (1.0 + BETA) / 2.0
            } else {
                self.window
            };
            // Section 4.6.
            self.prior = self.window;
            self.threshold = (self.window * BETA).max(2.0 * self.packet);
            self.window = self.threshold;
            self.epoch = None;
        }
        if event.persistent {
            // Section 4.8: as after a timeout. The next stage begins with K = 0 and its own
            // window for W_max.
            self.window = 2.0 * self.packet;
            self.w_max = 0.0;
            self.recovery_from = None;
            self.epoch = None;
        }
    }

    fn on_spurious_congestion(&mut self) {
        if let Some(undo) = self.undo.take()
            && undo.window > self.window
        {
            self.window = undo.window;
            self.threshold = undo.threshold;
            self.w_max = undo.w_max;
            self.prior = undo.prior;
            self.recovery_from = None;
            self.epoch = None;
        }
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes as f64;
        self.window = self.window.max(2.0 * self.packet);
    }

    fn window(&self) -> u64 {
        whole(self.window)
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        Some(whole(self.threshold))
    }

    fn resume_at(&mut self, window: u64, threshold: Option<u64>) {
        self.window = (window as f64).max(2.0 * self.packet);
        self.threshold = threshold.map_or(self.threshold, |bytes| bytes as f64);
        self.epoch = None;
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// Least of two spans where one may be missing.
fn least(known: Option<Span>, sample: Span) -> Option<Span> {
    Some(known.map_or(sample, |known| known.min(sample)))
}
