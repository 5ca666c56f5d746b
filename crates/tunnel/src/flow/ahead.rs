//! A socket whose first bytes are read before it is certain that they go anywhere.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::client_hello::Beginning;
use crate::sockets::Socket;

/// Read at a time, bytes.
const READ: usize = 2048;

/// `socket`, read ahead.
pub struct Ahead<S> {
    socket: S,
    /// What has been read and not taken.
    read: BytesMut,
    /// What reading ended with.
    failed: Option<io::Error>,
}

impl<S: Socket> Ahead<S> {
    /// Nothing is read of `socket` yet.
    pub fn new(socket: S) -> Self {
        Self {
            socket,
            read: BytesMut::new(),
            failed: None,
        }
    }

    /// The ClientHello that it begins with, once that is there; nothing if it begins with anything
    /// else. What is read stays to be read, also when this is dropped.
    pub async fn client_hello(&mut self) -> Option<Bytes> {
        loop {
            match Beginning::of(&self.read) {
                Beginning::Hello(length) => {
                    return Some(Bytes::copy_from_slice(&self.read[..length]));
                }
                Beginning::Other => return None,
                Beginning::Unfinished => {}
            }
            self.read.reserve(READ);
            match self.socket.read_buf(&mut self.read).await {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    // A socket tells it once.
                    self.failed = Some(error);
                    return None;
                }
            }
        }
    }

    /// The first `bytes` of what was read ahead have gone where they belong.
    pub fn skip(&mut self, bytes: usize) {
        self.read.advance(bytes);
    }
}

impl<S: Socket> Socket for Ahead<S> {
    fn close(self) {
        self.socket.close();
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        self.socket.reset()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.has_remaining() {
            let length = self.read.len().min(buffer.remaining());
            buffer.put_slice(&self.read.split_to(length));
            return Poll::Ready(Ok(()));
        }
        // An idle flow holds no buffer.
        self.read = BytesMut::new();
        match self.failed.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut self.socket).poll_read(context, buffer),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
