//! How one end's QUIC is set up; the other end has its own.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_cc::{Choice, ChoiceError, PathMemory};
use bentpipe_quic::acks::Acks;
use bentpipe_quic::transport::{FULL_PACKET, mtu_discovery, over_satellite};
use bentpipe_quic::version2::VERSION_2;
use bentpipe_quic::{Events, Factory, Selection, Settings};
use bentpipe_units::{Bytes, Rate, Span};
use noq::{TransportConfig, VarInt};

use crate::protocol::IDLE;

/// Streams of each kind that a peer may have open.
pub const STREAMS: u32 = 256;
/// The least UDP payload that QUIC may be asked to fill (RFC 9000, section 14).
const LEAST_PACKET: u16 = 1200;
/// Who only receives, and whose NAT forgets it, is found again when it has said something: after as long as a terminal
/// waits.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// What the draft allows for a threshold, and more than anybody can mean.
const MOST_ACK_THRESHOLD: u32 = 10_000;

/// A version of QUIC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Version {
    /// RFC 9000.
    #[default]
    One,
    /// RFC 9369.
    Two,
}

impl Version {
    /// Its number in packets.
    pub const fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => VERSION_2,
        }
    }
}

/// Parameters of one end.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Controller with its initial window and initial round-trip time.
    pub settings: Settings,
    /// The version of a client's connections.
    pub version: Version,
    /// What the peer is asked to acknowledge at once and how long it may wait (ACK frequency
    /// draft); without it, the fields follow from the initial round-trip time.
    pub acks: Option<AckRequest>,
    /// Receive window of the connection and of each stream.
    pub window: Bytes,
    /// Most bytes sent and unacknowledged, whatever the controller allows.
    pub send_window: Bytes,
    /// UDP payload of a full packet.
    pub packet: u16,
    /// Whether the packet size is discovered from 1200 bytes up, instead of taken for granted.
    pub discover_mtu: bool,
    /// Whether packets are sent ECN-capable (RFC 9000, section 13.4).
    pub ecn: bool,
    /// Where what connections do is written (qlog).
    pub events: Events,
}

/// Fields of the ACK_FREQUENCY frame (draft-ietf-quic-ack-frequency, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckRequest {
    /// Ack-eliciting packets that the peer may receive without acknowledging.
    pub threshold: u32,
    /// The longest that an acknowledgement waits.
    pub max_delay: Span,
}

/// What an ordinary endpoint has: RFC 9002's window of ten packets and round trip of 333 ms.
impl Default for Parameters {
    fn default() -> Self {
        let settings = Settings {
            initial_window: 10,
            initial_rtt: Span::from_millis(333),
            // A measurement begins afresh unless it is told otherwise.
            resume: false,
            ..Settings::new(Choice::Cubic.into())
        };
        Self {
            settings,
            version: Version::default(),
            acks: None,
            window: Bytes::new(32 << 20),
            send_window: Bytes::new(32 << 20),
            packet: FULL_PACKET,
            discover_mtu: false,
            ecn: true,
            events: Events::default(),
        }
    }
}

/// Why there cannot be such parameters.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParametersError {
    /// A controller's parameter.
    #[error(transparent)]
    Controller(#[from] ChoiceError),
    /// Another one.
    #[error("{field} = {value} is out of its range, {range}")]
    Range {
        /// Which.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        range: &'static str,
    },
}

impl Parameters {
    /// Parameters for `controller`, the rest as by default.
    pub fn new(controller: impl Into<Selection>) -> Self {
        let default = Self::default();
        Self {
            settings: default.settings.with_controller(controller.into()),
            ..default
        }
    }

    /// Checks each parameter against its range.
    pub fn check(&self) -> Result<(), ParametersError> {
        self.settings.check()?;
        let wrong = |field, value: String, range| {
            Err(ParametersError::Range {
                field,
                value,
                range,
            })
        };
        for (field, bytes) in [("window", self.window), ("send_window", self.send_window)] {
            if !(16 << 10..=4 << 30).contains(&bytes.as_u64()) {
                return wrong(field, bytes.to_string(), "16 KiB to 4 GiB");
            }
        }
        if !(LEAST_PACKET..=9000).contains(&self.packet) {
            return wrong(
                "packet",
                format!("{} bytes", self.packet),
                "1200 to 9000 bytes of UDP payload",
            );
        }
        if let Some(acks) = self.acks {
            if acks.threshold > MOST_ACK_THRESHOLD {
                return wrong(
                    "ack_threshold",
                    acks.threshold.to_string(),
                    "0 to 10000 packets",
                );
            }
            if !(1_000_000..=16_000_000_000).contains(&acks.max_delay.as_nanos()) {
                return wrong(
                    "ack_max_delay",
                    acks.max_delay.to_string(),
                    "1 ms to 16 s (RFC 9000, section 18.2)",
                );
            }
        }
        Ok(())
    }

    /// The same in the library's terms. Connections to one peer share `memory`.
    pub fn transport(&self, memory: PathMemory) -> TransportConfig {
        let varint = |bytes: Bytes| VarInt::from_u64(bytes.as_u64()).unwrap_or(VarInt::MAX);
        let acks = match self.acks {
            Some(acks) => Acks {
                packets: acks.threshold.saturating_add(1),
                within: acks.max_delay,
            },
            // The rate only bounds how many packets one acknowledgement is for.
            None => Acks::over(
                Rate::from_bits_per_second(50_000_000),
                self.settings.initial_rtt,
                self.packet,
            ),
        };
        let mut config = over_satellite(&self.settings, acks, memory.clone());
        let factory = Factory::new(self.settings.clone(), memory).monitored();
        config
            .congestion_controller_factory(Arc::new(factory))
            .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS))
            .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
            .stream_receive_window(varint(self.window))
            .receive_window(varint(self.window))
            .send_window(self.send_window.as_u64())
            .datagram_receive_buffer_size(Some(1 << 20))
            .datagram_send_buffer_size(1 << 20)
            .max_idle_timeout(Some(IDLE.try_into().expect("fits a varint")))
            .keep_alive_interval(Some(KEEP_ALIVE));
        if self.discover_mtu {
            config
                .initial_mtu(LEAST_PACKET)
                .mtu_discovery_config(Some(mtu_discovery(self.packet)));
        } else {
            config.initial_mtu(self.packet).mtu_discovery_config(None);
        }
        self.events.of(&mut config);
        config
    }
}
