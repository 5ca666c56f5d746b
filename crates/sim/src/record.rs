//! What came of a run.

use bentpipe_link::Counters;
use serde::Serialize;

/// Everything that a run recorded, in the order of its flows and links.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    /// Transfers, also those that did not finish.
    pub transfers: Vec<TransferRecord>,
    /// Looks at the flows at equal intervals.
    pub samples: Vec<FlowSample>,
    /// Ends of flows.
    pub flows: Vec<FlowRecord>,
    /// Both directions of each link.
    pub links: Vec<LinkRecord>,
}

/// One transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransferRecord {
    /// Which flow.
    pub flow: usize,
    /// Which of its transfers.
    pub transfer: usize,
    /// What was asked for.
    pub bytes: u64,
    /// What arrived.
    pub received: u64,
    /// When the connection was begun, if this is the first over it, or else asked for.
    pub begun_ns: u64,
    /// When it was asked for.
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

/// One look at a flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowSample {
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
    /// Mean time that the packets since the last look waited in the forward direction's queues.
    pub waited_ns: Option<u64>,
    /// The longest of those times.
    pub waited_most_ns: Option<u64>,
}

/// The end of a flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowRecord {
    /// Which flow.
    pub flow: usize,
    /// Its controller.
    pub controller: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Packets that the gateway sent.
    pub sent: u64,
    /// Packets that the gateway gave up.
    pub lost: u64,
    /// Bytes at the IP level that the terminal sent: requests and acknowledgements.
    pub return_ip_bytes: u64,
    /// Bytes at the IP level that the gateway sent.
    pub forward_ip_bytes: u64,
}

/// What became of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "why")]
pub enum Verdict {
    /// All that was asked for has arrived.
    Ok,
    /// The plan's time was over first.
    TimedOut,
    /// The connection broke.
    Broken(String),
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkRecord {
    /// Which link.
    pub link: usize,
    /// Forward or return.
    pub direction: &'static str,
    /// What became of its packets.
    pub packets: Counters,
    /// Packets that entered during a blackout.
    pub blacked_out: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "record")]
enum Line<'a> {
    Transfer(&'a TransferRecord),
    Sample(&'a FlowSample),
    Flow(&'a FlowRecord),
    Link(&'a LinkRecord),
}

/// The first line of `records.jsonl`.
pub const SCHEMA: &str = r#"{"schema":"bentpipe/records/1"}"#;

impl Records {
    /// `records.jsonl` of a single run: one JSON object per line, the first one names the schema.
    pub fn to_jsonl(&self) -> String {
        format!("{SCHEMA}\n{}", self.lines())
    }

    /// The records alone, one JSON object per line.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        let lines = (self.transfers.iter().map(Line::Transfer))
            .chain(self.samples.iter().map(Line::Sample))
            .chain(self.flows.iter().map(Line::Flow))
            .chain(self.links.iter().map(Line::Link));
        for line in lines {
            text += &serde_json::to_string(&line).expect("records are plain data");
            text.push('\n');
        }
        text
    }
}
