//! Packet headers as far as they can be read without keys (RFC 9000, section 17; RFC
//! 8999).

use super::bytes::Input;

/// QUIC version 1.
pub const V1: u32 = 1;
/// QUIC version 2 (RFC 9369).
pub const V2: u32 = 0x6b33_43cf;

/// Longest connection ID of versions 1 and 2.
pub const LONGEST_ID: usize = 20;

/// A connection ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    len: u8,
    bytes: [u8; LONGEST_ID],
}

impl Id {
    /// `None` if there are more than 20 bytes.
    pub fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST_ID];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self {
            len: u8::try_from(id.len()).ok()?,
            bytes,
        })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What kind of packet it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The first packets of a handshake.
    Initial,
    /// Data in the first flight of a resumed connection.
    ZeroRtt,
    /// The rest of the handshake.
    Handshake,
    /// A server that wants the client's address proved first.
    Retry,
    /// A list of versions instead of an answer.
    VersionNegotiation,
    /// Everything after the handshake.
    OneRtt,
}

impl Kind {
    /// As qlog writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::ZeroRtt => "0RTT",
            Self::Handshake => "handshake",
            Self::Retry => "retry",
            Self::VersionNegotiation => "version_negotiation",
            Self::OneRtt => "1RTT",
        }
    }
}

/// A packet with a long header.
#[derive(Debug, Clone, Copy)]
pub struct Long<'a> {
    /// What kind.
    pub kind: Kind,
    /// The version field.
    pub version: u32,
    /// To which ID.
    pub destination: Id,
    /// From which ID.
    pub source: Id,
    /// The token of an Initial packet.
    pub token: &'a [u8],
    /// Where the packet number begins.
    pub number_at: usize,
    /// Length of the packet in its datagram, as far as it is there.
    pub len: usize,
    /// Whether all of it is there.
    pub whole: bool,
}

/// Whether the packet that begins with `first` has a long header.
pub fn is_long(first: u8) -> bool {
    first & 0x80 != 0
}

/// Reads the long header at the beginning of `datagram`; `None` if it is none of a version
/// known here. The fixed bit may be anything (RFC 9287).
pub fn long(datagram: &[u8]) -> Option<Long<'_>> {
    let mut input = Input(datagram);
    let first = input.u8()?;
    let version = input.u32()?;
    let destination_len = input.u8()?;
    let destination = Id::new(input.take(destination_len.into())?)?;
    let source_len = input.u8()?;
    let source = Id::new(input.take(source_len.into())?)?;
    let kind = match (version, first >> 4 & 3) {
        (0, _) => Kind::VersionNegotiation,
        (V1, 0) | (V2, 1) => Kind::Initial,
        (V1, 1) | (V2, 2) => Kind::ZeroRtt,
        (V1, 2) | (V2, 3) => Kind::Handshake,
        (V1, 3) | (V2, 0) => Kind::Retry,
        _ => return None,
    };
    let whole = |at| Long {
        kind,
        version,
        destination,
        source,
        token: &[],
        number_at: at,
        len: datagram.len(),
        whole: true,
    };
    if matches!(kind, Kind::VersionNegotiation | Kind::Retry) {
        return Some(whole(datagram.len() - input.0.len()));
    }
    let token = match kind {
        Kind::Initial => input.string()?,
        _ => &[],
    };
    let len = usize::try_from(input.varint()?).ok()?;
    let number_at = datagram.len() - input.0.len();
    Some(Long {
        token,
        number_at,
        len: number_at + len.min(input.0.len()),
        whole: len <= input.0.len(),
        ..whole(number_at)
    })
}
