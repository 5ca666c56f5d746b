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

use std::num::NonZeroUsize;

use noq::udp::Transmit;

use crate::layer::{Layer, Sending};

/// More than most initial windows hold: what has been sent since has been acknowledged, and with it the
/// handshake.
const SINGLE: u32 = 256;

/// Whether a connection may send batches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batches {
    /// Datagrams with short headers since the last with a long one.
    short: u32,
}

impl Batches {
    /// Of the batches that could be sent, those that may be.
    pub fn limit(&self, most: NonZeroUsize) -> NonZeroUsize {
        match self.short < SINGLE {
            true => NonZeroUsize::MIN,
            false => most,
        }
    }

    /// A datagram, or a batch that begins so, has been sent.
    pub fn on_sent(&mut self, contents: &[u8]) {
        /// Header form (RFC 9000, section 17.2).
        const LONG: u8 = 0x80;
        self.short = match contents.first() {
            Some(first) if first & LONG == 0 => self.short.saturating_add(1),
            _ => 0,
        };
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
        self.on_sent(transmit.contents);
    }

    fn batch(&self, most: NonZeroUsize) -> NonZeroUsize {
        self.limit(most)
    }
}
