//! What came of a run through the tunnel, line by line as it comes.

use serde::Serialize;

pub use crate::record::LinkRecord;

/// One line of `records.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "record")]
pub enum Line {
    /// A look at a session.
    Sample(Sample),
    /// The end of a flow.
    Flow(FlowRecord),
    /// A terminal's session at the end of the run.
    Session(SessionRecord),
    /// One direction of a link at the end of the run.
    Link(LinkRecord),
}

/// A look at a terminal's session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Path {
    /// Congestion window, bytes.
    pub window: u64,
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// Packets sent so far.
    pub sent: u64,
    /// Packets given up so far.
    pub lost: u64,
}

/// The end of a flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowRecord {
    /// Which terminal.
    pub terminal: usize,
    /// Which of its flows.
    pub flow: usize,
    /// Which way most of it goes: `download` or `upload`.
    pub work: &'static str,
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
    /// What became of it.
    pub verdict: Verdict,
}

impl FlowRecord {
    /// Seconds from the connection to the last byte of the answer, of a flow that went well.
    pub fn seconds(&self) -> Option<f64> {
        let done = self.done_ns.filter(|_| self.verdict == Verdict::Ok)?;
        Some((done - self.begun_ns) as f64 / 1e9)
    }

    /// Seconds from the connection to the first byte of the answer.
    pub fn first_byte_s(&self) -> Option<f64> {
        Some((self.first_byte_ns? - self.begun_ns) as f64 / 1e9)
    }
}

/// What became of a flow, as its application sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
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

impl Verdict {
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

/// A terminal's session.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

impl Line {
    /// As JSON, without the end of the line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("records are plain data")
    }
}
