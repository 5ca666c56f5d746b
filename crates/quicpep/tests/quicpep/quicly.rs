//! NewReno and CUBIC as quicly had them in 2021 (`lib/cc-reno.c`, `lib/cc-cubic.c`), for Kosek et al.'s rows: what
//! differs from RFC 9002 and RFC 9438 is written beside it. Never paced.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// CUBIC's C and beta (RFC 8312, section 5).
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Bytes per second at which a window leaves at once.
const UNPACED: u64 = 1_000_000_000;

/// How a window changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// With that share of the window left after a loss: 0.7 (QUICLY_RENO_BETA), where RFC 9002 has 0.5.
    NewReno(f64),
    /// Slow start until a loss, without HyStart++ (RFC 9406).
    Cubic,
}

/// A controller with its initial window, packets.
#[derive(Debug, Clone, Copy)]
pub struct Quicly {
    pub law: Law,
    pub initial_window: u32,
    /// Whether persistent congestion leaves two packets (RFC 9002, section 7.6.2): not in quicly, where that is to be done.
    pub persistent: bool,
}

impl ControllerFactory for Quicly {
    fn build(self: Arc<Self>, _: Instant, mtu: u16) -> Box<dyn Controller> {
        let window = f64::from(self.initial_window) * f64::from(mtu);
        Box::new(State {
            is: *self,
            packet: f64::from(mtu),
            window,
            initial_window: window,
            threshold: f64::INFINITY,
            recovery_from: None,
            acked: 0.0,
            newest: None,
            rtt: 0.0,
            stash: 0.0,
            loss: None,
            k: 0.0,
            w_max: 0.0,
            w_last_max: 0.0,
        })
    }
}

#[derive(Debug, Clone)]
struct State {
    is: Quicly,
    packet: f64,
    window: f64,
    initial_window: f64,
    threshold: f64,
    recovery_from: Option<Instant>,
    /// Bytes of the acknowledgement that is being read, when the newest of its packets was sent, and the smoothed round trip, seconds.
    acked: f64,
    newest: Option<Instant>,
    rtt: f64,
    /// NewReno: bytes acknowledged towards the next packet of growth.
    stash: f64,
    /// CUBIC: the last loss, and what follows from it.
    loss: Option<Instant>,
    k: f64,
    w_max: f64,
    w_last_max: f64,
}

impl State {
    /// `cubic_on_acked` in congestion avoidance: a step for each acknowledgement, whatever it acknowledges.
    fn cubic(&mut self, now: Instant) {
        let Some(loss) = self.loss else { return };
        let t = now.duration_since(loss).as_secs_f64();
        let cubic = |t: f64| C * (t - self.k).powi(3) * self.packet + self.w_max;
        let reno =
            self.w_max * BETA + 3.0 * (1.0 - BETA) / (1.0 + BETA) * (t / self.rtt) * self.packet;
        if cubic(t) < reno {
            self.window = self.window.max(reno);
        } else {
            let target = cubic(t + self.rtt).max(self.window);
            self.window += (target / self.window - 1.0) * self.packet;
        }
    }

    fn least(&self) -> f64 {
        2.0 * self.packet
    }
}

impl Controller for State {
    fn on_ack(
        &mut self,
        _: Instant,
        sent: Instant,
        bytes: u64,
        _: u64,
        _: bool,
        rtt: &RttEstimator,
    ) {
        self.acked += bytes as f64;
        self.newest = self.newest.max(Some(sent));
        self.rtt = rtt.get().as_secs_f64();
    }

    fn on_end_acks(&mut self, now: Instant, _: u64, _: bool, _: Option<u64>) {
        let (bytes, newest) = (std::mem::take(&mut self.acked), self.newest.take());
        if bytes == 0.0 || self.recovery_from.is_some_and(|from| newest <= Some(from)) {
            return;
        }
        // Also while the sender has too little to send.
        if self.window < self.threshold {
            self.window += bytes;
            return;
        }
        match self.is.law {
            Law::NewReno(_) => {
                self.stash += bytes;
                let windows = (self.stash / self.window).floor();
                self.stash -= windows * self.window;
                self.window += windows * self.packet;
            }
            Law::Cubic => self.cubic(now),
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        _: bool,
        _: u64,
        _: u64,
    ) {
        if self.recovery_from.is_none_or(|from| sent > from) {
            self.recovery_from = Some(now);
            let left = match self.is.law {
                Law::NewReno(left) => left,
                Law::Cubic => {
                    let before = std::mem::replace(&mut self.w_last_max, self.window);
                    self.w_max = match self.window < before {
                        true => self.window * (1.0 + BETA) / 2.0,
                        false => self.window,
                    };
                    self.k = (self.w_max / self.packet * (1.0 - BETA) / C).cbrt();
                    self.loss = Some(now);
                    BETA
                }
            };
            self.window = (self.window * left).max(self.least());
            self.threshold = self.window;
        }
        if persistent && self.is.persistent {
            self.window = self.least();
            self.recovery_from = None;
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.packet = f64::from(mtu);
        self.window = self.window.max(self.least());
    }

    fn window(&self) -> u64 {
        whole(self.window)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = Some(UNPACED);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        whole(self.initial_window)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a window of bytes, at least two packets"
)]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}
