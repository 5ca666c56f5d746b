//! The local side of a flow on a TCP socket of the machine.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bentpipe_tunnel::sockets::Socket;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A peer that has vanished without a word is noticed after about ten minutes; RFC
/// 5382 lets NATs forget a silent connection after two hours at the earliest.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(300), Duration::from_secs(60), 5);

/// A connection that is reset when it is dropped, also when the process is killed.
#[derive(Debug)]
pub struct TcpFlow(Arc<TcpStream>);

impl TcpFlow {
    /// Makes `stream` a flow's local side.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        let (idle, interval, probes) = KEEPALIVE;
        let socket = SockRef::from(&stream);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(idle)
                .with_interval(interval)
                .with_retries(probes),
        )?;
        // Whoever closes the socket, and be it the kernel after a crash, sends RST:
        // nobody may take half a transfer for a whole one.
        socket.set_linger(Some(Duration::ZERO))?;
        Ok(Self(Arc::new(stream)))
    }
}

impl Socket for TcpFlow {
    fn close(self) {
        // What is still to be sent is the kernel's to deliver. Should this fail, the
        // connection is reset instead, which is the safe side.
        let _ = SockRef::from(&*self.0).set_linger(None);
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        let stream = self.0.clone();
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
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
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
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
