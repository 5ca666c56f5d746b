//! What the tunnel asks of QUIC: windows, controller, timers.
//!
//! # Memory
//!
//! One flow may fill the link, so its window is 1.25 times the rate times the
//! round-trip time that the configuration expects. A session lends its peer eight
//! such windows and keeps two for what it sends itself, so a session never holds
//! more than ten; how many sessions an end takes follows from its memory. Flows
//! do not count: a thousand share what one session has.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bentpipe_cc::{Choice, ChoiceError, PathMemory};
use bentpipe_quic::acks::Acks;
use bentpipe_quic::transport::{FULL_PACKET, over_satellite};
use bentpipe_quic::{Selection, Settings};
use bentpipe_units::{Bytes, ParseError, Rate, Span};
use noq::{MtuDiscoveryConfig, TransportConfig, VarInt};
use serde::{Deserialize, Serialize};

/// Flows that may be open in one session at the same time.
pub const MAX_FLOWS: u32 = 4096;

/// Windows of one flow's size that a session lends its peer.
const RECEIVE_WINDOWS: u64 = 8;
/// Windows of one flow's size that a session keeps for unacknowledged data.
const SEND_WINDOWS: u64 = 2;
/// Below this a window would not even hold the data of one page.
const SMALLEST_FLOW_WINDOW: u64 = 1 << 20;

/// A silent path is dead after this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);
/// Keeps NATs and firewalls open (RFC 4787 asks for two minutes, 30 s are seen) and
/// finds out soon that the other end has restarted. About 60 bytes each way.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A window counted in packets as large as the path is known to carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packets(pub u32);

/// The `[transport]` table of either end's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transport {
    /// Congestion controller of what this end sends.
    pub controller: Selection,
    /// Congestion window of a new session.
    pub initial_window: Packets,
    /// What this end may send by contract; the fixed controller is that rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contracted_rate: Option<Rate>,
    /// The fastest that the link may be in either direction; sizes the windows.
    pub expected_rate: Rate,
    /// The longest round trip to the other end; sizes the windows and the first timeouts.
    pub expected_rtt: Span,
    /// What all sessions of this end may hold together.
    pub memory: Bytes,
    /// Where controllers that probe at random begin; drawn by whoever starts this end.
    #[serde(skip)]
    pub seed: u64,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            controller: Choice::Satellite.into(),
            initial_window: Packets(32),
            contracted_rate: None,
            expected_rate: Rate::from_bits_per_second(250_000_000),
            expected_rtt: Span::from_millis(650),
            memory: Bytes::new(1 << 30),
            seed: 0,
        }
    }
}

/// Why a `[transport]` table cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TransportError {
    /// A field's value.
    #[error("transport.{field} = {value:?}: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        why: String,
    },
    /// The controller's parameters.
    #[error("transport: {0}")]
    Controller(#[from] ChoiceError),
}

impl Transport {
    /// Checks what cannot be seen in one field alone.
    pub fn check(&self) -> Result<(), TransportError> {
        let wrong =
            |field, value: String, why: String| Err(TransportError::Field { field, value, why });
        if self.expected_rate.bits_per_second() == 0 {
            return wrong(
                "expected_rate",
                self.expected_rate.to_string(),
                "give the fastest that the link may be, like \"50 Mbit/s\"".into(),
            );
        }
        let rtt = self.expected_rtt.as_duration();
        if !(Duration::from_millis(1)..=Duration::from_secs(10)).contains(&rtt) {
            return wrong(
                "expected_rtt",
                self.expected_rtt.to_string(),
                "give a round-trip time from 1 ms to 10 s, like \"650 ms\"".into(),
            );
        }
        self.settings().check()?;
        if self.max_sessions() == 0 {
            return wrong(
                "memory",
                self.memory.to_string(),
                format!(
                    "one session at expected_rate = \"{}\" and expected_rtt = \"{}\" may hold {}; give at least that, or lower expected_rate",
                    self.expected_rate,
                    self.expected_rtt,
                    Bytes::new(self.session_memory().div_ceil(1 << 20) << 20),
                ),
            );
        }
        Ok(())
    }

    /// The most that one flow may have on its way or unread, bytes.
    pub fn flow_window(&self) -> u64 {
        let product = self.expected_rate.bytes_in(self.expected_rtt).as_u64();
        // A stream's window is at most 2^62 - 1 on the wire; nobody has such memory.
        (product / 4)
            .saturating_add(product)
            .clamp(SMALLEST_FLOW_WINDOW, 1 << 40)
    }

    /// The most that one session may hold, bytes.
    pub fn session_memory(&self) -> u64 {
        (RECEIVE_WINDOWS + SEND_WINDOWS) * self.flow_window()
    }

    /// How many sessions fit into the memory.
    pub fn max_sessions(&self) -> u64 {
        self.memory.as_u64() / self.session_memory()
    }

    /// How many flows that are not read may fill their windows before they would
    /// keep the session's other flows from a window of their own.
    pub fn max_stalled_flows(&self) -> usize {
        usize::try_from(RECEIVE_WINDOWS - 2).expect("a handful")
    }

    /// As the QUIC library wants it, towards a peer of which `memory` may know something.
    /// `max_requests`: how many flows the peer may open.
    pub fn quic(&self, max_requests: u32, memory: PathMemory) -> TransportConfig {
        let varint = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
        let mut mtu = MtuDiscoveryConfig::default();
        mtu.upper_bound(FULL_PACKET);
        let acks = Acks::over(self.expected_rate, self.expected_rtt, FULL_PACKET);
        let mut quic = over_satellite(&self.settings(), acks, memory);
        quic.max_concurrent_bidi_streams(VarInt::from_u32(max_requests))
            // HTTP/3 has three: control, QPACK encoder and decoder (RFC 9114, section 6.2).
            .max_concurrent_uni_streams(VarInt::from_u32(8))
            .stream_receive_window(varint(self.flow_window()))
            .receive_window(varint(RECEIVE_WINDOWS * self.flow_window()))
            .send_window(SEND_WINDOWS * self.flow_window())
            .send_fairness(true)
            .mtu_discovery_config(Some(mtu))
            .keep_alive_interval(Some(KEEP_ALIVE))
            .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().expect("fits a varint")))
            .datagram_receive_buffer_size(None);
        quic
    }

    fn settings(&self) -> Settings {
        Settings {
            initial_window: self.initial_window.0,
            initial_rtt: self.expected_rtt,
            contracted_rate: self.contracted_rate,
            seed: self.seed,
            ..Settings::new(self.controller)
        }
    }
}

impl FromStr for Packets {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.trim()
            .strip_suffix("packets")
            .and_then(|count| count.trim().parse().ok())
            .map(Self)
            .ok_or_else(|| ParseError {
                value: text.to_owned(),
                wanted: "a number of packets",
                why: "it is not a whole number with \"packets\" behind it".into(),
                example: "32 packets",
            })
    }
}

impl fmt::Display for Packets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} packets", self.0)
    }
}

impl Serialize for Packets {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Packets {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flow_can_fill_250_megabit_at_650_milliseconds() {
        let product = Rate::from_bits_per_second(250_000_000).bytes_in(Span::from_millis(650));
        assert!(Transport::default().flow_window() >= product.as_u64());
    }

    #[test]
    fn too_little_memory_says_how_much_is_needed() {
        let transport = Transport {
            memory: Bytes::new(64 << 20),
            ..Transport::default()
        };
        let said = transport.check().unwrap_err().to_string();
        assert!(
            said.contains("transport.memory = \"64 MiB\"") && said.contains("243 MiB"),
            "{said}"
        );
        Transport {
            expected_rate: Rate::from_bits_per_second(50_000_000),
            ..transport
        }
        .check()
        .unwrap();
    }
}
