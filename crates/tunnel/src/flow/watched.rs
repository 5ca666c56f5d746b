//! A socket whose bytes somebody sees as they pass.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::sockets::Socket;

/// Who looks at what passes, and changes nothing.
pub trait Watch: Unpin + Send + 'static {
    /// `bytes` were read from the socket; at its end nothing is told.
    fn read(&mut self, bytes: &[u8]);

    /// The socket took `bytes` bytes.
    fn written(&mut self, bytes: usize);
}

/// Nobody looks.
impl<W: Watch> Watch for Option<W> {
    fn read(&mut self, bytes: &[u8]) {
        if let Some(watch) = self {
            watch.read(bytes);
        }
    }

    fn written(&mut self, bytes: usize) {
        if let Some(watch) = self {
            watch.written(bytes);
        }
    }
}

/// `socket`, watched.
pub struct Watched<S, W> {
    socket: S,
    watch: W,
}

impl<S, W> Watched<S, W> {
    /// Shows `watch` all that passes through `socket`.
    pub fn new(socket: S, watch: W) -> Self {
        Self { socket, watch }
    }
}

impl<S: Socket, W: Watch> Socket for Watched<S, W> {
    fn close(self) {
        self.socket.close();
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        self.socket.reset()
    }
}

impl<S: AsyncRead + Unpin, W: Watch> AsyncRead for Watched<S, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() {
            self.watch.read(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, W: Watch> AsyncWrite for Watched<S, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(context, data))?;
        self.watch.written(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
