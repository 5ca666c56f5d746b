//! A flow of UDP datagrams: a local socket with one peer, and a request of the tunnel
//! (RFC 9298).
//!
//! The rules, the same at both ends of the tunnel:
//!
//! - A datagram is one QUIC DATAGRAM frame; one that is too long for that is a capsule on
//!   the request's stream, behind which what follows waits. None is cut or joined. QUIC's are dropped
//!   instead, as routers do (RFC 9000, section 14): so its ends find out how much the tunnel takes.
//! - ECN and DF are kept as far as both ends know contexts for them. A datagram that must not be cut and
//!   is too long for the path behind an end is dropped, and the other end is told by a capsule.
//! - The flow ends when it has been idle, when the other end has ended its half of the
//!   stream, or when the local socket fails.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bentpipe_quic::datagrams::{FlowDatagrams, TooLong};
use bentpipe_quic::drops::DropCause;
use bytes::Bytes;
use tokio::io::ReadBuf;

use super::outcome::{Carried, FlowError};
use super::stream::{Down, Up};
use super::transfer_time::Meter;
use crate::marking::Marked;
use crate::sockets::DatagramSocket;
use crate::target::HTTPS;
use crate::wire::capsule::{self, MalformedCapsule};
use crate::wire::contexts::Contexts;
use crate::wire::datagram::{ContentError, LONGEST, UDP_PAYLOAD};
use crate::wire::path_mtu::{self, PATH_MTU};
use crate::wire::proxy_status::Refusal;

/// Datagrams that are taken from a socket at a time, and how often before others have their turn.
const BURST: usize = 16;
const BURSTS: usize = 4;

/// How long a flow may be idle.
#[derive(Debug, Clone, Copy)]
pub struct IdleLimits {
    /// Once datagrams have gone both ways.
    pub answered: Duration,
    /// Before.
    pub unanswered: Duration,
}

/// What a flow has done, also for those who watch it. Counts wrap.
#[derive(Debug, Default)]
pub struct Activity {
    datagrams: AtomicU32,
    up: AtomicU64,
    down: AtomicU64,
    meter: Option<Box<Meter>>,
}

impl Activity {
    /// A new flow's, whose transfers `meter` measures, if there is one.
    pub fn measured(meter: Option<Meter>) -> Self {
        Self {
            meter: meter.map(Box::new),
            ..Self::default()
        }
    }

    /// Datagrams so far, both ways.
    pub fn datagrams(&self) -> u32 {
        self.datagrams.load(Ordering::Relaxed)
    }

    /// Whether datagrams have gone both ways.
    pub fn is_answered(&self) -> bool {
        self.up.load(Ordering::Relaxed) > 0 && self.down.load(Ordering::Relaxed) > 0
    }

    /// Payload bytes so far.
    pub fn carried(&self) -> Carried {
        Carried {
            up: self.up.load(Ordering::Relaxed),
            down: self.down.load(Ordering::Relaxed),
        }
    }

    /// Notes that a datagram is carried.
    pub fn note(&self) {
        self.datagrams.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what goes into the tunnel.
    pub(super) fn count_up(&self, length: usize) {
        if let Some(meter) = &self.meter {
            meter.sent();
        }
        self.count(&self.up, length);
    }

    /// Counts what comes from the tunnel.
    pub(super) fn count_down(&self, length: usize) {
        if let Some(meter) = &self.meter {
            meter.came(length);
        }
        self.count(&self.down, length);
    }

    fn count(&self, bytes: &AtomicU64, length: usize) {
        self.note();
        // An empty datagram is an answer too.
        bytes.fetch_add(length.max(1) as u64, Ordering::Relaxed);
    }
}

/// The packets that every path carries for QUIC (RFC 9000, section 14), bytes of UDP's payload.
const QUIC_LEAST: usize = 1200;

/// How a flow's datagrams go through the tunnel.
pub struct Way<'a> {
    /// Those that are frames.
    pub datagrams: &'a FlowDatagrams,
    /// What tells their markings.
    pub contexts: &'a Contexts,
    /// Its server's port.
    pub port: u16,
}

impl Way<'_> {
    /// What becomes of a datagram that is longer than a frame takes: the capsule that it is, or nothing.
    fn too_long(&self, content: &[u8]) -> Option<Bytes> {
        // A path that carries less for the tunnel itself is made up for, and so is one that has become narrower.
        let longest = self.datagrams.longest();
        if self.port == HTTPS && longest > QUIC_LEAST && content.len() > longest {
            self.datagrams.drops().add(DropCause::PacketTooBig, 1);
            return None;
        }
        Some(capsule::datagram(content))
    }
}

/// Carries a flow between `socket` and a request: its `way`, and the stream made of `up` and `down`.
///
/// `opened` is awaited before capsules are taken from `down`: the terminal reads the
/// gateway's answer there, while datagrams already go both ways. `stopped` resolves when
/// the other end reads no more of `up`.
///
/// Returns when the flow is over, with both halves of the stream as they are.
pub async fn carry<U: Up, D: Down>(
    socket: &impl DatagramSocket,
    way: Way<'_>,
    (up, down): (&mut U, &mut D),
    opened: impl AsyncFnOnce(&mut D) -> Result<(), FlowError>,
    stopped: impl Future<Output = ()> + Send,
    idle: IdleLimits,
    activity: &Activity,
) -> Result<(), FlowError> {
    let upward = async {
        for bursts in 1.. {
            // Boxed is here what is rare or soon over: a flow lasts.
            if let Some(capsule) = receive(socket, &way, activity).await? {
                Box::pin(up.send(capsule)).await?;
            }
            if bursts % BURSTS == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    };
    let beside_the_stream = async {
        loop {
            let contents = way.datagrams.receive().await;
            deliver(socket, read(&way, contents, activity)?).await?;
        }
    };
    let on_the_stream = async {
        Box::pin(opened(&mut *down)).await?;
        let mut capsules = capsule::Reader::taking(&[PATH_MTU]);
        while let Some(data) = down.receive().await? {
            capsules.take(&data);
            Box::pin(obey(socket, &way, &mut capsules, activity)).await?;
        }
        capsules.end()?;
        match down.trailers().await?.as_ref().map(Refusal::read_trailers) {
            Some(Some(refusal)) => Err(FlowError::Refused(refusal)),
            _ => Ok(()),
        }
    };
    tokio::select! {
        biased;
        result = on_the_stream => result,
        result = beside_the_stream => result,
        result = upward => result,
        error = socket.failure() => Err(FlowError::Local(error)),
        () = stopped => Ok(()),
        () = idled(idle, activity) => Ok(()),
    }
}

/// Resolves when nothing has been carried for as long as `limits` say, or up to twice that.
async fn idled(limits: IdleLimits, activity: &Activity) {
    let mut seen = activity.datagrams();
    loop {
        let limit = match activity.is_answered() {
            true => limits.answered,
            false => limits.unanswered,
        };
        tokio::time::sleep(limit).await;
        let now = activity.datagrams();
        if now == seen {
            return;
        }
        seen = now;
    }
}

/// Receives the next datagrams and sends them on; what does not fit into a packet is the capsule
/// that is returned, and so is what the other end is to be told.
async fn receive(
    socket: &impl DatagramSocket,
    way: &Way<'_>,
    activity: &Activity,
) -> Result<Option<Bytes>, FlowError> {
    thread_local! {
        /// The context, and room for any payload. It belongs to the thread, not to the
        /// flow, so that idle flows hold no buffer.
        static CONTENT: RefCell<Vec<u8>> = RefCell::new(vec![UDP_PAYLOAD; 1 + LONGEST]);
    }
    std::future::poll_fn(|context| {
        CONTENT.with_borrow_mut(|content| {
            let mut burst = None;
            let mut taken = 0;
            let received = loop {
                if taken == BURST {
                    break Poll::Ready(Ok(None));
                }
                let mut payload = ReadBuf::new(&mut content[1..]);
                let marking = match socket.poll_receive(context, &mut payload) {
                    Poll::Ready(Ok(marking)) => marking,
                    Poll::Ready(Err(error)) => break Poll::Ready(Err(FlowError::Local(error))),
                    Poll::Pending => match socket.poll_too_long(context) {
                        Poll::Ready(mtu) => break Poll::Ready(Ok(Some(path_mtu::capsule(mtu)))),
                        Poll::Pending if burst.is_some() => break Poll::Ready(Ok(None)),
                        Poll::Pending => break Poll::Pending,
                    },
                };
                taken += 1;
                let length = payload.filled().len();
                content[0] = way.contexts.of(marking);
                activity.count_up(length);
                let content = &content[..1 + length];
                let burst = burst.get_or_insert_with(|| way.datagrams.burst());
                if let Err(TooLong) = burst.add(content)
                    && let Some(capsule) = way.too_long(content)
                {
                    break Poll::Ready(Ok(Some(capsule)));
                }
            };
            if let Some(burst) = burst {
                burst.send();
            }
            received
        })
    })
    .await
}

/// The datagrams that `contents` are.
fn read(
    way: &Way<'_>,
    contents: impl IntoIterator<Item = Bytes>,
    activity: &Activity,
) -> Result<Vec<Marked>, FlowError> {
    let mut datagrams = Vec::new();
    for content in contents {
        match way.contexts.read(content) {
            Ok(datagram) => {
                activity.count_down(datagram.1.len());
                datagrams.push(datagram);
            }
            // Section 4: dropped, or kept for an agreement that is on its way.
            Err(ContentError::UnknownContext(_)) => {
                way.datagrams.drops().add(DropCause::UnknownContext, 1);
            }
            Err(ContentError::Malformed) => return Err(FlowError::Malformed),
        }
    }
    Ok(datagrams)
}

/// Does what the capsules that have come whole say.
async fn obey(
    socket: &impl DatagramSocket,
    way: &Way<'_>,
    capsules: &mut capsule::Reader,
    activity: &Activity,
) -> Result<(), FlowError> {
    while let Some((kind, content)) = capsules.next_capsule()? {
        match kind {
            PATH_MTU => socket.tell_path_mtu(path_mtu::read(&content)?),
            _ => deliver(socket, read(way, [content], activity)?).await?,
        }
    }
    // Other ends may leave as many incomplete as they have requests.
    if !way.datagrams.may_hold(capsules.held()) && capsules.skip() {
        way.datagrams.drops().add(DropCause::ReceiveQueueFull, 1);
    }
    Ok(())
}

/// Sends datagrams to the local peer.
async fn deliver(socket: &impl DatagramSocket, datagrams: Vec<Marked>) -> Result<(), FlowError> {
    let mut sent = 0;
    while sent < datagrams.len() {
        let left = &datagrams[sent..];
        let more = std::future::poll_fn(|context| socket.poll_send_several(context, left)).await;
        sent += more.map_err(FlowError::Local)?;
    }
    Ok(())
}

impl From<MalformedCapsule> for FlowError {
    fn from(_: MalformedCapsule) -> Self {
        Self::Malformed
    }
}
