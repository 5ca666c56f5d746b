//! Counts of datagrams that one end has dropped, by cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// Too much waited to be sent, of its host or of all.
    SendQueueFull,
    /// It had waited too long to be sent, in a queue that stood (RFC 8289).
    WaitedTooLong,
    /// The path became narrower while it waited.
    PathNarrowed,
    /// It was QUIC's, which is never cut, and longer than the path takes.
    PacketTooBig,
    /// It came faster than its flow's local side took it.
    ReceiveQueueFull,
    /// Its request was over, or had not come in time.
    NoRequest,
    /// It was of a context that nobody had agreed on (RFC 9298, section 4).
    UnknownContext,
}

impl DropCause {
    /// All causes.
    pub const ALL: [Self; 7] = [
        Self::SendQueueFull,
        Self::WaitedTooLong,
        Self::PathNarrowed,
        Self::PacketTooBig,
        Self::ReceiveQueueFull,
        Self::NoRequest,
        Self::UnknownContext,
    ];

    /// The cause's name in records and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::SendQueueFull => "send_queue_full",
            Self::WaitedTooLong => "waited_too_long",
            Self::PathNarrowed => "path_narrowed",
            Self::PacketTooBig => "packet_too_big",
            Self::ReceiveQueueFull => "receive_queue_full",
            Self::NoRequest => "no_request",
            Self::UnknownContext => "unknown_context",
        }
    }
}

/// Counts datagrams that were dropped. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Drops(Arc<[AtomicU64; DropCause::ALL.len()]>);

impl Drops {
    /// Counts `datagrams` that were dropped because of `cause`.
    pub fn add(&self, cause: DropCause, datagrams: u64) {
        self.0[cause as usize].fetch_add(datagrams, Ordering::Relaxed);
    }

    /// How many were dropped because of `cause` so far.
    pub fn of(&self, cause: DropCause) -> u64 {
        self.0[cause as usize].load(Ordering::Relaxed)
    }
}
