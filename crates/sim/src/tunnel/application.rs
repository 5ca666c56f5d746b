//! The application behind a terminal: it sends a request and what it uploads, and closes
//! its connection when it has the whole answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bentpipe_tunnel::sockets::Socket;
use bentpipe_vnet::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::content::{fill, is_right};
use super::progress::{End, Shared, lock};
use crate::REQUEST;

/// The terminal's side of an application's connection.
#[derive(Debug)]
pub(crate) struct Application {
    clock: Clock,
    progress: Shared,
    /// It begins with three numbers of 64 bits: the flow, the bytes that follow the request,
    /// and the bytes of the answer.
    request: [u8; REQUEST],
    upload: u64,
    download: u64,
    /// Of request and upload.
    sent: u64,
    reader: Option<Waker>,
    closed: bool,
}

impl Application {
    pub(crate) fn new(
        clock: &Clock,
        progress: &Shared,
        flow: usize,
        upload: u64,
        download: u64,
    ) -> Self {
        let mut request = [0; REQUEST];
        for (place, number) in [flow as u64, upload, download].into_iter().enumerate() {
            request[8 * place..8 * place + 8].copy_from_slice(&number.to_be_bytes());
        }
        Self {
            clock: clock.clone(),
            progress: progress.clone(),
            request,
            upload,
            download,
            sent: 0,
            reader: None,
            closed: false,
        }
    }
}

impl Socket for Application {
    fn close(mut self) {
        self.closed = true;
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        std::future::pending()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let end = if self.closed { End::Closed } else { End::Reset };
        lock(&self.progress).end = Some(end);
    }
}

impl AsyncRead for Application {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Ok(sent) = usize::try_from(this.sent)
            && sent < REQUEST
        {
            let count = buffer.remaining().min(REQUEST - sent);
            buffer.put_slice(&this.request[sent..sent + count]);
            this.sent += count as u64;
            return Poll::Ready(Ok(()));
        }
        let offset = this.sent - REQUEST as u64;
        if offset < this.upload {
            this.sent += fill(buffer, offset, this.upload - offset);
            return Poll::Ready(Ok(()));
        }
        if lock(&this.progress).done.is_some() {
            return Poll::Ready(Ok(()));
        }
        this.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Application {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let now = this.clock.now();
        let mut progress = lock(&this.progress);
        progress.first_byte.get_or_insert(now);
        progress.wrong |= !is_right(data, progress.received);
        progress.received += data.len() as u64;
        progress.wrong |= progress.received > this.download;
        if progress.received >= this.download {
            progress.done.get_or_insert(now);
            if let Some(reader) = this.reader.take() {
                reader.wake();
            }
        }
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // An answer of nothing is complete when it ends; any other that ends here is short,
        // and an application that has lost its server gives up.
        let now = this.clock.now();
        let mut progress = lock(&this.progress);
        progress.wrong |= progress.received < this.download;
        progress.done.get_or_insert(now);
        if let Some(reader) = this.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(()))
    }
}
