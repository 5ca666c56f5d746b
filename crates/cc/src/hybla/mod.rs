//! TCP Hybla (Caini and Firrincieli, 2004): the growth of a terrestrial connection
//! at any round-trip time, with a bound and with pacing.

use bentpipe_units::{Span, Time};

use crate::convert::whole;
use crate::{Acked, Congestion, Controller};

/// RTT0, the round trip whose growth is copied, seconds (section 3 of the paper).
const REFERENCE_RTT: f64 = 0.025;
/// Growth per acknowledged packet in slow start, packets. The paper's is 2^rho - 1: at rho = 24
/// 16 million. No round trip more than trebles the window here.
const MAX_GROWTH: f64 = 2.0;
/// Share of the window that is left after a loss: NewReno's, as in the paper.
const LOSS_REDUCTION: f64 = 0.5;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Hybla {
    packet: f64,
    window: f64,
    threshold: f64,
    base: Option<Span>,
    initial_rtt: Span,
    smoothed: Span,
    recovery_from: Option<Time>,
}

impl Hybla {
    /// Starts with `window` bytes; `expected` bytes per second bound slow start, as
    /// the paper asks for an initial threshold from an estimate of the bandwidth.
    pub fn new(packet: u64, window: u64, initial_rtt: Span, expected: Option<u64>) -> Self {
        Self {
            packet: packet as f64,
            window: window as f64,
            threshold: expected.map_or(f64::INFINITY, |rate| {
                rate as f64 * initial_rtt.as_secs_f64()
            }),
            base: None,
            initial_rtt,
            smoothed: initial_rtt,
            recovery_from: None,
        }
    }

    /// rho, the round trip in units of the reference, from the least one seen.
    fn rho(&self) -> f64 {
        (self.base.unwrap_or(self.initial_rtt).as_secs_f64() / REFERENCE_RTT).max(1.0)
    }
}

impl Controller for Hybla {
    fn on_acked(&mut self, packet: &Acked) {
        self.base = Some(
            self.base
                .map_or(packet.rtt(), |base| base.min(packet.rtt())),
        );
        self.smoothed = packet.smoothed_rtt;
        if packet.app_limited || self.recovery_from.is_some_and(|from| packet.sent <= from) {
            return;
        }
        let rho = self.rho();
        let bytes = packet.bytes as f64;
        if self.window < self.threshold {
            let growth = (rho.exp2() - 1.0).min(MAX_GROWTH);
            self.window = (self.window + growth * bytes).min(self.threshold.max(self.window));
        } else {
            // rho squared packets per window.
            self.window += rho * rho * self.packet * bytes / self.window;
        }
    }

    fn on_congestion(&mut self, event: &Congestion) {
        // As NewReno's (RFC 9002, appendices B.6 and B.8).
        if self.recovery_from.is_none_or(|from| event.sent > from) {
            self.recovery_from = Some(event.now);
            self.threshold = (self.window * LOSS_REDUCTION).max(2.0 * self.packet);
            self.window = self.threshold;
        }
        if event.persistent {
            self.window = 2.0 * self.packet;
            self.recovery_from = None;
        }
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes as f64;
        self.window = self.window.max(2.0 * self.packet);
    }

    fn window(&self) -> u64 {
        whole(self.window.max(2.0 * self.packet))
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(whole(
            1.25 * self.window / self.smoothed.as_secs_f64().max(1e-3),
        ))
    }

    fn resume_at(&mut self, window: u64, threshold: Option<u64>) {
        self.window = (window as f64).max(2.0 * self.packet);
        self.threshold = threshold.map_or(self.threshold, |bytes| bytes as f64);
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
