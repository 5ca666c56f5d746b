//! One side of a proxy: the controller, windows, acknowledgements and timers of its connections
//! towards clients, or towards the next hop.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_cc::{Choice, ChoiceError};
use bentpipe_quic::acks::Acks;
use bentpipe_quic::transport::{FULL_PACKET, mtu_discovery, over_satellite};
use bentpipe_quic::version2::VERSION_2;
use bentpipe_quic::{Events, Factory, Selection, Settings};
use bentpipe_units::{Bytes, Rate, Span};
use noq::{IdleTimeout, TransportConfig, VarInt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::paths::Lease;

/// A connection on which nothing is heard for this long is over.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(45);
/// Smallest window of a stream, bytes: it holds a page's data whatever the path.
const SMALLEST_STREAM: u64 = 256 * 1024;
/// Windows of one stream that a connection has: so many, less one, may stand still before the
/// others feel it.
const STREAMS_PER_CONNECTION: u64 = 8;
/// What a connection may hold of either kind before it has its part of the memory, bytes.
pub(crate) const LEAST: u64 = 96 * 1024;
/// Datagrams that wait to be sent, bytes; [`Memory`](crate::memory::Memory) may allow fewer.
pub(crate) const DATAGRAMS: usize = 1 << 20;
/// Datagrams that wait to be read, bytes: what comes at once, and what comes before the next hop is reached.
const UNREAD_DATAGRAMS: usize = 128 << 10;

/// One side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Side {
    /// Congestion controller of what is sent to this side: `satellite`, `newreno`, `cubic`,
    /// `cubic-search`, `hybla`, `bbr3`, `fixed` with `contracted_rate`, or `bbr3-library`.
    pub controller: Selection,
    /// Congestion window of a new connection, packets.
    pub initial_window: u32,
    /// Whether what a window holds is spread over a round trip (RFC 9002, section 7.7); `false` for `newreno`, `cubic`
    /// and `cubic-search` only.
    pub pacing: bool,
    /// What may be sent by contract: the rate of the controller `fixed`, for no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub contracted_rate: Option<Rate>,
    /// The fastest that this side may be in either direction; sizes the windows.
    #[schemars(with = "String")]
    pub expected_rate: Rate,
    /// The longest round trip to the peer: sizes the windows, and is the first estimate of
    /// the round trip.
    #[schemars(with = "String")]
    pub expected_rtt: Span,
    /// Packets for which the peer is asked to send one acknowledgement; without it, what
    /// suits rate and round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_packets: Option<u32>,
    /// The longest that the peer is asked to delay an acknowledgement; without it, what suits
    /// the round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ack_delay: Option<Span>,
    /// What one stream may hold that is not read; without it, two round trips of data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub stream_window: Option<Bytes>,
    /// Streams of a kind that the peer may have open.
    pub streams: u32,
    /// QUIC version: 1 (RFC 9000) or 2 (RFC 9369).
    pub version: u32,
    /// Where controllers that probe at random begin; drawn by whoever starts the proxy.
    #[serde(skip)]
    pub seed: u64,
    /// Where what connections do is written (qlog).
    #[serde(skip)]
    pub events: Events,
}

impl Default for Side {
    fn default() -> Self {
        Self {
            controller: Choice::Satellite.into(),
            initial_window: 32,
            pacing: true,
            contracted_rate: None,
            expected_rate: Rate::from_bits_per_second(250_000_000),
            expected_rtt: Span::from_millis(650),
            ack_packets: None,
            ack_delay: None,
            stream_window: None,
            streams: 128,
            version: 1,
            seed: 0,
            events: Events::default(),
        }
    }
}

/// Why a side cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SideError {
    /// A field's value.
    #[error("{field} = {value:?}: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        why: &'static str,
    },
    /// The controller's parameters.
    #[error(transparent)]
    Controller(#[from] ChoiceError),
}

impl Side {
    /// A side without a satellite: a network of `rate` with a round trip of `rtt`, and what
    /// most servers use there (CUBIC, a window of 10 packets).
    pub fn ground(rate: Rate, rtt: Span) -> Self {
        Self {
            controller: Choice::Cubic.into(),
            initial_window: 10,
            expected_rate: rate,
            expected_rtt: rtt,
            ..Self::default()
        }
    }

    /// Checks what cannot be seen in one field alone.
    pub fn check(&self) -> Result<(), SideError> {
        let wrong = |field, value: String, why| Err(SideError::Field { field, value, why });
        if self.expected_rate.bits_per_second() == 0 {
            let value = self.expected_rate.to_string();
            return wrong(
                "expected_rate",
                value,
                "give the fastest that it may be, like \"50 Mbit/s\"",
            );
        }
        let rtt = self.expected_rtt.as_duration();
        if !(Duration::from_micros(100)..=Duration::from_secs(10)).contains(&rtt) {
            let value = self.expected_rtt.to_string();
            return wrong(
                "expected_rtt",
                value,
                "give a round trip from 0.1 ms to 10 s, like \"650 ms\"",
            );
        }
        if self.streams == 0 || self.streams > 65_536 {
            return wrong("streams", self.streams.to_string(), "give 1 to 65536");
        }
        if !(1..=2).contains(&self.version) {
            let value = self.version.to_string();
            return wrong("version", value, "give 1 (RFC 9000) or 2 (RFC 9369)");
        }
        if self.ack_packets == Some(0) {
            return wrong("ack_packets", "0".into(), "give at least 1 packet");
        }
        self.settings(0).check()?;
        Ok(())
    }

    /// The version's number in packets.
    pub fn version_number(&self) -> u32 {
        match self.version {
            2 => VERSION_2,
            version => version,
        }
    }

    /// The most that one stream may hold unread, bytes.
    pub fn stream_window(&self) -> u64 {
        let two = self.expected_rtt + self.expected_rtt;
        let product = || self.expected_rate.bytes_in(two).as_u64();
        (self.stream_window.map_or_else(product, Bytes::as_u64)).clamp(SMALLEST_STREAM, 1 << 40)
    }

    /// The most that a connection may hold unread, bytes.
    pub fn receive_window(&self) -> u64 {
        STREAMS_PER_CONNECTION * self.stream_window()
    }

    /// The most that a connection may hold that is not acknowledged, bytes.
    pub fn send_window(&self) -> u64 {
        self.stream_window()
    }

    /// As the QUIC library wants it, for a connection with that use of the path.
    pub fn quic(&self, lease: &Lease) -> TransportConfig {
        let (memory, settings) = (lease.memory().clone(), self.settings(lease.number()));
        let varint = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
        let mut acks = Acks::over(self.expected_rate, self.expected_rtt, FULL_PACKET);
        acks.packets = self.ack_packets.unwrap_or(acks.packets);
        acks.within = self.ack_delay.unwrap_or(acks.within);
        let streams = VarInt::from_u32(self.streams);
        let mut quic = over_satellite(&settings, acks, memory.clone());
        let factory = Factory::new(settings, memory).together(lease.together().cloned());
        quic.congestion_controller_factory(Arc::new(factory));
        quic.max_concurrent_bidi_streams(streams)
            .max_concurrent_uni_streams(streams)
            .stream_receive_window(varint(self.stream_window()))
            // Until the connection is joined to another and has its part of the memory.
            .receive_window(varint(LEAST))
            .send_window(LEAST)
            .send_fairness(true)
            .mtu_discovery_config(Some(mtu_discovery(FULL_PACKET)))
            .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok())
            .datagram_receive_buffer_size(Some(UNREAD_DATAGRAMS))
            .datagram_send_buffer_size(DATAGRAMS);
        self.events.of(&mut quic);
        quic
    }

    fn settings(&self, number: u64) -> Settings {
        Settings {
            initial_window: self.initial_window,
            initial_rtt: self.expected_rtt,
            contracted_rate: self.contracted_rate,
            pacing: self.pacing,
            // 2^64 divided by the golden ratio spreads neighbouring numbers.
            seed: self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..Settings::new(self.controller)
        }
    }
}
