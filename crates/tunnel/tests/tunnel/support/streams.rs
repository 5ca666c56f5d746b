//! Connected streams in memory that know a reset from an end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bentpipe_tunnel::sockets::Socket;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// A connected stream in memory that knows a reset from an end.
#[derive(Debug)]
pub struct Stream {
    inner: Option<DuplexStream>,
    closed: bool,
    broken_by_me: Arc<Reset>,
    broken_by_peer: Arc<Reset>,
}

/// Whether one side has reset a stream.
#[derive(Debug, Default)]
struct Reset {
    is: AtomicBool,
    news: tokio::sync::Notify,
}

/// A connected pair with `room` bytes of buffer each way.
pub fn stream_pair(room: usize) -> (Stream, Stream) {
    let (a, b) = tokio::io::duplex(room);
    let (flag_a, flag_b) = (Arc::<Reset>::default(), Arc::<Reset>::default());
    let end = |inner, mine: &Arc<Reset>, theirs: &Arc<Reset>| Stream {
        inner: Some(inner),
        closed: false,
        broken_by_me: mine.clone(),
        broken_by_peer: theirs.clone(),
    };
    (end(a, &flag_a, &flag_b), end(b, &flag_b, &flag_a))
}

impl Stream {
    fn reset_error(&self) -> Option<io::Error> {
        self.broken_by_peer
            .is
            .load(Ordering::SeqCst)
            .then(|| io::Error::from(io::ErrorKind::ConnectionReset))
    }

    fn inner(&mut self) -> Pin<&mut DuplexStream> {
        Pin::new(self.inner.as_mut().expect("there until dropped"))
    }
}

impl Socket for Stream {
    fn close(mut self) {
        self.closed = true;
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        let by_peer = self.broken_by_peer.clone();
        async move {
            while !by_peer.is.load(Ordering::SeqCst) {
                by_peer.news.notified().await;
            }
            io::ErrorKind::ConnectionReset.into()
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.closed {
            self.broken_by_me.is.store(true, Ordering::SeqCst);
            self.broken_by_me.news.notify_one();
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.inner().poll_read(context, buffer))?;
        match self.reset_error() {
            Some(error) if buffer.filled().len() == before => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.reset_error() {
            return Poll::Ready(Err(error));
        }
        self.inner().poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(context)
    }
}
