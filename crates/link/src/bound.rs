//! The physical lower bounds of a transfer: the least time in which it could be done.
//!
//! R is the round trip with empty queues, C the rate at the IP level, p the loss, S the
//! payload and h what a full packet carries of it:
//!
//! ```text
//! warm(S) = R + S * 8 * h / (C * (1 - p))      the session is open, or 0-RTT
//! cold(S) = warm(S) + R                        a handshake of one round trip before it
//! ```
//!
//! What needs n round trips that depend on each other, as a page does, pays R n times.

use bentpipe_units::{Bytes, Rate, Span};
use serde::Serialize;

/// The IP MTU that bounds assume, bytes.
pub const IP_MTU: u64 = 1500;

/// What a packet of [`IP_MTU`] carries of a QUIC stream, bytes: IPv4 header 20 (RFC 791),
/// UDP header 8 (RFC 768), short header 11 and stream frame header 8 (RFC 9000), and AEAD
/// tag 16 (RFC 9001) are 63.
pub const STREAM_PAYLOAD: u64 = 1437;

/// Bytes on the wire for each byte of a stream.
pub const WIRE_PER_PAYLOAD: f64 = IP_MTU as f64 / STREAM_PAYLOAD as f64;

/// The time on the wire of `payload` at `rate` where `loss` of it has to be sent again.
pub fn transfer(payload: Bytes, rate: Rate, loss: f64) -> Span {
    let bits = payload.as_u64() as f64 * 8.0 * WIRE_PER_PAYLOAD;
    Span::from_secs_f64(bits / (rate.bits_per_second() as f64 * (1.0 - loss)))
}

/// The bounds of one transfer in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct TransferBound {
    /// Time on the wire, nanoseconds.
    pub transfer_ns: u64,
    /// Over an open session, nanoseconds.
    pub warm_ns: u64,
    /// With a handshake of one round trip before, nanoseconds.
    pub cold_ns: u64,
}

impl TransferBound {
    /// For a path of `rtt` that is crossed `round_trips` times one after the other.
    pub fn new(transfer: Span, rtt: Span, round_trips: u32) -> Self {
        let waiting = rtt.as_nanos().saturating_mul(round_trips.into());
        let warm = Span::from_nanos(waiting) + transfer;
        Self {
            transfer_ns: transfer.as_nanos(),
            warm_ns: warm.as_nanos(),
            cold_ns: (warm + rtt).as_nanos(),
        }
    }
}

/// First byte of a new flow through split connections, over an open session: the gateway
/// connects before it can ask.
pub fn first_byte(satellite_rtt: Span, ground_rtt: Span) -> Span {
    satellite_rtt + ground_rtt + ground_rtt
}
