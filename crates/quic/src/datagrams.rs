//! HTTP datagrams (RFC 9297) of a session, in QUIC DATAGRAM frames (RFC 9221).
//!
//! A frame names the request that it belongs to by a quarter of its stream's ID. What
//! arrives waits, bounded, at its request; what arrives before its request (a peer may send
//! both at once) waits for it for a moment.
//!
//! The QUIC library sends datagrams before stream data, so a download does not delay them,
//! as far as the congestion window lets anything be sent. What does not leave at once waits
//! in [`crate::outgoing`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::now;
use bytes::{Buf, Bytes, BytesMut};
use h3::error::Code;
use h3::quic::StreamId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::drops::{DropCause, Drops};
pub use crate::outgoing::MarkCongested;
use crate::outgoing::{Flow, Outgoing, cost};
use crate::schedule::Host;
use crate::varint;

/// What the library holds of datagrams that it has not sent: what keeps it busy until the
/// next are handed over, bytes.
pub const SEND_BUFFER: usize = 16 * 1024;
/// What the library holds of datagrams that have not been handed to their requests, bytes.
pub const RECEIVE_BUFFER: usize = 1 << 20;
/// What one request holds that it has not taken, bytes, and all of a session together.
const INBOX: usize = 512 * 1024;
const INBOXES: usize = 4 << 20;
/// What is held for requests that have not come yet, bytes, and for how long: a request
/// that was lost comes a round trip later.
const EARLY: usize = 64 * 1024;
const EARLY_TIME: Duration = Duration::from_secs(2);
/// Datagrams that are taken from the library at a time.
const BATCH: usize = 32;
/// Datagrams that a request takes at a time: no more of it is held beside what waits.
const AT_ONCE: usize = 16;

/// The datagrams of one session. Clones are the same.
#[derive(Clone)]
pub struct Datagrams(Arc<Shared>);

struct Shared {
    connection: noq::Connection,
    state: Mutex<State>,
    /// Something waits to be sent.
    waiting: Notify,
    /// The longest frame that has fitted into a packet of the path so far.
    widest: AtomicUsize,
    drops: Drops,
}

#[derive(Default)]
struct State {
    inboxes: BTreeMap<u64, Inbox>,
    /// Bytes in all inboxes.
    held: usize,
    early: VecDeque<(Instant, u64, Bytes)>,
    early_bytes: usize,
    outgoing: Outgoing,
}

#[derive(Default)]
struct Inbox {
    datagrams: VecDeque<Bytes>,
    bytes: usize,
    /// Of a datagram that comes on the stream, and is not complete.
    partial: usize,
    reader: Option<Waker>,
}

/// The datagram is longer than the path, or the peer, takes in one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the datagram does not fit into a QUIC packet of this path")]
pub struct TooLong;

impl Datagrams {
    /// The datagrams of `connection`, carried by two tasks that end with it; those that are
    /// dropped are counted in `drops`.
    pub(crate) fn new(connection: noq::Connection, drops: Drops) -> Self {
        let datagrams = Self(Arc::new(Shared {
            connection,
            state: Mutex::default(),
            waiting: Notify::new(),
            widest: AtomicUsize::new(0),
            drops,
        }));
        tokio::spawn(datagrams.clone().receive());
        tokio::spawn(datagrams.clone().send());
        datagrams
    }

    /// The datagrams of the request on `stream`, which belongs to `host`. Those that have waited too long to be
    /// sent are marked by `mark`, as far as they can be, instead of dropped.
    pub fn open(&self, stream: StreamId, host: Host, mark: MarkCongested) -> FlowDatagrams {
        let id = stream.into_inner();
        let mut state = self.lock();
        let state = &mut *state;
        let mut inbox = Inbox::default();
        let early = std::mem::take(&mut state.early);
        for (at, of, content) in early {
            if of == id {
                state.early_bytes -= cost(&content);
                state.held += cost(&content);
                inbox.bytes += cost(&content);
                inbox.datagrams.push_back(content);
            } else {
                state.early.push_back((at, of, content));
            }
        }
        state.inboxes.insert(id, inbox);
        FlowDatagrams {
            all: self.clone(),
            flow: Flow {
                host,
                request: id,
                mark,
            },
        }
    }

    /// Hands what arrives to its request.
    async fn receive(self) {
        let mut batch: [Bytes; BATCH] = Default::default();
        loop {
            let read = self.0.connection.read_many_datagrams(&mut batch).await;
            let Ok(count) = read else { return };
            let opened_by_peer = self.0.connection.side().is_server();
            let mut state = self.lock();
            for frame in &mut batch[..count] {
                let frame = std::mem::take(frame);
                if state.arrived(frame, opened_by_peer, &self.0.drops).is_err() {
                    drop(state);
                    let code = Code::H3_DATAGRAM_ERROR.value();
                    let code = noq::VarInt::from_u64(code).unwrap_or(noq::VarInt::MAX);
                    let reason = b"a DATAGRAM frame without a request's number";
                    self.0.connection.close(code, reason);
                    return;
                }
            }
        }
    }

    /// Sends what waits.
    async fn send(self) {
        loop {
            let round_trip = self.0.connection.rtt(noq::PathId::ZERO).unwrap_or_default();
            let next = self.lock().outgoing.next(now(), round_trip, &self.0.drops);
            let Some(frame) = next else {
                tokio::select! {
                    () = self.0.waiting.notified() => continue,
                    _ = self.0.connection.closed() => return,
                }
            };
            use noq::SendDatagramError::{ConnectionLost, Disabled, TooLarge, UnsupportedByPeer};
            match self.0.connection.send_datagram_wait(frame).await {
                Ok(()) => {}
                Err(TooLarge) => self.0.drops.add(DropCause::PathNarrowed, 1),
                Err(UnsupportedByPeer | Disabled | ConnectionLost(_)) => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a frame in. The error is one without a number (RFC 9297, section 2.1).
    fn arrived(&mut self, mut frame: Bytes, opened_by_peer: bool, drops: &Drops) -> Result<(), ()> {
        let (quarter, length) = varint::read(&frame).ok_or(())?;
        if quarter > varint::MAX / 4 {
            return Err(());
        }
        let id = quarter * 4;
        frame.advance(length);
        let cost = cost(&frame);
        if let Some(inbox) = self.inboxes.get_mut(&id) {
            if inbox.bytes + cost > INBOX || self.held + cost > INBOXES {
                drops.add(DropCause::ReceiveQueueFull, 1);
                return Ok(());
            }
            self.held += cost;
            inbox.bytes += cost;
            inbox.datagrams.push_back(frame);
            if let Some(reader) = inbox.reader.take() {
                reader.wake();
            }
            return Ok(());
        }
        if !opened_by_peer {
            // Its request is over.
            drops.add(DropCause::NoRequest, 1);
            return Ok(());
        }
        let now = now();
        self.early.push_back((now, id, frame));
        self.early_bytes += cost;
        while let Some((since, _, oldest)) = self.early.front()
            && (self.early_bytes > EARLY || now - *since > EARLY_TIME)
        {
            self.early_bytes -= self::cost(oldest);
            self.early.pop_front();
            drops.add(DropCause::NoRequest, 1);
        }
        Ok(())
    }
}

/// One request's datagrams; nobody takes any more when it is dropped.
pub struct FlowDatagrams {
    all: Datagrams,
    flow: Flow,
}

impl FlowDatagrams {
    /// Datagrams that leave together: what fits into a packet of the path is asked once.
    pub fn burst(&self) -> Burst<'_> {
        let room = self.all.0.connection.max_datagram_size().unwrap_or(0);
        self.all.0.widest.fetch_max(room, Ordering::Relaxed);
        Burst {
            datagrams: self,
            room,
            frames: Vec::new(),
        }
    }

    /// Sends a datagram with `content`, or lets it wait for its turn.
    pub fn send(&self, content: &[u8]) -> Result<(), TooLong> {
        let mut burst = self.burst();
        burst.add(content)?;
        burst.send();
        Ok(())
    }

    /// The longest content that a packet of the path has had room for. That of now may be shorter for a
    /// while: losses look as if the path had become narrower.
    pub fn longest(&self) -> usize {
        let widest = self.all.0.widest.load(Ordering::Relaxed);
        widest.saturating_sub(varint::length(self.flow.request / 4))
    }

    /// Where those are counted that are dropped.
    pub fn drops(&self) -> &Drops {
        &self.all.0.drops
    }

    /// Whether `bytes` of a datagram that comes on the request's stream, and is not complete, may be held: they count as
    /// what waits does, of all requests of the session together.
    pub fn may_hold(&self, bytes: usize) -> bool {
        let mut state = self.all.lock();
        let state = &mut *state;
        let Some(inbox) = state.inboxes.get_mut(&self.flow.request) else {
            return false;
        };
        state.held -= std::mem::take(&mut inbox.partial);
        let may = state.held + bytes <= INBOXES;
        if may {
            inbox.partial = bytes;
            state.held += bytes;
        }
        may
    }

    /// The contents of the next datagrams, [`AT_ONCE`] at most.
    pub async fn receive(&self) -> Vec<Bytes> {
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    fn poll_receive(&self, context: &mut Context<'_>) -> Poll<Vec<Bytes>> {
        let mut state = self.all.lock();
        let state = &mut *state;
        let Some(inbox) = state.inboxes.get_mut(&self.flow.request) else {
            return Poll::Pending;
        };
        if inbox.datagrams.is_empty() {
            inbox.reader = Some(context.waker().clone());
            // An idle flow holds no buffer.
            inbox.datagrams = VecDeque::new();
            return Poll::Pending;
        }
        let next = inbox.datagrams.len().min(AT_ONCE);
        let contents: Vec<_> = inbox.datagrams.drain(..next).collect();
        let bytes = contents.iter().map(cost).sum::<usize>();
        inbox.bytes -= bytes;
        state.held -= bytes;
        Poll::Ready(contents)
    }
}

/// Datagrams of one flow that leave together.
pub struct Burst<'a> {
    datagrams: &'a FlowDatagrams,
    /// For a frame, bytes.
    room: usize,
    frames: Vec<Bytes>,
}

impl Burst<'_> {
    /// Adds one with `content`.
    pub fn add(&mut self, content: &[u8]) -> Result<(), TooLong> {
        let quarter = self.datagrams.flow.request / 4;
        let length = varint::length(quarter) + content.len();
        if length > self.room {
            return Err(TooLong);
        }
        let mut frame = BytesMut::with_capacity(length);
        varint::put(quarter, &mut frame);
        frame.extend_from_slice(content);
        self.frames.push(frame.freeze());
        Ok(())
    }

    /// Sends them, or lets them wait for their turn.
    pub fn send(self) {
        let FlowDatagrams { all, flow } = self.datagrams;
        let connection = &all.0.connection;
        let mut state = all.lock();
        let mut count = 0;
        if state.outgoing.is_idle() {
            let mut space = connection.datagram_send_buffer_space();
            let mut fits = |frame: &&Bytes| match space.checked_sub(frame.len()) {
                Some(left) => {
                    space = left;
                    true
                }
                None => false,
            };
            count = self.frames.iter().take_while(&mut fits).count();
            let sent = connection.send_many_datagrams(&self.frames[..count]);
            // Other errors are those of a connection which is lost.
            if let Err(noq::SendDatagramError::TooLarge) = sent {
                all.0.drops.add(DropCause::PathNarrowed, count as u64);
            }
        }
        for frame in self.frames.into_iter().skip(count) {
            let dropped = (state.outgoing).enter(*flow, frame, now());
            all.0.drops.add(DropCause::SendQueueFull, dropped);
            all.0.waiting.notify_one();
        }
    }
}

impl Drop for FlowDatagrams {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        if let Some(inbox) = state.inboxes.remove(&self.flow.request) {
            state.held -= inbox.bytes + inbox.partial;
            let unread = inbox.datagrams.len() as u64;
            self.drops().add(DropCause::NoRequest, unread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::{DropCause, Drops};
    use crate::outgoing::OVERHEAD;

    fn frame(quarter: u64, content: usize) -> Bytes {
        let mut frame = BytesMut::new();
        varint::put(quarter, &mut frame);
        frame.resize(frame.len() + content, 7);
        frame.freeze()
    }

    #[test]
    fn what_comes_before_its_request_is_bounded() {
        let (mut state, drops) = (State::default(), Drops::default());
        for quarter in 0..1000 {
            state.arrived(frame(quarter, 1000), true, &drops).unwrap();
            assert!(state.early_bytes <= EARLY + 1000 + OVERHEAD);
        }
        state.arrived(frame(5, 10), false, &drops).unwrap();
        assert!(drops.of(DropCause::NoRequest) > 900);
        let cut = Bytes::from_static(&[0xff]);
        assert_eq!(state.arrived(cut, true, &drops), Err(()));
        let beyond = Bytes::from_static(&[0xff; 8]);
        assert_eq!(state.arrived(beyond, true, &drops), Err(()));
    }
}
