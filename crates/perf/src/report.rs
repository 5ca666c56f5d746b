//! The documented result of a measurement: a JSON document whose schema `bentpipe schema perf`
//! prints.
//!
//! Times are nanoseconds since the measurement began, on the clock of the end that reports.
//! Counts of a sender are since its connection began. What a transport cannot tell is null.

use std::net::SocketAddr;

use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::PerfError;
use crate::parameters::Parameters;

/// The schema's name and version, in every report.
pub const SCHEMA: &str = "bentpipe/perf/1";

/// A measurement, as one of its ends saw it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// `bentpipe/perf/1`.
    pub schema: String,
    /// Which end.
    pub role: Role,
    /// What carried the bytes.
    pub transport: TransportKind,
    /// The other end's address and port.
    pub peer: String,
    /// How this end was set up.
    pub parameters: ParametersReport,
    /// What was to be done, in words; a server does not know.
    pub workload: Option<String>,
    /// Whether everything went as it should.
    pub ok: bool,
    /// If not, why.
    pub error: Option<String>,
    /// From the first packet to the end.
    pub duration_ns: u64,
    /// Bytes of streams that arrived here.
    pub received_bytes: u64,
    /// Bytes of streams that were handed to the transport here. In an upload that ended well
    /// all of them have arrived.
    pub sent_bytes: u64,
    /// Each connection.
    pub connections: Vec<ConnectionReport>,
    /// Equal stretches of the measurement, the last one shorter.
    pub intervals: Vec<Interval>,
    /// Intervals that there was no room for.
    pub intervals_omitted: u64,
    /// Answers to small requests.
    pub requests: Option<Latency>,
    /// Datagrams at a given rate.
    pub datagrams: Option<DatagramReport>,
}

/// Which end of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The end that asks.
    Client,
    /// The end that answers.
    Server,
}

/// What carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// QUIC version 1.
    Quic,
    /// The kernel's TCP, one connection for each stream.
    Tcp,
}

impl TransportKind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quic => "QUIC",
            Self::Tcp => "TCP",
        }
    }
}

/// How an end was set up; what the kernel chose by itself is null.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct ParametersReport {
    /// Congestion controller.
    pub controller: Option<String>,
    /// Version of QUIC that a client speaks.
    pub quic_version: Option<u32>,
    /// Initial window, packets.
    pub initial_window_packets: Option<u32>,
    /// Round-trip time until it is measured.
    pub initial_rtt_ns: Option<u64>,
    /// Packets that the peer may receive without acknowledging, if it was asked.
    pub ack_threshold: Option<u32>,
    /// The longest that it may wait, if it was asked.
    pub ack_max_delay_ns: Option<u64>,
    /// Receive window.
    pub window_bytes: Option<u64>,
    /// Most bytes sent and unacknowledged.
    pub send_window_bytes: Option<u64>,
    /// UDP payload of a full packet.
    pub packet_bytes: Option<u16>,
    /// Whether the packet size was discovered.
    pub mtu_discovery: Option<bool>,
    /// Whether a window was spread over a round trip.
    pub pacing: Option<bool>,
    /// Whether packets were sent ECN-capable.
    pub ecn: Option<bool>,
}

impl From<&Parameters> for ParametersReport {
    fn from(parameters: &Parameters) -> Self {
        let Parameters { settings, acks, .. } = parameters;
        Self {
            controller: Some(settings.controller.to_string()),
            quic_version: Some(parameters.version.number()),
            initial_window_packets: Some(settings.initial_window),
            initial_rtt_ns: Some(settings.initial_rtt.as_nanos()),
            ack_threshold: acks.map(|acks| acks.threshold),
            ack_max_delay_ns: acks.map(|acks| acks.max_delay.as_nanos()),
            window_bytes: Some(parameters.window.as_u64()),
            send_window_bytes: Some(parameters.send_window.as_u64()),
            packet_bytes: Some(parameters.packet),
            mtu_discovery: Some(parameters.discover_mtu),
            pacing: Some(settings.pacing),
            ecn: Some(parameters.ecn),
        }
    }
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ConnectionReport {
    /// Which, counted from 0.
    pub connection: u32,
    /// How it came about.
    pub establishment: Establishment,
    /// When the first byte of a stream had arrived.
    pub first_byte_ns: Option<u64>,
    /// When the last one had.
    pub last_byte_ns: Option<u64>,
    /// Bytes of its streams that arrived here.
    pub received_bytes: u64,
    /// Bytes of its streams that were handed to the transport here.
    pub sent_bytes: u64,
    /// What this end's sender saw, at the end.
    pub sender: Sender,
}

/// How a connection came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Establishment {
    /// The first packet: sent by a client, seen by a server.
    pub begun_ns: u64,
    /// The handshake was complete: keys agreed, and in QUIC the server's certificate verified.
    pub done_ns: Option<u64>,
    /// The handshake was confirmed (RFC 9001, section 4.1.2); QUIC only.
    pub confirmed_ns: Option<u64>,
    /// Whether data were sent in the first flight (0-RTT), and if so whether the server took them.
    pub early_data: Option<bool>,
}

/// A stretch of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Interval {
    /// From.
    pub from_ns: u64,
    /// To.
    pub to_ns: u64,
    /// Bytes of streams that arrived here: over its length, the goodput at this receiver.
    pub received_bytes: u64,
    /// Bytes of streams that were handed to the transport here.
    pub sent_bytes: u64,
    /// Of these, what each connection carried.
    pub connections: Vec<Carried>,
    /// What the sender of each connection here saw, at the end of the interval.
    pub senders: Vec<Sender>,
}

impl Interval {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

/// What a connection's streams carried in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Carried {
    /// Which connection.
    pub connection: u32,
    /// Bytes that arrived here.
    pub received_bytes: u64,
    /// Bytes that were handed to the transport here.
    pub sent_bytes: u64,
}

/// What the sender of a connection sees.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Sender {
    /// Of which connection.
    pub connection: u32,
    /// Congestion window.
    pub window_bytes: Option<u64>,
    /// Slow-start threshold.
    pub threshold_bytes: Option<u64>,
    /// Sent and neither acknowledged nor given up.
    pub in_flight_bytes: Option<u64>,
    /// Smoothed round-trip time.
    pub smoothed_rtt_ns: Option<u64>,
    /// Least round-trip time.
    pub least_rtt_ns: Option<u64>,
    /// Pacing rate, where the controller has one.
    pub pacing_bit_s: Option<u64>,
    /// Acknowledged: UDP payload of QUIC packets, bytes of TCP.
    pub acknowledged_bytes: Option<u64>,
    /// Packets sent.
    pub sent_packets: Option<u64>,
    /// UDP payload sent, or bytes of TCP with what was sent again.
    pub sent_bytes: Option<u64>,
    /// Packets given up as lost.
    pub lost_packets: Option<u64>,
    /// Sent again: QUIC sends anew what lost packets carried, so their UDP payload; bytes of TCP.
    pub retransmitted_bytes: Option<u64>,
    /// Times that the controller was told of congestion.
    pub congestion_events: Option<u64>,
    /// Acknowledgements that reported new congestion marks (RFC 3168); for TCP, packets
    /// acknowledged with a mark.
    pub congestion_marks: Option<u64>,
    /// Largest packet that the path is known to carry: UDP payload, TCP segment.
    pub packet_bytes: Option<u64>,
}

/// A change of what a sender may send or is told of congestion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// When.
    pub at_ns: u64,
    /// The state after it.
    pub sender: Sender,
}

/// How long answers took, from the request to the last byte.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Latency {
    /// Answers that arrived whole.
    pub count: u64,
    /// The quickest.
    pub least_ns: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// The median; percentiles to three digits.
    pub p50_ns: u64,
    /// Nine in ten were quicker.
    pub p90_ns: u64,
    /// 19 in 20.
    pub p95_ns: u64,
    /// 99 in 100.
    pub p99_ns: u64,
    /// The slowest.
    pub most_ns: u64,
}

/// Datagrams at a given rate, answered by the server.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DatagramReport {
    /// Handed to the transport.
    pub sent: u64,
    /// Of these, what had arrived at the server when it sent the last answer that came; null
    /// if no answer came.
    pub arrived: Option<u64>,
    /// Answers that came back.
    pub answered: u64,
    /// Of those that arrived, how many came after a later one (RFC 4737).
    pub reordered_there: u64,
    /// Of the answers, how many came after a later one.
    pub reordered_back: u64,
    /// Jitter at the server (RFC 3550, section 6.4.1).
    pub jitter_there_ns: u64,
    /// Jitter of the answers.
    pub jitter_back_ns: u64,
    /// From a datagram to its answer.
    pub round_trips: Option<Latency>,
}

/// A line of the records that a measurement writes while it runs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "record")]
pub enum Record {
    /// A stretch of time is over.
    Interval(Interval),
    /// A sender's state has changed.
    Change(Change),
    /// An answer has arrived whole.
    Request {
        /// When.
        at_ns: u64,
        /// How long after the request.
        took_ns: u64,
    },
    /// Changes that there was no room for.
    ChangesOmitted {
        /// How many.
        count: u64,
    },
}

impl Report {
    /// Of a measurement that could not be begun: nothing but why.
    pub fn failed(
        transport: TransportKind,
        peer: SocketAddr,
        parameters: ParametersReport,
        workload: String,
        error: &PerfError,
    ) -> Self {
        Self {
            schema: SCHEMA.into(),
            role: Role::Client,
            transport,
            peer: peer.to_string(),
            parameters,
            workload: Some(workload),
            ok: false,
            error: Some(error.to_string()),
            duration_ns: 0,
            received_bytes: 0,
            sent_bytes: 0,
            connections: Vec::new(),
            intervals: Vec::new(),
            intervals_omitted: 0,
            requests: None,
            datagrams: None,
        }
    }

    /// As JSON, on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("reports are plain data")
    }

    /// Bits per second that arrived, from the first to the last byte of each connection.
    pub fn goodput_bit_s(&self) -> f64 {
        let span = (self.connections.iter())
            .filter_map(|one| Some((one.establishment.begun_ns, one.last_byte_ns?)))
            .fold(None, |all: Option<(u64, u64)>, (from, to)| {
                Some(all.map_or((from, to), |(a, b)| (a.min(from), b.max(to))))
            });
        match span {
            Some((from, to)) if to > from => self.received_bytes as f64 * 8e9 / (to - from) as f64,
            _ => 0.0,
        }
    }
}

/// A length of time as reports have it.
pub(crate) fn nanos(span: Span) -> u64 {
    span.as_nanos()
}
