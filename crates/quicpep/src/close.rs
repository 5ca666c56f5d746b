//! How connections are closed: the codes that a proxy has of its own, and how the end of one
//! connection becomes the end of the other.

use noq::{Connection, ConnectionError, VarInt};

/// Why a proxy itself closes a connection: the application error code that its peer sees.
/// None of them is one of HTTP/3's (RFC 9114, section 8.1); the reason beside it is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// There is no way to the server that the client has named.
    NoRoute = 0x6271,
    /// The next hop does not answer, or its name does not resolve.
    Unreachable = 0x6272,
    /// The next hop has answered, and refused the connection.
    Refused = 0x6278,
    /// The next hop's certificate is not to be trusted.
    Untrusted = 0x6273,
    /// The next hop does not speak the client's application protocol.
    Protocol = 0x6274,
    /// The connection on the other side was lost.
    Lost = 0x6275,
    /// The proxy has no room for another connection.
    Full = 0x6276,
    /// The proxy is being stopped.
    Stopping = 0x6277,
}

impl From<Code> for VarInt {
    fn from(code: Code) -> Self {
        Self::from_u32(code as u32)
    }
}

/// Closes `to` as its counterpart has ended: with the code and the reason that its peer gave,
/// or, where nobody gave any, with [`Code::Lost`] and what has happened.
pub fn pass_on(ended: &ConnectionError, to: &Connection) {
    match ended {
        ConnectionError::ApplicationClosed(close) => to.close(close.error_code, &close.reason),
        ConnectionError::LocallyClosed => to.close(Code::Stopping.into(), b"the proxy has ended"),
        other => to.close(
            Code::Lost.into(),
            format!("the proxy has lost the other side: {}", describe(other)).as_bytes(),
        ),
    }
}

/// Why a connection has ended, for people.
pub fn describe(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ConnectionClosed(close) if !close.reason.is_empty() => format!(
            "{} ({})",
            String::from_utf8_lossy(&close.reason),
            close.error_code
        ),
        ConnectionError::ApplicationClosed(close) => format!(
            "closed with code {} {:?}",
            close.error_code,
            String::from_utf8_lossy(&close.reason)
        ),
        ConnectionError::TimedOut => "nothing was heard for too long".into(),
        ConnectionError::Reset => "it has restarted".into(),
        error => error.to_string(),
    }
}
