//! The `perf` application protocol of draft-banks-quic-performance-00, section 2.
//!
//! The client opens a stream, says in eight bytes how many bytes it wants, sends what it likes
//! and ends its side. The server reads to the end, sends so many bytes and ends its side. What
//! is in the bytes does not matter. On a bidirectional stream the answer comes on the same one,
//! on a unidirectional stream on one that the server opens.

use std::time::Duration;

use noq::VarInt;

/// The name that TLS negotiates.
pub const ALPN: &[u8] = b"perf";

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
