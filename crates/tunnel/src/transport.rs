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
use std::sync::Arc;
use std::time::Duration;

use bentpipe_units::{Bytes, ParseError, Rate, Span};
use noq::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};
use noq::{AckFrequencyConfig, MtuDiscoveryConfig, TransportConfig, VarInt};
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
/// UDP payload of a 1500-byte IPv4 packet, the largest that path MTU discovery tries.
const LARGEST_UDP_PAYLOAD: u16 = 1472;
/// Acknowledge at least every eleventh packet or 25 ms: on 20 Mbit/s that is 150
/// acknowledgements a second instead of 850 (draft-ietf-quic-ack-frequency-14).
const ACK_ELICITING_THRESHOLD: u32 = 10;
/// QUIC's default max_ack_delay (RFC 9000, section 18.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Which congestion controller decides how much is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// NewReno as RFC 9002 has it.
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBRv3 (draft-ietf-ccwg-bbr).
    Bbr3,
}

/// A window counted in packets of 1200 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packets(pub u32);

/// The `[transport]` table of either end's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transport {
    /// Congestion controller of what this end sends.
    pub controller: Controller,
    /// Congestion window of a new session.
    pub initial_window: Packets,
    /// The fastest that the link may be in either direction; sizes the windows.
    pub expected_rate: Rate,
    /// The longest round trip to the other end; sizes the windows and the first timeouts.
    pub expected_rtt: Span,
    /// What all sessions of this end may hold together.
    pub memory: Bytes,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            controller: Controller::Cubic,
            initial_window: Packets(32),
            expected_rate: Rate::from_bits_per_second(250_000_000),
            expected_rtt: Span::from_millis(650),
            memory: Bytes::new(1 << 30),
        }
    }
}

/// Why a `[transport]` table cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("transport.{field} = {value:?}: {why}")]
pub struct TransportError {
    field: &'static str,
    value: String,
    why: String,
}

impl Transport {
    /// Checks what cannot be seen in one field alone.
    pub fn check(&self) -> Result<(), TransportError> {
        let wrong = |field, value: String, why: String| Err(TransportError { field, value, why });
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
        if !(2..=10_000).contains(&self.initial_window.0) {
            return wrong(
                "initial_window",
                self.initial_window.to_string(),
                "give 2 to 10000 packets, like \"32 packets\"".into(),
            );
        }
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

    /// As the QUIC library wants it. `max_requests`: how many flows the peer may open.
    pub fn quic(&self, max_requests: u32) -> TransportConfig {
        let varint = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
        let mut mtu = MtuDiscoveryConfig::default();
        mtu.upper_bound(LARGEST_UDP_PAYLOAD);
        let mut acks = AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(VarInt::from_u32(ACK_ELICITING_THRESHOLD));
        acks.max_ack_delay(Some(MAX_ACK_DELAY));
        let mut quic = TransportConfig::default();
        quic.max_concurrent_bidi_streams(VarInt::from_u32(max_requests))
            // HTTP/3 has three: control, QPACK encoder and decoder (RFC 9114, section 6.2).
            .max_concurrent_uni_streams(VarInt::from_u32(8))
            .stream_receive_window(varint(self.flow_window()))
            .receive_window(varint(RECEIVE_WINDOWS * self.flow_window()))
            .send_window(SEND_WINDOWS * self.flow_window())
            .send_fairness(true)
            .initial_rtt(self.expected_rtt.as_duration())
            .mtu_discovery_config(Some(mtu))
            .ack_frequency_config(Some(acks))
            .keep_alive_interval(Some(KEEP_ALIVE))
            .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().expect("fits a varint")))
            .datagram_receive_buffer_size(None)
            .congestion_controller_factory(self.controller_factory());
        quic
    }

    fn controller_factory(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        let window = u64::from(self.initial_window.0) * 1200;
        match self.controller {
            Controller::NewReno => {
                let mut config = NewRenoConfig::default();
                config.initial_window(window);
                Arc::new(config)
            }
            Controller::Cubic => {
                let mut config = CubicConfig::default();
                config.initial_window(window);
                Arc::new(config)
            }
            Controller::Bbr3 => {
                let mut config = Bbr3Config::default();
                config.initial_window(window);
                Arc::new(config)
            }
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
