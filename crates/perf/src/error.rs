//! Why a measurement fails, for whoever has to do something about it.

use std::net::SocketAddr;

use bentpipe_units::Span;
use noq::{ConnectError, ConnectionError};

/// Why a measurement fails.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PerfError {
    /// Nothing came back.
    #[error(
        "no answer from {address} within {after}: is `bentpipe perf server` running there, and is {protocol} let through?"
    )]
    Unanswered {
        /// Who was asked.
        address: SocketAddr,
        /// How long it was waited.
        after: Span,
        /// UDP or TCP.
        protocol: &'static str,
    },
    /// Nobody takes connections there, or no way leads there.
    #[error("cannot connect to {address}: {why}")]
    Unreached {
        /// Who was to be reached.
        address: SocketAddr,
        /// Why not.
        why: String,
    },
    /// The server's certificate.
    #[error(
        "the certificate of {address} is not trusted ({why}); give its CA or itself with --ca FILE, or its key's --fingerprint, which `bentpipe perf server` prints"
    )]
    Untrusted {
        /// Whose.
        address: SocketAddr,
        /// What TLS says.
        why: String,
    },
    /// The server has other application protocols.
    #[error("{address} does not offer the application protocol {alpn:?}")]
    Protocol {
        /// Who.
        address: SocketAddr,
        /// What was wanted.
        alpn: String,
    },
    /// No version in common.
    #[error("{address} speaks no version of QUIC that this end does")]
    Version {
        /// Who.
        address: SocketAddr,
    },
    /// The connection cannot even be begun.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// Who was to be reached.
        address: SocketAddr,
        /// Why not.
        why: String,
    },
    /// The connection ended early.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// A stream ended early.
    #[error("a stream was broken off by the other end (code {0})")]
    Broken(u64),
    /// Nothing moves any more.
    #[error(
        "stalled: nothing has moved for {after}, after {received} bytes received and {sent} bytes sent"
    )]
    Stalled {
        /// How long it was waited.
        after: Span,
        /// Bytes of streams that had arrived here.
        received: u64,
        /// And that were handed to the transport.
        sent: u64,
    },
    /// A download for a time has brought nothing.
    #[error(
        "nothing came within {0}: the server has answered nothing, or the path is slower than that"
    )]
    Nothing(Span),
    /// Early data were not taken; the streams of it are void.
    #[error("the server refused early data")]
    EarlyDataRefused,
    /// The server did not send what it was asked for.
    #[error("the server was asked for {wanted} bytes on a stream and sent {got}{}", if got > wanted { " or more" } else { "" })]
    Length {
        /// What was asked for.
        wanted: u64,
        /// What came.
        got: u64,
    },
    /// The other end takes no datagrams.
    #[error("the server takes no datagrams (RFC 9221)")]
    NoDatagrams,
    /// A file cannot be had, for a reason of HTTP's.
    #[error("{path}: {why}")]
    File {
        /// The path that was asked for.
        path: String,
        /// Why not.
        why: String,
    },
    /// Whoever measures wants no more.
    #[error("stopped before it was done")]
    Stopped,
    /// The workload cannot be.
    #[error("{0}")]
    Workload(String),
    /// The TLS library refuses what it was given.
    #[error("{0}")]
    Tls(String),
}

/// QUIC's code for a TLS alert: this and the alert's number (RFC 9001, section 4.8).
const CRYPTO: u64 = 0x100;
/// The alert no_application_protocol (RFC 7301, section 3.2).
const NO_APPLICATION_PROTOCOL: u64 = 120;

/// What TLS has found wrong at this end.
fn tls(error: &noq_proto::TransportError) -> Option<&rustls::Error> {
    error.crypto.as_deref()?.downcast_ref()
}

impl PerfError {
    /// Whether nobody has answered at the address: of a server with several, another may.
    pub const fn is_of_the_address(&self) -> bool {
        matches!(self, Self::Unanswered { .. } | Self::Unreached { .. })
    }

    /// What the end of a connection to `address` means.
    pub fn connection(error: &ConnectionError, address: SocketAddr, alpn: &[u8]) -> Self {
        let code = match error {
            ConnectionError::TransportError(error) => Some(u64::from(error.code)),
            ConnectionError::ConnectionClosed(close) => Some(u64::from(close.error_code)),
            _ => None,
        };
        match (error, code) {
            (_, Some(code)) if code == CRYPTO + NO_APPLICATION_PROTOCOL => Self::Protocol {
                address,
                alpn: String::from_utf8_lossy(alpn).into_owned(),
            },
            (ConnectionError::TransportError(error), _) => match tls(error) {
                // The second is how a verifier of keys says it.
                Some(rustls::Error::InvalidCertificate(_) | rustls::Error::General(_)) => {
                    Self::Untrusted {
                        address,
                        why: error.reason.to_string(),
                    }
                }
                Some(other) => Self::Connect {
                    address,
                    why: format!("its TLS handshake fails: {other}"),
                },
                None => Self::Lost(error.to_string()),
            },
            (ConnectionError::VersionMismatch, _) => Self::Version { address },
            _ => Self::Lost(error.to_string()),
        }
    }

    /// A connection that cannot be begun.
    pub fn connect(error: &ConnectError, address: SocketAddr) -> Self {
        match error {
            ConnectError::UnsupportedVersion => Self::Version { address },
            error => Self::Connect {
                address,
                why: error.to_string(),
            },
        }
    }
}

impl From<noq::WriteError> for PerfError {
    fn from(error: noq::WriteError) -> Self {
        match error {
            noq::WriteError::Stopped(code) => Self::Broken(code.into_inner()),
            noq::WriteError::ZeroRttRejected => Self::EarlyDataRefused,
            noq::WriteError::ConnectionLost(why) => Self::Lost(why.to_string()),
            error => Self::Lost(error.to_string()),
        }
    }
}

impl From<noq::ReadError> for PerfError {
    fn from(error: noq::ReadError) -> Self {
        match error {
            noq::ReadError::Reset(code) => Self::Broken(code.into_inner()),
            noq::ReadError::ZeroRttRejected => Self::EarlyDataRefused,
            noq::ReadError::ConnectionLost(why) => Self::Lost(why.to_string()),
            error => Self::Lost(error.to_string()),
        }
    }
}
