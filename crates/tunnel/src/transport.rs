//! The `[transport]` table of a configuration: windows, controller and timers of QUIC.
//!
//! # Memory
//!
//! One flow may fill the link, so it may be lent three times the rate times the
//! round-trip time that the configuration expects. How much it is lent follows what its reader
//! consumes ([`bentpipe_quic::windows`]); all sessions of an end lend from one pool, which
//! is its memory. A session that is idle holds little, so many fit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bentpipe_cc::{Choice, ChoiceError, PathMemory};
use bentpipe_quic::acks::Acks;
use bentpipe_quic::datagrams;
use bentpipe_quic::schedule::LEAST_SEND_WINDOW;
use bentpipe_quic::transport::{FULL_PACKET, mtu_discovery, over_satellite};
use bentpipe_quic::windows::{Pool, SESSION_BASE};
use bentpipe_quic::{Events, Selection, Settings};
use bentpipe_units::{Bytes, ParseError, Rate, Span};
use noq::{TransportConfig, VarInt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Flows that may be open in one session at the same time.
pub const MAX_FLOWS: u32 = 16_384;
/// Of them, those of UDP datagrams, which need not end: the rest is left to others.
pub const MAX_UDP_FLOWS: usize = 12_288;
/// Flows of UDP datagrams that a gateway has beside those, while it hears of new ones before it has
/// ended the old ones that have given way to them.
pub const UDP_FLOWS_ENDING: usize = 1024;

/// What a session holds that carries nothing, bytes: its window before anything is lent.
const IDLE_SESSION: u64 = 2 << 20;
/// Round trips of data that one flow may have on its way or unread: one is on its way, one waits behind a loss for its repair, and one
/// where the repair was lost, too.
const FLOW_ROUND_TRIPS: f64 = 3.0;
/// Round trips of data that the pool has room for at least, whatever flows they are of.
const POOL_ROUND_TRIPS: f64 = 5.0;
/// And at least so many bytes.
const SMALLEST_POOL: u64 = 4 << 20;
/// Below this a window would not even hold the data of one page.
const SMALLEST_FLOW_WINDOW: u64 = 1 << 20;

/// A silent path is dead after this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);
/// Keeps NATs and firewalls open (RFC 4787 asks for two minutes, 30 s are seen) and
/// finds out soon that the other end has restarted. About 60 bytes each way.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A window counted in packets as large as the path is known to carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Packets(pub u32);

/// Windows, congestion control and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Transport {
    /// Congestion controller of what this end sends: `satellite`, `newreno`, `cubic`,
    /// `cubic-search`, `hybla`, `bbr3`, `fixed` with `contracted_rate`, or `bbr3-library`.
    pub controller: Selection,
    /// Congestion window of a new session.
    pub initial_window: Packets,
    /// What this end may send by contract: the rate of the controller `fixed`, for no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub contracted_rate: Option<Rate>,
    /// The fastest that the link may be in either direction; sizes the windows.
    #[schemars(with = "String")]
    pub expected_rate: Rate,
    /// The longest round trip to the other end; sizes the windows and the first timeouts.
    #[schemars(with = "String")]
    pub expected_rtt: Span,
    /// What all sessions of this end may hold together; the kernel may hold half as much again for
    /// their connections.
    #[schemars(with = "String")]
    pub memory: Bytes,
    /// Where controllers that probe at random begin; drawn by whoever starts this end.
    #[serde(skip)]
    pub seed: u64,
    /// A session that has nothing to say says so after this time.
    #[serde(skip)]
    pub keep_alive: Duration,
    /// Where what sessions do is written (qlog).
    #[serde(skip)]
    pub events: Events,
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
            keep_alive: KEEP_ALIVE,
            events: Events::default(),
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
        let least = self.least_memory();
        if self.memory.as_u64() < least {
            return wrong(
                "memory",
                self.memory.to_string(),
                format!(
                    "flows at expected_rate = \"{}\" and expected_rtt = \"{}\" need {}; give at least that, or lower expected_rate",
                    self.expected_rate,
                    self.expected_rtt,
                    Bytes::new(least.div_ceil(1 << 20) << 20),
                ),
            );
        }
        Ok(())
    }

    /// The most that one flow may have on its way or unread, bytes.
    pub fn flow_window(&self) -> u64 {
        self.data(FLOW_ROUND_TRIPS).max(SMALLEST_FLOW_WINDOW)
    }

    /// The least that `memory` may be, bytes.
    pub fn least_memory(&self) -> u64 {
        self.data(POOL_ROUND_TRIPS).max(SMALLEST_POOL) + IDLE_SESSION
    }

    /// What arrives in so many round trips, bytes.
    fn data(&self, round_trips: f64) -> u64 {
        let time = Span::from_secs_f64(round_trips * self.expected_rtt.as_secs_f64());
        // A stream's window is at most 2^62 - 1 on the wire; nobody has such memory.
        self.expected_rate.bytes_in(time).as_u64().min(1 << 40)
    }

    /// What a session may send before its flows are lent anything, bytes.
    pub fn session_window(&self) -> VarInt {
        VarInt::from_u64(SESSION_BASE).unwrap_or(VarInt::MAX)
    }

    /// How many sessions fit into the memory.
    pub fn max_sessions(&self) -> u64 {
        self.memory.as_u64() / IDLE_SESSION
    }

    /// The memory that flows are lent receive windows from.
    pub fn pool(&self) -> Pool {
        Pool::new(self.memory.as_u64())
    }

    /// As the QUIC library wants it, towards a peer of which `memory` may know something.
    /// `max_requests`: how many flows the peer may open.
    pub fn quic(&self, max_requests: u32, memory: PathMemory) -> TransportConfig {
        let varint = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
        let acks = Acks::over(self.expected_rate, self.expected_rtt, FULL_PACKET);
        let mut quic = over_satellite(&self.settings(), acks, memory);
        quic.max_concurrent_bidi_streams(VarInt::from_u32(max_requests))
            // HTTP/3 has three: control, QPACK encoder and decoder (RFC 9114, section 6.2).
            .max_concurrent_uni_streams(VarInt::from_u32(8))
            // What flows are lent is bounded below this, so that it never stops them.
            .stream_receive_window(varint(self.flow_window() / 2 * 3))
            .receive_window(self.session_window())
            .send_window(self.flow_window().max(LEAST_SEND_WINDOW))
            .send_fairness(true)
            .mtu_discovery_config(Some(mtu_discovery(FULL_PACKET)))
            // Of the path, where it can be changed while a session is open.
            .default_path_keep_alive_interval(Some(self.keep_alive))
            .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().expect("fits a varint")))
            .datagram_receive_buffer_size(Some(datagrams::RECEIVE_BUFFER))
            .datagram_send_buffer_size(datagrams::SEND_BUFFER);
        self.events.of(&mut quic);
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
            said.contains("transport.memory = \"64 MiB\"") && said.contains("99 MiB"),
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
