//! ACK frequency: how often the peer acknowledges (draft-ietf-quic-ack-frequency).
//!
//! Four times per round trip is enough on an asymmetric link (draft-kuhn-quic-4-sat), and
//! at least once is asked for. More than ten packets per acknowledgement save little: one
//! for ten is 64 bytes for 15,000, 0.43 %, and a link of 50/0.5 Mbit/s has 1 % for the way
//! back. Fewer acknowledgements would only delay repairs and coarsen what is measured.
//!
//! On slow links it is fewer packets, those of 10 ms: the timer cannot be relied on. The QUIC
//! library (1.3.0) stops it whenever it acknowledges packets of the handshake, and starts it only
//! when an acknowledgement has gone: until then none goes before the packets are complete, and of
//! a first flight that meets a short queue they never are.
//!
//! The QUIC library sends these numbers once. It sends others while a connection runs only
//! when the delay, which it bounds by the round-trip time but not below 25 ms, changes by
//! a fifth; the delays asked for here are never so long. The number of packets is fixed.

use bentpipe_units::{Rate, Span};

/// Most packets for one acknowledgement: see above.
const MAX_PACKETS: u64 = 10;
/// Least, as RFC 9000, section 13.2.2 recommends.
const MIN_PACKETS: u64 = 2;
/// Acknowledgements per round trip.
const PER_ROUND_TRIP: u64 = 4;
/// How long the packets of one acknowledgement take to come, at most, if they are more than the least.
const LONGEST_WAIT: Span = Span::from_millis(10);
/// RFC 9000's max_ack_delay: 4 % of a GEO round trip.
const MAX_DELAY: Span = Span::from_millis(25);
/// A timer's granularity and something.
const MIN_DELAY: Span = Span::from_millis(5);

/// What is asked of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acks {
    /// Packets for one acknowledgement.
    pub packets: u32,
    /// The longest that an acknowledgement waits for them.
    pub within: Span,
}

impl Acks {
    /// For packets of `packet` bytes that come at most at `rate` over a round trip of `rtt`.
    pub fn over(rate: Rate, rtt: Span, packet: u16) -> Self {
        let quarter = Span::from_nanos(rtt.as_nanos() / PER_ROUND_TRIP);
        let waits = quarter.min(LONGEST_WAIT);
        let packets = rate.bytes_in(waits).as_u64() / u64::from(packet.max(1));
        let packets = packets.clamp(MIN_PACKETS, MAX_PACKETS);
        Self {
            packets: u32::try_from(packets).expect("at most ten"),
            within: quarter.clamp(MIN_DELAY, MAX_DELAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (Mbit/s, ms) -> (packets, ms): 1472 bytes at 1 Mbit/s take 11.8 ms.
    #[test]
    fn four_per_round_trip_and_what_comes_in_10_ms_and_ten_packets_at_most() {
        for (mbit, rtt, packets, within) in [
            (20, 600, 10, 25),
            (250, 650, 10, 25),
            // 10 ms at 5 Mbit/s are 4.2 packets, at 1 Mbit/s not one: RFC 9000's two.
            (5, 600, 4, 25),
            (1, 600, 2, 25),
            (1, 60, 2, 15),
            // 7.5 ms at 10 Mbit/s are 6.4 packets.
            (10, 30, 6, 7),
            (100, 4, 8, 5),
        ] {
            let rate = Rate::from_bits_per_second(mbit * 1_000_000);
            let acks = Acks::over(rate, Span::from_millis(rtt), 1472);
            assert_eq!(acks.packets, packets, "{mbit} Mbit/s, {rtt} ms");
            assert_eq!(
                acks.within.as_nanos() / 1_000_000,
                within,
                "{mbit} Mbit/s, {rtt} ms"
            );
        }
    }
}
