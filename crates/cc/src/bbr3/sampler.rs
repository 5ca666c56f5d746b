//! Delivery rate samples (section 4.1): what was delivered between the moment a packet
//! left and the moment its acknowledgement came, over the longer of the time in which
//! it was sent and the time in which it was acknowledged.

use std::collections::BTreeMap;

use bentpipe_units::{Span, Time};

use crate::{Acked, Sent};

/// Per-packet state (section 4.1.1.2), as it was when the packet left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    sent: Time,
    pub(super) bytes: f64,
    /// P.delivered, P.delivered_time, P.first_send_time.
    delivered: f64,
    delivered_time: Time,
    first_send_time: Time,
    /// P.lost.
    pub(super) lost: f64,
    /// P.tx_in_flight, this packet included.
    pub(super) tx_in_flight: f64,
    pub(super) app_limited: bool,
}

/// A rate sample, RS (section 4.1.1.3).
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// RS.delivery_rate, bytes per second; 0 where there is none.
    pub(super) rate: f64,
    /// RS.delivered and RS.prior_delivered, bytes.
    pub(super) delivered: f64,
    pub(super) prior_delivered: f64,
    /// RS.newly_acked, bytes.
    pub(super) newly_acked: f64,
    /// RS.lost: bytes lost since the packet left.
    pub(super) lost: f64,
    pub(super) tx_in_flight: f64,
    pub(super) app_limited: bool,
    pub(super) rtt: Span,
}

/// Per-connection state, C (section 4.1.1.1).
#[derive(Debug, Clone, Default)]
pub(super) struct Sampler {
    pub(super) delivered: f64,
    delivered_time: Time,
    first_send_time: Time,
    pub(super) lost: f64,
    pub(super) in_flight: f64,
    /// C.app_limited: samples are limited until so much has been delivered.
    app_limited: Option<f64>,
    packets: BTreeMap<u64, Packet>,
    /// The newest packet of the acknowledgements of this frame, and their bytes.
    newest: Option<(Packet, Span)>,
    newly_acked: f64,
}

impl Sampler {
    pub(super) fn is_app_limited(&self) -> bool {
        self.app_limited.is_some()
    }

    /// MarkConnectionAppLimited().
    pub(super) fn mark_app_limited(&mut self) {
        self.app_limited = Some((self.delivered + self.in_flight).max(1.0));
    }

    /// Section 4.1.2.2.
    pub(super) fn on_sent(&mut self, packet: Sent) {
        if self.in_flight == 0.0 {
            self.first_send_time = packet.now;
            self.delivered_time = packet.now;
        }
        let bytes = packet.bytes as f64;
        self.in_flight += bytes;
        let state = Packet {
            sent: packet.now,
            bytes,
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            first_send_time: self.first_send_time,
            lost: self.lost,
            tx_in_flight: self.in_flight,
            app_limited: self.is_app_limited(),
        };
        // Packet number spaces share their first numbers; the later packet is the one to sample.
        self.packets.insert(packet.number, state);
    }

    /// Section 4.1.2.3, UpdateRateSample().
    pub(super) fn on_acked(&mut self, acked: &Acked) {
        let bytes = acked.bytes as f64;
        self.delivered += bytes;
        self.delivered_time = acked.now;
        self.newly_acked += bytes;
        self.in_flight = (self.in_flight - bytes).max(0.0);
        let Some(packet) = self.packets.remove(&acked.number) else {
            return;
        };
        let newer = |(newest, _): (Packet, Span)| {
            packet.delivered > newest.delivered
                || (packet.delivered == newest.delivered && packet.sent >= newest.sent)
        };
        if self.newest.is_none_or(newer) {
            self.newest = Some((packet, acked.rtt()));
            self.first_send_time = packet.sent;
        }
    }

    /// The packet as it was when it left.
    pub(super) fn on_lost(&mut self, number: u64, bytes: u64) -> Option<Packet> {
        self.lost += bytes as f64;
        self.in_flight = (self.in_flight - bytes as f64).max(0.0);
        self.packets.remove(&number)
    }

    /// Bytes of which it will not be known whether they arrived.
    pub(super) fn on_forgotten(&mut self, bytes: u64) {
        self.in_flight = (self.in_flight - bytes as f64).max(0.0);
    }

    /// GenerateRateSample(), once for each ACK frame.
    pub(super) fn sample(&mut self, min_rtt: Span) -> Option<Sample> {
        let newly_acked = std::mem::take(&mut self.newly_acked);
        self.app_limited = self.app_limited.filter(|until| self.delivered <= *until);
        let (packet, rtt) = self.newest.take()?;
        let send_elapsed = packet.sent.since(packet.first_send_time);
        let ack_elapsed = self.delivered_time.since(packet.delivered_time);
        let interval = send_elapsed.max(ack_elapsed);
        let delivered = self.delivered - packet.delivered;
        // Shorter than the least round trip: acknowledgements came compressed.
        let plausible = interval >= min_rtt && interval > Span::ZERO;
        Some(Sample {
            rate: if plausible {
                delivered / interval.as_secs_f64()
            } else {
                0.0
            },
            delivered,
            prior_delivered: packet.delivered,
            newly_acked,
            lost: self.lost - packet.lost,
            tx_in_flight: packet.tx_in_flight,
            app_limited: packet.app_limited,
            rtt,
        })
    }
}
