//! The QUIC library's transport parameters for a satellite tunnel, in one place:
//! terminal, gateway and simulator use the same.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_units::{Bytes, Rate, Span};
use noq_proto::{AckFrequencyConfig, TransportConfig, VarInt};

use crate::{Factory, PathMemory, Settings};

/// What a connection is set up with.
#[derive(Debug, Clone, PartialEq)]
pub struct Transport {
    /// Controller and its parameters.
    pub settings: Settings,
    /// The fastest that either end sends: sizes the windows.
    pub rate: Rate,
    /// UDP payload of a full packet. 1472 fills an IPv4 packet of 1500 bytes.
    pub packet: u16,
    /// Packets that the peer may receive beyond the first before it acknowledges.
    ///
    /// One acknowledgement for ten packets is 64 bytes for 15,000: 0.43 %. A link of
    /// 50/0.5 Mbit/s has 1 % for the way back.
    pub ack_after: u32,
}

impl Transport {
    /// For `settings` on a link of up to 50 Mbit/s with 1500-byte packets.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            rate: Rate::from_bits_per_second(50_000_000),
            packet: 1472,
            ack_after: 9,
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
        let mut config = TransportConfig::default();
        let window = self.window().as_u64();
        let receive = VarInt::try_from(window).unwrap_or(VarInt::MAX);
        let mut acks = AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(VarInt::from_u32(self.ack_after))
            // What the peer offers, 25 ms, is 4 % of a GEO round trip.
            .max_ack_delay(Some(Duration::from_millis(25)))
            // A gap is told at once; with one queue in the path it is a loss.
            .reordering_threshold(VarInt::from_u32(2));
        config
            .initial_rtt(duration(self.settings.initial_rtt))
            .initial_mtu(self.packet)
            .mtu_discovery_config(None)
            .stream_receive_window(receive)
            .receive_window(receive)
            .send_window(window)
            // RFC 9002, section 6.1: satellites do not reorder, so the recommended
            // thresholds detect a loss three packets after it.
            .packet_threshold(3)
            .time_threshold(9.0 / 8.0)
            .ack_frequency_config(Some(acks))
            .enable_segmentation_offload(true)
            .congestion_controller_factory(Arc::new(Factory::new(self.settings.clone(), memory)));
        config
    }
}

fn duration(span: Span) -> Duration {
    span.as_duration()
}
