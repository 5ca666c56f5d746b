//! What a flow is for: an application that asks, and the server that answers.
//!
//! Both are byte streams without a task of their own. The application sends a request
//! and what it uploads; the server answers when it has all of it; the application ends
//! when it has the whole answer. The bytes are known to both, so that a wrong one is
//! noticed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bentpipe_tunnel::sockets::{Dial, Resolve, Socket};
use bentpipe_units::{Span, Time};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::REQUEST;
use bentpipe_vnet::clock::{Clock, Timer};

/// The answer to an upload: as long as a small HTTP one.
pub(crate) const RECEIPT: u64 = 100;

/// The server's TCP begins with ten segments (RFC 6928) of 1448 bytes.
const INITIAL_WINDOW: u64 = 10 * 1448;
/// And has no more than this unread at the gateway: what Linux lets a receive buffer
/// grow to (net.ipv4.tcp_rmem).
const LARGEST_WINDOW: u64 = 6 << 20;

/// How far a flow has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// When the request was at the server.
    pub(crate) reached: Option<Time>,
    /// When the first byte of the answer was at the application.
    pub(crate) first_byte: Option<Time>,
    /// And the last.
    pub(crate) done: Option<Time>,
    /// Bytes of the answer that have arrived.
    pub(crate) received: u64,
    /// Bytes of the upload that have arrived.
    pub(crate) uploaded: u64,
    /// A byte was not the right one, or one too many.
    pub(crate) wrong: bool,
    /// How the application's connection ended.
    pub(crate) end: Option<End>,
}

/// How a connection ended for its application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// In both directions.
    Closed,
    /// By a reset.
    Reset,
}

/// Shared by the two sides of a flow and whoever watches.
pub(crate) type Shared = Arc<Mutex<Progress>>;

pub(crate) fn look(progress: &Shared) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

// ---------------------------------------------------------------- the bytes

const PERIOD: usize = 1 << 16;

/// What stands in a stream from `offset` on, as far as one piece goes.
fn content(offset: u64) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |place: usize| (place * 31 + place / 251).to_le_bytes()[0];
        (0..2 * PERIOD).map(|place| byte(place % PERIOD)).collect()
    });
    let place = usize::try_from(offset % PERIOD as u64).unwrap_or(0);
    &BYTES[place..place + PERIOD]
}

/// Puts what stands from `offset` on into `buffer`, at most `most` bytes; how many.
fn fill(buffer: &mut ReadBuf<'_>, offset: u64, most: u64) -> u64 {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let count = buffer.remaining().min(most).min(PERIOD);
    buffer.put_slice(&content(offset)[..count]);
    count as u64
}

/// Whether `data` is what stands from `offset` on.
fn is_right(data: &[u8], mut offset: u64) -> bool {
    data.chunks(PERIOD).all(|piece| {
        let right = content(offset)[..piece.len()] == *piece;
        offset += piece.len() as u64;
        right
    })
}

// ---------------------------------------------------------- the application

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
        look(&self.progress).end = Some(end);
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
        if look(&this.progress).done.is_some() {
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
        let mut progress = look(&this.progress);
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
        let mut progress = look(&this.progress);
        progress.wrong |= progress.received < this.download;
        progress.done.get_or_insert(now);
        if let Some(reader) = this.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(()))
    }
}

// ---------------------------------------------------------------- the server

/// The servers behind the gateway: one at every address, `ground_rtt` away.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    pub(crate) clock: Clock,
    pub(crate) ground_rtt: Span,
    /// By number.
    pub(crate) flows: Arc<[Shared]>,
}

impl Resolve for Servers {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::other("simulated servers have no names"))
    }
}

impl Dial for Servers {
    type Socket = Server;

    async fn dial(&self, _address: SocketAddr) -> io::Result<Server> {
        self.clock.sleep(self.ground_rtt).await;
        Ok(Server {
            timer: self.clock.timer(),
            all: self.clone(),
            request: Vec::with_capacity(REQUEST),
            progress: None,
            upload: 0,
            uploaded: 0,
            answer: None,
            reader: None,
            client_ended: false,
        })
    }

    fn own_addresses(&self) -> io::Result<Vec<IpAddr>> {
        Ok(Vec::new())
    }
}

/// The gateway's side of a connection with a server.
///
/// Between the two is an idealised TCP: a window of [`INITIAL_WINDOW`] that doubles with
/// every round trip, and no losses.
#[derive(Debug)]
pub(crate) struct Server {
    all: Servers,
    timer: Timer,
    request: Vec<u8>,
    progress: Option<Shared>,
    upload: u64,
    uploaded: u64,
    answer: Option<Answer>,
    reader: Option<Waker>,
    client_ended: bool,
}

#[derive(Debug)]
struct Answer {
    size: u64,
    /// Bytes that have come to the gateway.
    arrived: u64,
    /// Bytes that the gateway has read of them.
    read: u64,
    window: u64,
    /// When the next window's bytes are at the gateway.
    next: Time,
}

impl Answer {
    /// Lets arrive what has arrived by `now`.
    fn advance(&mut self, now: Time, rtt: Span) {
        while self.arrived < self.size && self.next <= now {
            if rtt == Span::ZERO {
                self.arrived = self.size;
                return;
            }
            let room = LARGEST_WINDOW - (self.arrived - self.read).min(LARGEST_WINDOW);
            let burst = self.window.min(room).min(self.size - self.arrived);
            self.arrived += burst;
            if burst == self.window {
                self.window = (2 * self.window).min(LARGEST_WINDOW);
            }
            self.next = self.next + rtt;
        }
    }
}

impl Server {
    /// Answers once it has everything.
    fn answer_if_complete(&mut self) {
        let Some(size) = self
            .request
            .get(16..24)
            .and_then(|bytes| bytes.try_into().ok())
        else {
            return;
        };
        if self.request.len() == REQUEST && self.uploaded >= self.upload && self.answer.is_none() {
            self.answer = Some(Answer {
                size: u64::from_be_bytes(size),
                arrived: 0,
                read: 0,
                window: INITIAL_WINDOW,
                next: self.all.clock.now() + self.all.ground_rtt,
            });
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
    }
}

impl Socket for Server {
    fn close(self) {}

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        std::future::pending()
    }
}

impl AsyncRead for Server {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let now = this.all.clock.now();
        if let Some(answer) = &mut this.answer {
            answer.advance(now, this.all.ground_rtt);
            if answer.read < answer.arrived {
                answer.read += fill(buffer, answer.read, answer.arrived - answer.read);
                return Poll::Ready(Ok(()));
            }
            if answer.arrived < answer.size {
                this.timer.set(Some(answer.next));
                return this.timer.poll_fired(context).map(Ok);
            }
        }
        // Like a server that keeps connections alive, it ends after its client.
        if this.client_ended {
            return Poll::Ready(Ok(()));
        }
        this.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Server {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let (head, body) = data.split_at(data.len().min(REQUEST - this.request.len()));
        this.request.extend_from_slice(head);
        if this.request.len() == REQUEST && this.progress.is_none() {
            let number = |place: usize| {
                let bytes = this.request[8 * place..8 * place + 8].try_into();
                bytes.map_or(0, u64::from_be_bytes)
            };
            let flow = usize::try_from(number(0)).ok();
            this.upload = number(1);
            let Some(progress) = flow.and_then(|flow| this.all.flows.get(flow)) else {
                return Poll::Ready(Err(io::Error::other("a request of no flow")));
            };
            look(progress).reached = Some(this.all.clock.now());
            this.progress = Some(progress.clone());
        }
        if let Some(progress) = &this.progress {
            let mut progress = look(progress);
            progress.wrong |= !is_right(body, this.uploaded);
            this.uploaded += body.len() as u64;
            progress.uploaded = this.uploaded;
        }
        this.answer_if_complete();
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.client_ended = true;
        if let Some(reader) = this.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(()))
    }
}
