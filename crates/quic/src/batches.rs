//! Batches of datagrams (GSO), once the QUIC library can build them.
//!
//! All datagrams of a batch are as long as its first. During a handshake that may have 50 bytes, an
//! acknowledgement alone, and what the library (1.3.0) writes into the next it does not measure first:
//! ACK_FREQUENCY, which it sends anew when the round trip changes, and acknowledgements. What is too long
//! for such a datagram makes it panic, and that is the end of the endpoint with all its connections.
//! So many handshakes at once that timers expire are enough for it.
//!
//! Such a first datagram has a long header. When a handshake is confirmed its keys are dropped (RFC
//! 9001, section 4.9), and there is none any more. Until [`SINGLE`] datagrams in a row had short headers,
//! datagrams therefore go out one by one.
//!
//! Later it is the first of two probes that follow a silence (RFC 9002, section 6.2.4): 30 bytes, and in the
//! second what has been lost. No probe is due within [`BUSY`] after a packet that asks for an acknowledgement,
//! as every packet of full length does: otherwise datagrams go out one by one then, too.

use std::num::NonZeroUsize;
use std::time::Duration;

use noq::udp::Transmit;
use tokio::time::Instant;

use crate::clock::now;
use crate::layer::{Layer, Sending};

/// More than most initial windows hold: what has been sent since has been acknowledged, and with it the
/// handshake.
const SINGLE: u32 = 256;
/// A packet of full length has so many bytes at least (RFC 9000, section 14): more than any acknowledgement.
const FULL: usize = 1200;
/// Less than the least time until a probe: a timer's granularity, and what an acknowledgement may be late by
/// (RFC 9002, section 6.2.1), for which [`crate::acks`] asks with 5 ms at least.
const BUSY: Duration = Duration::from_millis(5);

/// Whether a connection may send batches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batches {
    /// Datagrams with short headers since the last with a long one.
    short: u32,
    /// When the last packet of full length was sent.
    full: Option<Instant>,
}

impl Batches {
    /// Of the batches that could be sent, those that may be.
    pub fn limit(&self, now: Instant, most: NonZeroUsize) -> NonZeroUsize {
        let busy = self.full.is_some_and(|sent| now < sent + BUSY);
        match busy && self.short >= SINGLE {
            true => most,
            false => NonZeroUsize::MIN,
        }
    }

    /// A datagram, or a batch of such of `segment` bytes, has been sent.
    pub fn on_sent(&mut self, now: Instant, contents: &[u8], segment: usize) {
        /// Header form (RFC 9000, section 17.2).
        const LONG: u8 = 0x80;
        self.short = match contents.first() {
            Some(first) if first & LONG == 0 => self.short.saturating_add(1),
            _ => 0,
        };
        if segment >= FULL {
            self.full = Some(now);
        }
    }
}

/// Over a socket whose connections send batches when they may.
#[derive(Debug)]
pub struct Batching;

impl Layer for Batching {
    fn sending(&self) -> Option<Box<dyn Sending>> {
        Some(Box::new(Batches::default()))
    }
}

impl Sending for Batches {
    fn on_sent(&mut self, transmit: &Transmit<'_>) {
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len());
        self.on_sent(now(), transmit.contents, segment);
    }

    fn batch(&self, most: NonZeroUsize) -> NonZeroUsize {
        self.limit(now(), most)
    }
}
