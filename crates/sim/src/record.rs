//! The records of a run: a line of `records.jsonl` each.

use std::time::Instant;

use bentpipe_link::{Cause, Counters};
use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::{Plan, Towards};
use crate::problem::PlanError;

/// The first line of `records.jsonl`.
pub const SCHEMA: &str = r#"{"schema":"bentpipe/records/1"}"#;

/// One line of `records.jsonl`, of whatever kind the nodes are.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "record")]
pub enum Record {
    /// A transfer over a QUIC connection, also one that did not finish.
    Transfer(TransferRecord),
    /// The state of a flow or a session at equal intervals.
    Sample(SampleRecord),
    /// The end of a flow.
    Flow(FlowRecord),
    /// A terminal's session at the end of the run.
    Session(SessionRecord),
    /// One direction of a link at the end of the run.
    Link(LinkRecord),
}

/// The state at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SampleRecord {
    /// Of a QUIC connection.
    Quic(QuicSample),
    /// Of a terminal's session.
    Tunnel(TunnelSample),
}

/// The end of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum FlowRecord {
    /// Of a QUIC connection.
    Quic(QuicFlow),
    /// Of a connection that an application has through the tunnel.
    Tunnel(TunnelFlow),
}

// ------------------------------------------------------------- QUIC connections alone

/// One transfer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TransferRecord {
    /// Which flow.
    pub flow: usize,
    /// Which of its transfers.
    pub transfer: usize,
    /// What was requested.
    pub bytes: u64,
    /// What arrived.
    pub received: u64,
    /// When the connection was begun, if this is the first over it, or else requested.
    pub begun_ns: u64,
    /// When it was requested.
    pub asked_ns: u64,
    /// When its first byte arrived.
    pub first_byte_ns: Option<u64>,
    /// When its last byte arrived.
    pub done_ns: Option<u64>,
    /// Bytes at the IP level that the gateway sent from request to last byte, or to the end
    /// of the run.
    pub sent_ip_bytes: u64,
}

impl TransferRecord {
    /// Seconds from the beginning to the last byte.
    pub fn seconds(&self) -> Option<f64> {
        self.done_ns.map(|done| (done - self.begun_ns) as f64 / 1e9)
    }
}

/// The state of a QUIC connection.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct QuicSample {
    /// When.
    pub at_ns: u64,
    /// Which flow.
    pub flow: usize,
    /// Bytes that have arrived at the terminal's program so far.
    pub received: u64,
    /// UDP payload that has arrived at the terminal so far: what a study counts that looks
    /// at packets.
    pub arrived_udp_bytes: u64,
    /// The gateway's congestion window, bytes.
    pub window: u64,
    /// The gateway's pacing rate, bit/s, where the controller has one.
    pub pacing_bit_s: Option<u64>,
    /// The gateway's smoothed round-trip time.
    pub rtt_ns: u64,
    /// Mean time that the packets since the last sample waited in the forward direction's queues.
    pub waited_ns: Option<u64>,
    /// The longest of those times.
    pub waited_most_ns: Option<u64>,
}

/// The end of a QUIC connection.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct QuicFlow {
    /// Which flow.
    pub flow: usize,
    /// Its controller.
    pub controller: String,
    /// What became of it.
    pub verdict: QuicVerdict,
    /// Packets that the gateway sent.
    pub sent: u64,
    /// Packets that the gateway declared lost.
    pub lost: u64,
    /// Bytes at the IP level that the terminal sent: requests and acknowledgements.
    pub return_ip_bytes: u64,
    /// Bytes at the IP level that the gateway sent.
    pub forward_ip_bytes: u64,
}

/// What became of a QUIC connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "is", content = "why")]
pub enum QuicVerdict {
    /// All that was requested has arrived.
    Ok,
    /// The plan's time was over first.
    TimedOut,
    /// The connection broke.
    Broken(String),
}

// ------------------------------------------------------------- terminals and a gateway

/// The state of a terminal's session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TunnelSample {
    /// When.
    pub at_ns: u64,
    /// Whose.
    pub terminal: usize,
    /// Bytes that its applications have received so far.
    pub received: u64,
    /// Bytes that its applications' servers have received so far, without the requests.
    pub uploaded: u64,
    /// The gateway's view of the session, if it has one.
    pub session: Option<Path>,
}

/// How the gateway sees the path of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Path {
    /// Congestion window, bytes.
    pub window: u64,
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// Packets sent so far.
    pub sent: u64,
    /// Packets declared lost so far.
    pub lost: u64,
}

/// The end of an application's connection.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TunnelFlow {
    /// Which terminal.
    pub terminal: usize,
    /// Which of its flows.
    pub flow: usize,
    /// Which way most of it goes.
    pub work: WorkKind,
    /// What was to be carried.
    pub bytes: u64,
    /// What has arrived of it.
    pub arrived: u64,
    /// When the application connected.
    pub begun_ns: u64,
    /// When its request was at the server.
    pub reached_ns: Option<u64>,
    /// When the first byte of the answer was at the application.
    pub first_byte_ns: Option<u64>,
    /// And the last.
    pub done_ns: Option<u64>,
    /// The datagrams of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echo: Option<EchoRecord>,
    /// What became of it.
    pub verdict: TunnelVerdict,
}

/// The datagrams of a call, each of which the server sends back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EchoRecord {
    /// How many were sent.
    pub sent: u64,
    /// Of how many the echo has come.
    pub echoed: u64,
    /// How long half of the echoes took at most, from when the application sent the datagram.
    pub p50_ns: Option<u64>,
    /// And 95 % of them.
    pub p95_ns: Option<u64>,
    /// And 99 %.
    pub p99_ns: Option<u64>,
    /// The longest.
    pub longest_ns: Option<u64>,
}

impl EchoRecord {
    /// Of `sent` datagrams whose echoes took so long, nanoseconds.
    pub(crate) fn of(sent: u64, mut echoes: Vec<u64>) -> Self {
        echoes.sort_unstable();
        // The smallest time that so many percent do not exceed.
        let percent = |percent: usize| {
            let rank = (echoes.len() * percent).div_ceil(100);
            echoes.get(rank.checked_sub(1)?).copied()
        };
        Self {
            sent,
            echoed: echoes.len() as u64,
            p50_ns: percent(50),
            p95_ns: percent(95),
            p99_ns: percent(99),
            longest_ns: echoes.last().copied(),
        }
    }

    /// The share of those sent whose echo has not come.
    pub fn lost(&self) -> f64 {
        1.0 - self.echoed as f64 / self.sent.max(1) as f64
    }
}

/// Which way most of a flow goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// From the server.
    Download,
    /// To the server.
    Upload,
    /// Datagrams, there and back.
    Call,
}

impl TunnelFlow {
    /// Seconds from the connection to the last byte of the answer, of a flow that went well.
    pub fn seconds(&self) -> Option<f64> {
        let done = self.done_ns.filter(|_| self.verdict == TunnelVerdict::Ok)?;
        Some((done - self.begun_ns) as f64 / 1e9)
    }

    /// Seconds from the connection to the first byte of the answer.
    pub fn first_byte_s(&self) -> Option<f64> {
        Some((self.first_byte_ns? - self.begun_ns) as f64 / 1e9)
    }
}

/// What became of an application's connection, as the application sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunnelVerdict {
    /// Everything has arrived, and ended well.
    Ok,
    /// The run was over first.
    TimedOut,
    /// The connection was reset.
    Reset,
    /// It ended well, but not with the right bytes.
    WrongContent,
    /// The run was over before it began.
    NotBegun,
}

impl TunnelVerdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::TimedOut => "timed out",
            Self::Reset => "reset",
            Self::WrongContent => "wrong content",
            Self::NotBegun => "not begun",
        }
    }
}

/// A terminal's session at the end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionRecord {
    /// Whose.
    pub terminal: usize,
    /// When the terminal first had one that the gateway had accepted.
    pub up_ns: Option<u64>,
    /// How many it has had.
    pub sessions: u64,
    /// The gateway's view of the last one, if it is still there.
    pub session: Option<Path>,
}

// ------------------------------------------------------------------------------ links

/// One direction of a link at the end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LinkRecord {
    /// Which link.
    pub link: usize,
    /// Which direction.
    pub direction: Towards,
    /// What became of its packets.
    pub packets: Counters,
    /// Packets lost in outages: `packets.dropped.outage`.
    pub blacked_out: u64,
}

impl LinkRecord {
    pub(crate) fn new((link, direction, packets): (usize, Towards, Counters)) -> Self {
        Self {
            link,
            direction,
            packets,
            blacked_out: packets.dropped.of(Cause::Outage),
        }
    }
}

impl Record {
    /// As JSON, without the end of the line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("records are plain data")
    }
}

/// What a run recorded, by kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    /// Transfers over QUIC connections.
    pub transfers: Vec<TransferRecord>,
    /// States of QUIC connections.
    pub samples: Vec<QuicSample>,
    /// Ends of QUIC connections.
    pub flows: Vec<QuicFlow>,
    /// States of sessions.
    pub tunnel_samples: Vec<TunnelSample>,
    /// Ends of applications' connections.
    pub tunnel_flows: Vec<TunnelFlow>,
    /// Sessions at the end.
    pub sessions: Vec<SessionRecord>,
    /// Both directions of each link.
    pub links: Vec<LinkRecord>,
}

impl Records {
    /// Runs `plan` and keeps everything; see [`run`](crate::run).
    pub fn of(plan: &Plan, base: Instant) -> Result<Self, PlanError> {
        let mut records = Self::default();
        crate::run(plan, base, &mut |record| records.push(record))?;
        Ok(records)
    }

    /// Adds `record` to those of its kind.
    pub fn push(&mut self, record: Record) {
        match record {
            Record::Transfer(transfer) => self.transfers.push(transfer),
            Record::Sample(SampleRecord::Quic(sample)) => self.samples.push(sample),
            Record::Sample(SampleRecord::Tunnel(sample)) => self.tunnel_samples.push(sample),
            Record::Flow(FlowRecord::Quic(flow)) => self.flows.push(flow),
            Record::Flow(FlowRecord::Tunnel(flow)) => self.tunnel_flows.push(flow),
            Record::Session(session) => self.sessions.push(session),
            Record::Link(link) => self.links.push(link),
        }
    }
}
