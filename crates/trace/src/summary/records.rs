//! What is told of a connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

use super::patterns::Pattern;
use crate::quic::tls::TransportParameters;

/// One connection. Times are seconds since its first packet.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConnectionSummary {
    /// Its number among those of its protocol.
    pub connection: u32,
    /// `quic` or `tcp`.
    pub protocol: &'static str,
    /// QUIC's version, hexadecimal.
    pub version: Option<String>,
    /// The application protocol (ALPN) that the server chose.
    pub application_protocol: Option<String>,
    /// Where the client was first.
    pub client: SocketAddr,
    /// Where the server was first.
    pub server: SocketAddr,
    /// Nanoseconds since 1970 of its first packet.
    pub begun_ns: u64,
    /// From first to last packet.
    pub duration_s: f64,
    /// From the client's first packet until it sends with 1-RTT keys (of TCP: its first ACK).
    pub handshake_s: Option<f64>,
    /// Until the server's HANDSHAKE_DONE.
    pub confirmed_s: Option<f64>,
    /// Until the server's first byte of a stream that the client opened for both directions.
    pub first_byte_s: Option<f64>,
    /// Until the server's last new byte of such a stream.
    pub last_byte_s: Option<f64>,
    /// Goodput of the server's stream bytes, bit/s.
    pub goodput: Goodput,
    /// Whether the server answered with a Retry.
    pub retried: bool,
    /// Changes of the client's address.
    pub migrations: u32,
    /// Packets whose content is not known, by reason.
    pub undecrypted: BTreeMap<&'static str, u64>,
    /// Frames that are unknown or cut: how many packets had one.
    pub unknown_frames: u64,
    /// How it was closed, if it was.
    pub close: Option<Close>,
    /// What the client sent.
    pub client_sent: DirectionSummary,
    /// What the server sent.
    pub server_sent: DirectionSummary,
}

/// Goodput by the definitions that are in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Goodput {
    /// From the connection's first packet to the last new byte: what a user waits for.
    pub whole_bit_s: Option<f64>,
    /// Between the server's first and last 1-RTT packet, as the QUIC interop runner counts.
    pub server_packets_bit_s: Option<f64>,
    /// From the client's first stream byte to the last new byte of the answer.
    pub request_bit_s: Option<f64>,
}

/// A CONNECTION_CLOSE, or TCP's RST.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Close {
    /// Who closed.
    pub by: &'static str,
    /// Whether the application did, not the transport.
    pub application: bool,
    /// With which code.
    pub code: u64,
    /// In words.
    pub reason: String,
}

/// What one side sent.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct DirectionSummary {
    /// The transport parameters that it announced, windows among them.
    pub transport_parameters: Option<TransportParameters>,
    /// QUIC packets or TCP segments.
    pub packets: u64,
    /// Bytes of UDP payload, or of TCP segments.
    pub bytes: u64,
    /// Bytes of streams, each counted once.
    pub stream_bytes: u64,
    /// Bytes of streams that had been sent before.
    pub repeated_bytes: u64,
    /// Of these, those whose first packet was acknowledged after they had been repeated.
    pub spurious_bytes: u64,
    /// New bytes that came after later ones of the same stream.
    pub late_bytes: u64,
    /// Packets with a number below one that was seen before.
    pub reordered_packets: u64,
    /// Packets with the CE mark.
    pub ce_marked: u64,
    /// ACK frames, or segments that only acknowledge.
    pub acks: u64,
    /// Packets of the other side for one ACK frame.
    pub packets_per_ack: Option<f64>,
    /// DATA_BLOCKED and STREAM_DATA_BLOCKED frames: flow control held it back.
    pub blocked: u64,
    /// From a packet to the first acknowledgement that has it as the largest, milliseconds:
    /// the round trip from where both were seen to the receiver and back.
    pub rtt_ms: Option<Spread>,
    /// The longest time without a packet between its first and last stream bytes.
    pub longest_pause: Option<Pause>,
    /// Seconds that the last 5 % of its stream bytes took.
    pub last_five_percent_s: Option<f64>,
    /// Changes of 1-RTT keys.
    pub key_updates: u64,
    /// Seconds (of the connection) in which bytes were repeated: second, bytes.
    pub repeated_at: Vec<(u32, u64)>,
    /// Seconds in which new stream bytes were sent: second, bytes.
    pub new_at: Vec<(u32, u64)>,
    /// Shapes of the transfer that have a name.
    pub patterns: Vec<Pattern>,
}

/// Least, median, 95th percentile and largest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// Half are below.
    pub median: f64,
    /// 95 % are below.
    pub p95: f64,
    /// The largest.
    pub largest: f64,
    /// How many there are.
    pub count: u64,
}

/// A time without packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Pause {
    /// When it began.
    pub at_s: f64,
    /// How long it was.
    pub for_s: f64,
}
