//! The servers behind the gateway: each answers when it has all of a request.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bentpipe_tunnel::sockets::{Dial, Resolve, Socket};
use bentpipe_units::{Span, Time};
use bentpipe_vnet::clock::{Clock, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::call::Echo;
use super::content::{fill, is_right};
use super::progress::{Shared, lock};
use crate::REQUEST;

/// The server's TCP begins with ten segments (RFC 6928) of 1448 bytes.
const INITIAL_WINDOW: u64 = 10 * 1448;
/// And has no more than this unread at the gateway: what Linux lets a receive buffer
/// grow to (net.ipv4.tcp_rmem).
const LARGEST_WINDOW: u64 = 6 << 20;

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
    type Datagrams = Echo;

    async fn dial_udp(&self, _address: SocketAddr) -> io::Result<Echo> {
        Ok(Echo::new(&self.clock, self.ground_rtt))
    }

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

    fn own_addresses(&self) -> io::Result<Arc<[IpAddr]>> {
        Ok(Arc::default())
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
            lock(progress).reached = Some(this.all.clock.now());
            this.progress = Some(progress.clone());
        }
        if let Some(progress) = &this.progress {
            let mut progress = lock(progress);
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
