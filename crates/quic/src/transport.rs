//! Transport parameters of the QUIC library for a satellite, in one place: terminal, gateway and
//! simulator ask the same of it.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_cc::PathMemory;
use bentpipe_units::{Bytes, Rate, Span};
use noq_proto::{AckFrequencyConfig, MtuDiscoveryConfig, TransportConfig, VarInt};

use crate::acks::Acks;
use crate::controller::Factory;
use crate::selection::{Selection, Settings};

/// UDP payload that fills an IPv4 packet of 1500 bytes.
pub const FULL_PACKET: u16 = 1472;
/// The QUIC library (1.3.0) takes four losses that one acknowledgement shows for a path that has become
/// narrower, and goes on with 1200 bytes. Queues that overflow look the same, so it is to look again soon: that
/// costs a packet a round trip.
const MTU_SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// Parameters of a connection that carries one bulk flow at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionParameters {
    /// Controller and its parameters.
    pub settings: Settings,
    /// The fastest that either end sends: sizes the windows.
    pub rate: Rate,
    /// UDP payload of a full packet.
    pub packet: u16,
    /// Packets that the peer may receive beyond the first before it acknowledges;
    /// without it [`Acks`] says so.
    pub ack_after: Option<u32>,
}

impl ConnectionParameters {
    /// For `settings` on a link of up to 50 Mbit/s with 1500-byte packets.
    pub fn new<C: Copy + Into<Selection>>(settings: bentpipe_cc::Settings<C>) -> Self {
        let selection = settings.controller.into();
        Self {
            settings: settings.with_controller(selection),
            rate: Rate::from_bits_per_second(50_000_000),
            packet: FULL_PACKET,
            ack_after: None,
        }
    }

    /// Twice two round trips of data: one is on its way, one waits behind a loss for its
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
        let mut acks = Acks::over(self.rate, first_rtt(&self.settings, &memory), self.packet);
        if let Some(after) = self.ack_after {
            acks.packets = after.saturating_add(1);
        }
        let mut config = over_satellite(&self.settings, acks, memory);
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
/// controller, acknowledgements, loss detection, first timeouts.
///
/// Multipath stays off, as the library has it (`max_concurrent_multipath_paths`), so that a connection has
/// one path, number 0, for good: when an address changes that path goes on from it, with a new round trip
/// and controller, and its counters go on. Figures of path 0 are those of the path in use.
pub fn over_satellite(settings: &Settings, acks: Acks, memory: PathMemory) -> TransportConfig {
    let rtt = first_rtt(settings, &memory);
    let mut frequency = AckFrequencyConfig::default();
    frequency
        // The library counts the packets before the one that is acknowledged at once.
        .ack_eliciting_threshold(VarInt::from_u32(acks.packets.saturating_sub(1)))
        .max_ack_delay(Some(acks.within.as_duration()))
        // A gap is told at once; with one queue in the path it is a loss.
        .reordering_threshold(VarInt::from_u32(2));
    let mut config = TransportConfig::default();
    config
        .initial_rtt(rtt.as_duration())
        // RFC 9002, section 6.1: satellites do not reorder, so the recommended
        // thresholds detect a loss three packets after it.
        .packet_threshold(3)
        .time_threshold(9.0 / 8.0)
        .ack_frequency_config(Some(frequency))
        .enable_segmentation_offload(true)
        .congestion_controller_factory(Arc::new(Factory::new(settings.clone(), memory)));
    config
}

/// How a connection finds out whether the path carries packets of `most` bytes (RFC 8899).
pub fn mtu_discovery(most: u16) -> MtuDiscoveryConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery
        .upper_bound(most)
        .black_hole_cooldown(MTU_SEARCH_PAUSE);
    discovery
}

/// Where `memory` knows the path, its round trip is the first estimate (RFC 9002,
/// section 6.2.2).
fn first_rtt(settings: &Settings, memory: &PathMemory) -> Span {
    memory.get().map_or(settings.initial_rtt, |path| path.rtt)
}
