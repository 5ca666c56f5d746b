//! What the IP header of a datagram says to those on its way: ECN, and whether it may be cut.

use bytes::Bytes;
use noq_proto::EcnCodepoint;

/// The markings of a datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marking {
    /// The ECN field (RFC 3168, section 5); `None` is Not-ECT.
    pub ecn: Option<EcnCodepoint>,
    /// Its sender wants to be told where it is too long, rather than have it cut (RFC 1191), as every
    /// datagram of IPv6 that comes whole (RFC 8200, section 5).
    pub dont_fragment: bool,
}

/// A datagram's markings and its payload.
pub type Marked = (Marking, Bytes);
