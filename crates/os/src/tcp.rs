//! The local side of a flow on a TCP socket of the machine.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_tunnel::sockets::Socket;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A peer that has vanished without a word is noticed after about ten minutes; RFC
/// 5382 lets NATs forget a silent connection after two hours at the earliest.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(300), Duration::from_secs(60), 5);

/// A connection that is reset when it is dropped, also when the process is killed.
#[derive(Debug)]
pub struct TcpFlow(TcpStream);

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
        Ok(Self(stream))
    }
}

impl Socket for TcpFlow {
    fn close(self) {
        // What is still to be sent is the kernel's to deliver. Should this fail, the
        // connection is reset instead, which is the safe side.
        let _ = SockRef::from(&self.0).set_linger(None);
    }
}

impl AsyncRead for TcpFlow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for TcpFlow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
