//! A contracted rate: the link carries so much, nobody else is on it.
//!
//! The rate is starting point and upper bound. It still gives way to a queue that
//! grows beyond a quarter of the round trip, and to losses beyond the noise of a
//! link (a tenth of a round's packets), both by a tenth per round; a clean round
//! gives a twentieth back.

use bentpipe_units::{Span, Time};

use crate::{Acked, Congestion, Controller, Lost};

const QUEUE: f64 = 0.25;
const NOISE: f64 = 0.10;
const BACK_OFF: f64 = 0.9;
const RECOVER: f64 = 1.05;
/// Never below this share of the contract, or nothing would be measured.
const LEAST: f64 = 0.01;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Fixed {
    packet: f64,
    initial_window: f64,
    contract: f64,
    rate: f64,
    base: Option<Span>,
    initial_rtt: Span,
    round_from: Time,
    least: Option<Span>,
    acked: u64,
    lost: u64,
}

impl Fixed {
    /// Sends `rate` bytes per second.
    pub fn new(packet: u64, window: u64, initial_rtt: Span, rate: u64) -> Self {
        Self {
            packet: packet as f64,
            initial_window: window as f64,
            contract: rate as f64,
            rate: rate as f64,
            base: None,
            initial_rtt,
            round_from: Time::ZERO,
            least: None,
            acked: 0,
            lost: 0,
        }
    }

    fn base(&self) -> f64 {
        self.base.unwrap_or(self.initial_rtt).as_secs_f64()
    }
}

impl Controller for Fixed {
    fn on_acked(&mut self, packet: &Acked) {
        self.acked += packet.bytes;
        let rtt = packet.rtt();
        self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        if packet.sent < self.round_from {
            return;
        }
        let queue = self.least.map_or(0.0, |least| least.as_secs_f64()) - self.base();
        let loss = self.lost as f64 / (self.acked + self.lost) as f64;
        let change = if queue > QUEUE * self.base() || loss > NOISE {
            BACK_OFF
        } else {
            RECOVER
        };
        self.rate = (self.rate * change).clamp(LEAST * self.contract, self.contract);
        self.round_from = packet.now;
        self.least = None;
        self.acked = 0;
        self.lost = 0;
    }

    fn on_lost(&mut self, packet: Lost) {
        self.lost += packet.bytes;
    }

    fn on_congestion(&mut self, event: &Congestion) {
        if event.persistent {
            self.rate = (self.rate / 2.0).max(LEAST * self.contract);
        }
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes as f64;
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a window of bytes"
    )]
    fn window(&self) -> u64 {
        (self.rate * self.base() * (1.0 + QUEUE) + self.initial_window).max(2.0 * self.packet)
            as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate"
    )]
    fn pacing_rate(&self) -> Option<u64> {
        Some(self.rate as u64)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
