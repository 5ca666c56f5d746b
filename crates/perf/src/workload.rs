//! What a client does on its connections.

use std::fmt;

use bentpipe_units::{Bytes, Span};

use crate::datagrams::{self, Datagrams};
use crate::error::PerfError;
use crate::parameters::STREAMS;
use crate::protocol::HEADER;

/// What a client does, on each of its connections alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// How many connections, all begun at once.
    pub connections: u32,
    /// Streams of each transfer, at once; a number of bytes is divided among them.
    pub streams: u32,
    /// From the server.
    pub download: Option<Amount>,
    /// To the server.
    pub upload: Option<Amount>,
    /// Small requests, one after the other, beside the transfers or alone.
    pub requests: Option<Requests>,
    /// Datagrams at a rate, answered by the server.
    pub datagrams: Option<Datagrams>,
    /// How often a line is recorded.
    pub interval: Span,
    /// It is over when nothing has moved for so long, and no pause of its own explains that.
    pub stall: Span,
    /// Whether each change of a sender's state is recorded.
    pub changes: bool,
}

/// How much is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(Bytes),
    /// As many as go in so long.
    Time(Span),
}

/// Small requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Until so many are answered or so much time is over.
    pub amount: RequestAmount,
    /// Bytes of one, its header included.
    pub request: Bytes,
    /// Bytes of its answer.
    pub response: Bytes,
    /// From the beginning of one to that of the next; at once when the answer takes longer.
    pub every: Span,
}

/// How many requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestAmount {
    /// So many.
    Count(u64),
    /// As many as go in so long.
    Time(Span),
}

/// Intervals that a measurement may have: a day of seconds.
const MOST_INTERVALS: u64 = 100_000;
/// Most connections.
const MOST_CONNECTIONS: u32 = 1_000;
/// The shortest interval.
const SHORTEST: Span = Span::from_millis(1);
/// How long nothing may move if nobody says otherwise: as long as a silent path is believed in.
pub const STALL: Span = Span::from_millis(60_000);
/// The least and the most of it.
const STALLS: (Span, Span) = (Span::from_millis(100), Span::from_millis(86_400_000));

impl Default for Workload {
    /// A download of ten seconds.
    fn default() -> Self {
        Self {
            connections: 1,
            streams: 1,
            download: Some(Amount::Time(Span::from_millis(10_000))),
            upload: None,
            requests: None,
            datagrams: None,
            interval: Span::from_millis(1_000),
            stall: STALL,
            changes: false,
        }
    }
}

impl Workload {
    /// A download and nothing else.
    pub fn download(amount: Amount) -> Self {
        Self {
            download: Some(amount),
            ..Self::default()
        }
    }

    /// An upload and nothing else.
    pub fn upload(amount: Amount) -> Self {
        Self {
            download: None,
            upload: Some(amount),
            ..Self::default()
        }
    }

    /// Requests and nothing else.
    pub fn requests(requests: Requests) -> Self {
        Self {
            download: None,
            requests: Some(requests),
            ..Self::default()
        }
    }

    /// Checks that the workload can be done and ends.
    pub fn check(&self) -> Result<(), PerfError> {
        let wrong = |text: String| Err(PerfError::Workload(text));
        if !(1..=MOST_CONNECTIONS).contains(&self.connections) {
            return wrong(format!(
                "{} connections: give 1 to {MOST_CONNECTIONS}",
                self.connections
            ));
        }
        // Requests have a stream each beside those of the transfers.
        let most = STREAMS / 2 - 1;
        if !(1..=most).contains(&self.streams) {
            return wrong(format!("{} streams: give 1 to {most}", self.streams));
        }
        let transfers = self.download.is_some() || self.upload.is_some();
        if self.streams > 1 && !transfers {
            return wrong(format!(
                "{} streams without a transfer: requests and datagrams have none of them; give a download or an upload",
                self.streams
            ));
        }
        if !transfers && self.requests.is_none() && self.datagrams.is_none() {
            return wrong(
                "nothing to do: give a download, an upload, requests or datagrams".into(),
            );
        }
        if self.interval < SHORTEST {
            return wrong(format!("interval {}: give at least 1 ms", self.interval));
        }
        check_stall(self.stall)?;
        for amount in self.download.iter().chain(&self.upload) {
            match amount {
                Amount::Bytes(bytes) if bytes.as_u64() > 1 << 50 => {
                    return wrong(format!("{bytes}: give at most 1 PiB"));
                }
                Amount::Time(time) => self.check_time(*time)?,
                Amount::Bytes(_) => {}
            }
        }
        if let Some(datagrams) = &self.datagrams {
            if self.upload.is_some() {
                return wrong(
                    "datagrams beside an upload: both leave through this end's congestion window; measure one after the other".into(),
                );
            }
            if !(datagrams::LEAST..=1_400).contains(&datagrams.size) {
                return wrong(format!(
                    "datagrams of {} bytes: give {} to 1400",
                    datagrams.size,
                    datagrams::LEAST
                ));
            }
            let rate = datagrams.rate.bits_per_second();
            if !(1_000..=10_000_000_000).contains(&rate) {
                return wrong(format!(
                    "datagrams at {}: give 1 kbit/s to 10 Gbit/s",
                    datagrams.rate
                ));
            }
            self.check_time(datagrams.time)?;
        }
        if let Some(requests) = &self.requests {
            if requests.request.as_u64() < HEADER as u64 {
                return wrong(format!(
                    "requests of {}: a request has at least {HEADER} bytes",
                    requests.request
                ));
            }
            for bytes in [requests.request, requests.response] {
                if bytes.as_u64() > 1 << 30 {
                    return wrong(format!("requests of {bytes}: give at most 1 GiB"));
                }
            }
            match requests.amount {
                RequestAmount::Count(0) => {
                    return wrong("no requests: give at least one".into());
                }
                RequestAmount::Count(_) => {}
                RequestAmount::Time(time) => self.check_time(time)?,
            }
        }
        Ok(())
    }

    /// The longest that it pauses by itself.
    pub(crate) fn longest_pause(&self) -> Span {
        let between = self.requests.map_or(Span::ZERO, |requests| requests.every);
        let apart = self.datagrams.map_or(Span::ZERO, |what| what.gap());
        between.max(apart)
    }

    fn check_time(&self, time: Span) -> Result<(), PerfError> {
        let intervals = time.as_nanos() / self.interval.as_nanos().max(1);
        if time == Span::ZERO || intervals > MOST_INTERVALS {
            return Err(PerfError::Workload(format!(
                "{time} in intervals of {}: give a time of 1 to {MOST_INTERVALS} intervals",
                self.interval
            )));
        }
        Ok(())
    }
}

/// Checks how long nothing may move.
pub fn check_stall(stall: Span) -> Result<(), PerfError> {
    if !(STALLS.0..=STALLS.1).contains(&stall) {
        return Err(PerfError::Workload(format!(
            "stall {stall}: give {} to {}",
            STALLS.0, STALLS.1
        )));
    }
    Ok(())
}

impl fmt::Display for Amount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(out, "{bytes}"),
            Self::Time(time) => write!(out, "{time}"),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(amount) = self.download {
            parts.push(format!("download of {amount}"));
        }
        if let Some(amount) = self.upload {
            parts.push(format!("upload of {amount}"));
        }
        if let Some(requests) = &self.requests {
            let amount = match requests.amount {
                RequestAmount::Count(count) => format!("{count} requests"),
                RequestAmount::Time(time) => format!("requests for {time}"),
            };
            parts.push(format!(
                "{amount} of {} with answers of {}",
                requests.request, requests.response
            ));
        }
        if let Some(datagrams) = &self.datagrams {
            parts.push(format!(
                "datagrams of {} bytes at {} for {}",
                datagrams.size, datagrams.rate, datagrams.time
            ));
        }
        write!(
            out,
            "{}, {} connections with {} streams each",
            parts.join(" and "),
            self.connections,
            self.streams
        )
    }
}
