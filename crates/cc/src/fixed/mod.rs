//! Contracted rate: the link carries so much, nobody else is on it.
//!
//! The rate is starting point and upper bound. It still gives way to a queue that
//! grows beyond a quarter of the round trip, and to losses beyond those of a
//! link (a tenth of a round's packets), both by a tenth per round; a clean round
//! gives a twentieth back.

use bentpipe_units::{Span, Time};

use crate::convert::whole;
use crate::{Acked, Congestion, Controller, Lost};

/// Standing queue beyond which the rate is reduced, share of the base round trip. Chosen: a
/// quarter of the queue of one bandwidth-delay product.
const QUEUE: f64 = 0.25;
/// Share of a round's bytes that a link may lose without congestion. Chosen.
const LINK_LOSS: f64 = 0.10;
/// Share of the rate that is left after a round with more. Chosen, like the next two.
const DECREASE: f64 = 0.9;
/// Growth after a round with less: half as fast as the decrease.
const INCREASE: f64 = 1.05;
/// Least share of the contract: with less, nothing would be measured.
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
        let change = if queue > QUEUE * self.base() || loss > LINK_LOSS {
            DECREASE
        } else {
            INCREASE
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

    fn window(&self) -> u64 {
        let pipe = self.rate * self.base();
        whole((pipe * (1.0 + QUEUE) + self.initial_window).max(2.0 * self.packet))
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(whole(self.rate))
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
