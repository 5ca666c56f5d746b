//! Why there is no connection to a next hop.

use noq::{ConnectionError, VarInt};

use crate::close::{Code, describe};

/// TLS alert no_application_protocol (RFC 7301, section 3.2) as a QUIC error (RFC 9001, 4.8).
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// Why there is no connection to the next hop: what its client is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NextHopError {
    /// The error code.
    pub code: VarInt,
    /// And the reason.
    pub reason: String,
}

impl NextHopError {
    pub(crate) fn new(code: Code, reason: String) -> Self {
        Self {
            code: code.into(),
            reason,
        }
    }

    pub(crate) fn lost(address: &str, error: &ConnectionError) -> Self {
        let is_alpn = |code: u64| code == NO_APPLICATION_PROTOCOL;
        match error {
            // The server's own refusal goes on as it is.
            ConnectionError::ApplicationClosed(close) => Self {
                code: close.error_code,
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            ConnectionError::TransportError(own)
                if let Some(tls) = (own.crypto.as_deref())
                    .and_then(|error| error.downcast_ref::<rustls::Error>())
                    && !is_alpn(u64::from(own.code)) =>
            {
                let reason = format!("the certificate of {address} is not to be trusted: {tls}");
                Self::new(Code::Untrusted, reason)
            }
            ConnectionError::TransportError(own) if is_alpn(u64::from(own.code)) => {
                Self::protocol(address)
            }
            ConnectionError::ConnectionClosed(close) if is_alpn(u64::from(close.error_code)) => {
                Self::protocol(address)
            }
            ConnectionError::TimedOut => Self::silent(address),
            other => Self::new(
                Code::Refused,
                format!("{address} refused the connection: {}", describe(other)),
            ),
        }
    }

    fn protocol(address: &str) -> Self {
        let reason =
            format!("{address} does not speak the application protocol that was asked for");
        Self::new(Code::Protocol, reason)
    }

    pub(crate) fn silent(address: &str) -> Self {
        let reason = format!("{address} does not answer");
        Self::new(Code::Unreachable, reason)
    }
}
