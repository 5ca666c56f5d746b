//! What is said on a connection: the `perf` protocol of draft-banks-quic-performance-00, section 2,
//! and the names of the others that a measurement may speak.
//!
//! The client opens a stream, says in eight bytes how many bytes it wants, sends what it likes
//! and ends its side. The server reads to the end, sends so many bytes and ends its side. What
//! is in the bytes does not matter. On a bidirectional stream the answer comes on the same one,
//! on a unidirectional stream on one that the server opens.

use std::time::Duration;

use noq::VarInt;

/// The name of the `perf` protocol that TLS negotiates.
pub const ALPN: &[u8] = b"perf";

/// An application protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Application {
    /// draft-banks-quic-performance.
    #[default]
    Perf,
    /// HTTP/3 (RFC 9114).
    Http3,
    /// HTTP/0.9 over QUIC, as the QUIC Interop Runner has it.
    Http09,
}

impl Application {
    /// Those that a server of files speaks, in the order of its preference.
    pub const ALL: [Self; 3] = [Self::Http3, Self::Http09, Self::Perf];

    /// The name that TLS negotiates.
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Perf => ALPN,
            Self::Http3 => b"h3",
            Self::Http09 => b"hq-interop",
        }
    }

    /// The code of a connection that ends well.
    pub const fn no_error(self) -> VarInt {
        match self {
            Self::Perf | Self::Http09 => NO_ERROR,
            // H3_NO_ERROR (RFC 9114, section 8.1).
            Self::Http3 => VarInt::from_u32(0x100),
        }
    }

    /// The one that `connection` has negotiated, once that is known.
    pub fn of(connection: &noq::Connection) -> Option<Self> {
        let name = bentpipe_quic::version2::keys::application_protocol(connection)?;
        Self::ALL.into_iter().find(|each| each.alpn() == name)
    }
}

/// Where a server listens if nobody says otherwise: the port of HTTP/3's alternatives, which
/// other perf tools also use.
pub const PORT: u16 = 4433;

/// Bytes at the beginning of a stream that say how many bytes the server shall send.
pub const HEADER: usize = 8;

/// A request without an end: the client stops it when it has enough.
pub const UNLIMITED: u64 = u64::MAX;

/// The code of a connection, stream or request that ends well.
pub const NO_ERROR: VarInt = VarInt::from_u32(0);

/// How long a silent path is believed in. Longer than any outage that is to be measured.
pub const IDLE: Duration = Duration::from_secs(60);

/// The beginning of a stream on which the server shall send `bytes`.
pub const fn header(bytes: u64) -> [u8; HEADER] {
    bytes.to_be_bytes()
}

/// What the beginning of a stream asks for.
pub const fn wanted(header: [u8; HEADER]) -> u64 {
    u64::from_be_bytes(header)
}
