//! The content of HTTP datagrams of CONNECT-UDP (RFC 9298, section 5) and of CONNECT-IP
//! (RFC 9484, section 6): a context ID, and for context 0 the payload of a UDP datagram, or
//! an IP packet, which is no longer.

use bentpipe_quic::varint;
use bytes::{Buf, Bytes};

/// The context of UDP payloads and of IP packets, as it stands before each.
pub const UDP_PAYLOAD: u8 = 0;
/// The longest payload of a UDP datagram over IPv6, bytes.
pub const LONGEST: usize = 65_527;

/// Why a content is not a UDP payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// It has no complete context ID, or a payload that no UDP datagram has.
    #[error("malformed")]
    Malformed,
    /// It is of a context that was never agreed on, and is to be dropped.
    #[error("of unknown context {0}")]
    UnknownContext(u64),
}

/// The UDP payload, or IP packet, of a datagram's content.
pub fn udp_payload(mut content: Bytes) -> Result<Bytes, ContentError> {
    let (context, length) = varint::read(&content).ok_or(ContentError::Malformed)?;
    if context != u64::from(UDP_PAYLOAD) {
        return Err(ContentError::UnknownContext(context));
    }
    content.advance(length);
    if content.len() > LONGEST {
        return Err(ContentError::Malformed);
    }
    Ok(content)
}
