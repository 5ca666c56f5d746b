//! The local side of a flow on a TCP socket of the machine.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bentpipe_tunnel::sockets::Socket;
use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::kernel_memory::{KernelMemory, Lent, UNSENT};

/// A peer that has vanished without a word is noticed after about ten minutes; RFC
/// 5382 lets NATs forget a silent connection after two hours at the earliest.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(300), Duration::from_secs(60), 5);

/// A connection that is reset when it is dropped, also when the process is killed.
#[derive(Debug)]
pub struct TcpFlow {
    stream: Arc<TcpStream>,
    /// What was read of it before it became a flow.
    early: Bytes,
    /// What the kernel may hold for it, if that is bounded.
    lent: Option<Lent>,
}

impl TcpFlow {
    /// Makes `stream` a flow's local side.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        prepare(SockRef::from(&stream))?;
        Ok(Self::prepared(stream))
    }

    /// The same of a `stream` that a [prepared](prepare) listener has accepted.
    pub(crate) fn prepared(stream: TcpStream) -> Self {
        Self {
            stream: Arc::new(stream),
            early: Bytes::new(),
            lent: None,
        }
    }

    /// The same, which the kernel may hold a part of `memory` for.
    pub(crate) fn bounded(self, memory: &KernelMemory) -> io::Result<Self> {
        let lent = memory.lend();
        lent.bound(SockRef::from(&*self.stream))?;
        Ok(self.lent(lent))
    }

    /// The same, bound to what it was `lent` already.
    pub(crate) fn lent(mut self, lent: Lent) -> Self {
        self.lent = Some(lent);
        self
    }

    /// Gives back what was read too much: it is read again, first of all.
    pub(crate) fn put_back(&mut self, early: Bytes) {
        self.early = early;
    }
}

/// Gives a socket what a flow's local side has. Connections inherit it from the listener that
/// accepts them, which saves each of them these calls.
pub(crate) fn prepare(socket: SockRef<'_>) -> io::Result<()> {
    let (idle, interval, probes) = KEEPALIVE;
    socket.set_tcp_nodelay(true)?;
    // An urgent byte is one of the stream, where it stands (RFC 6093, section 6); the kernel would keep it back.
    socket.set_out_of_band_inline(true)?;
    // What is not sent yet waits here, where it is counted, not in the kernel.
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(idle)
            .with_interval(interval)
            .with_retries(probes),
    )?;
    // Whoever closes the socket, and be it the kernel after a crash, sends RST:
    // nobody may take half a transfer for a whole one.
    socket.set_linger(Some(Duration::ZERO))
}

impl Socket for TcpFlow {
    fn close(self) {
        // What is still to be sent is the kernel's to deliver. Should this fail, the
        // connection is reset instead, which is the safe side.
        let _ = SockRef::from(&*self.stream).set_linger(None);
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        let stream = self.stream.clone();
        async move {
            if let Err(error) = stream.ready(Interest::ERROR).await {
                return error;
            }
            match stream.take_error() {
                Ok(Some(error)) | Err(error) => error,
                Ok(None) => io::ErrorKind::ConnectionReset.into(),
            }
        }
    }
}

impl AsyncRead for TcpFlow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let length = self.early.len().min(buffer.remaining());
            buffer.put_slice(&self.early.split_to(length));
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TcpFlow {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(Shutdown::Write))
    }
}
