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

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};

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

/// A socket whose connections send batches when they may.
#[derive(Debug)]
pub struct BatchingSocket(pub Box<dyn AsyncUdpSocket>);

impl AsyncUdpSocket for BatchingSocket {
    /// The library asks for one for each connection.
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(BatchingSender {
            inner: self.0.create_sender(),
            batches: Batches::default(),
        })
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_receive_segments(&self) -> NonZeroUsize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}

#[derive(Debug)]
struct BatchingSender {
    inner: Pin<Box<dyn UdpSender>>,
    batches: Batches,
}

impl UdpSender for BatchingSender {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.inner.as_mut().poll_send(transmit, context))?;
        self.batches.on_sent(transmit.contents);
        Poll::Ready(Ok(()))
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.batches.limit(self.inner.max_transmit_segments())
    }
}
