//! The QUIC library set up for a satellite, in one place: terminal, gateway and
//! simulator ask the same of it.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_units::{Bytes, Rate};
use noq_proto::{AckFrequencyConfig, TransportConfig, VarInt};

use crate::{Factory, PathMemory, Settings};

/// Packets that the peer may receive beyond the first before it acknowledges.
///
/// One acknowledgement for ten packets is 64 bytes for 15,000: 0.43 %. A link of
/// 50/0.5 Mbit/s has 1 % for the way back.
pub const ACK_AFTER: u32 = 9;

/// UDP payload that fills an IPv4 packet of 1500 bytes.
pub const FULL_PACKET: u16 = 1472;

/// What a connection that carries one bulk flow at a time is set up with.
#[derive(Debug, Clone, PartialEq)]
pub struct Transport {
    /// Controller and its parameters.
    pub settings: Settings,
    /// The fastest that either end sends: sizes the windows.
    pub rate: Rate,
    /// UDP payload of a full packet.
    pub packet: u16,
    /// Packets that the peer may receive beyond the first before it acknowledges.
    pub ack_after: u32,
}

impl Transport {
    /// For `settings` on a link of up to 50 Mbit/s with 1500-byte packets.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            rate: Rate::from_bits_per_second(50_000_000),
            packet: FULL_PACKET,
            ack_after: ACK_AFTER,
        }
    }

    /// Two round trips of data: one on its way, one that waits behind a loss for its
    /// repair. At least 1 MiB.
    pub fn window(&self) -> Bytes {
        let rtt = self.settings.initial_rtt;
        let two = self.rate.bytes_in(rtt + rtt).as_u64();
        Bytes::new((2 * two).max(1 << 20))
    }

    /// The same in the library's terms. Connections to one peer share `memory`.
    pub fn config(&self, memory: PathMemory) -> TransportConfig {
        let window = self.window().as_u64();
        let receive = VarInt::try_from(window).unwrap_or(VarInt::MAX);
        let mut config = over_satellite(&self.settings, self.ack_after, memory);
        config
            .initial_mtu(self.packet)
            .mtu_discovery_config(None)
            .stream_receive_window(receive)
            .receive_window(receive)
            .send_window(window);
        config
    }
}

/// What every connection over a satellite asks of the library, whatever its windows:
/// controller, acknowledgements, loss detection, first timeouts. Where `memory` knows
/// the path, its round trip is the first estimate (RFC 9002, section 6.2.2).
pub fn over_satellite(settings: &Settings, ack_after: u32, memory: PathMemory) -> TransportConfig {
    let rtt = memory.get().map_or(settings.initial_rtt, |path| path.rtt);
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(ack_after))
        // What the peer offers, 25 ms, is 4 % of a GEO round trip.
        .max_ack_delay(Some(Duration::from_millis(25)))
        // A gap is told at once; with one queue in the path it is a loss.
        .reordering_threshold(VarInt::from_u32(2));
    let mut config = TransportConfig::default();
    config
        .initial_rtt(rtt.as_duration())
        // RFC 9002, section 6.1: satellites do not reorder, so the recommended
        // thresholds detect a loss three packets after it.
        .packet_threshold(3)
        .time_threshold(9.0 / 8.0)
        .ack_frequency_config(Some(acks))
        .enable_segmentation_offload(true)
        .congestion_controller_factory(Arc::new(Factory::new(settings.clone(), memory)));
    config
}
