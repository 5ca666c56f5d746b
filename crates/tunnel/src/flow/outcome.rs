//! The outcome of a flow: what it has carried, and why it ended.

use std::io;

use h3::error::StreamError;

use crate::wire::proxy_status::{ErrorKind, Refusal};

/// Bytes that a flow has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Carried {
    /// From the local socket into the tunnel.
    pub up: u64,
    /// From the tunnel to the local socket.
    pub down: u64,
}

/// Why a flow ended before both sides had finished.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The local side broke.
    #[error("the local connection broke: {0}")]
    Local(io::Error),
    /// The stream broke: reset by the other end, or its session lost.
    #[error("the tunnel's stream broke: {0}")]
    Stream(#[from] StreamError),
    /// The other end reads no more.
    #[error("the other end reads no more")]
    Stopped,
    /// The gateway did not open the flow.
    #[error("the gateway refused: {0}")]
    Refused(#[from] Refusal),
    /// The other end's datagrams or capsules make no sense.
    #[error("the other end sent a malformed datagram or capsule")]
    Malformed,
    /// Too many flows are open, and this one was idle for longest.
    #[error("ended: the longest idle of too many UDP flows")]
    Evicted,
    /// Too many connections are open, and this one is the newest of the host with most.
    #[error("reset: its host has most of too many connections, and another needs a place")]
    GivenWay,
    /// Too many flows have stalled, and this one for longest.
    #[error("reset: the longest-stalled of too many stalled flows")]
    Stalled,
    /// The gateway did not say whether it opens the flow.
    #[error("the gateway did not answer in time")]
    Unanswered,
    /// There was no session in time.
    #[error("there is no session with the gateway")]
    NoSession,
}

impl FlowError {
    /// The kind of failure, for counters: one word.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Stream(_) => "stream",
            Self::Stopped => "stopped",
            Self::Refused(refusal) => refusal.kind.name(),
            Self::Malformed => "malformed",
            Self::Evicted => "evicted",
            Self::GivenWay => "too_many_flows",
            Self::Stalled => "stalled",
            Self::Unanswered => "unanswered",
            Self::NoSession => "no_session",
        }
    }

    /// What an application is told of it, in the terms of Proxy-Status.
    pub fn refusal(&self) -> Refusal {
        let kind = match self {
            Self::Refused(refusal) => return refusal.clone(),
            Self::Unanswered | Self::NoSession => ErrorKind::ConnectionTimeout,
            Self::Stalled | Self::Evicted | Self::GivenWay => ErrorKind::ConnectionLimitReached,
            Self::Malformed => ErrorKind::ProxyInternalError,
            Self::Local(_) | Self::Stream(_) | Self::Stopped => ErrorKind::ConnectionTerminated,
        };
        Refusal {
            kind,
            detail: self.to_string(),
        }
    }
}
