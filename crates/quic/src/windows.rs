//! Receive windows of flows, which grow with what their readers consume.
//!
//! The QUIC library gives every stream of a connection one window for good. Large enough for
//! one flow to fill a satellite link, it lends a stopped reader as much; small enough for a
//! thousand stopped readers, it slows everyone. So the ends tell each other, on a
//! unidirectional stream of their own, how far each stream may be sent: a window that
//! follows consumption as a kernel's does (dynamic right-sizing, Fisk and Feng 2001). A peer
//! that does not know the stream type ignores it (RFC 9114, section 6.2.3) and is bounded by
//! the library's windows alone.
//!
//! What is lent beyond [`FLOOR`] comes from a pool that all sessions of an end share. New
//! streams may take half of a session's part, an eighth of what is free each; the other half
//! is kept for those that consume. The floors are a reserve: a new flow always gets one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use noq::{PathId, VarInt};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::schedule::Scheduler;
use crate::varint;

/// The type of the stream that says how far others may be sent.
const STREAM_TYPE: u64 = 0x2262_656e;
/// Stands for all streams that begin later.
const NEW_STREAMS: u64 = (1 << 62) - 1;
/// What every flow is lent, bytes: a small answer arrives in one round trip whatever else
/// there is.
pub const FLOOR: u64 = 24 * 1024;
/// What a new flow is lent where nothing is known of the path: a GEO round trip at 20 Mbit/s.
const UNKNOWN_PATH: u64 = 2 << 20;
/// A session's part of the pool is at least this, bytes.
const LEAST_PART: u64 = 4 << 20;
/// Room of the whole session beyond what its flows are lent: requests and control streams.
const SESSION_SLACK: u64 = 256 * 1024;
/// How often [`Windows::repeat`] says the same: 1120 bytes, with which a packet is nearly as long as QUIC's shortest
/// path carries.
const REPETITIONS: usize = 70;
/// A session's window before anything is lent, bytes.
pub const SESSION_BASE: u64 = UNKNOWN_PATH + SESSION_SLACK;
/// Steps in which the session's window is changed.
const SESSION_STEP: u64 = 1 << 20;
/// Rounds shorter than this say nothing of a reader.
const SHORTEST_ROUND: Duration = Duration::from_millis(10);

/// Memory that all sessions of one end lend from. Clones are the same.
#[derive(Debug, Clone)]
pub struct Pool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    total: u64,
    lent: AtomicU64,
}

impl Pool {
    /// A pool of `total` bytes.
    pub fn new(total: u64) -> Self {
        Self(Arc::new(PoolState {
            total,
            lent: AtomicU64::new(0),
        }))
    }

    fn free(&self) -> u64 {
        let lent = self.0.lent.load(Ordering::Relaxed);
        self.0.total.saturating_sub(lent)
    }
}

/// The receive windows of one session. Clones are the same.
#[derive(Debug, Clone)]
pub struct Windows(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pool: Pool,
    /// The most that one flow may be lent, by the library's own window.
    most: u64,
    /// This end opens the streams: it says what each is lent when it opens it.
    opens: bool,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug)]
struct State {
    flows: BTreeMap<u64, Flow>,
    /// Lent to all flows beyond their floors.
    lent: u64,
    /// What new streams are lent, as the peer has been told.
    default: u64,
    /// Not yet told.
    news: BTreeMap<u64, u64>,
    /// What new streams are lent is to be told again, at length.
    repeats: bool,
    /// The session's window as the library has it.
    session: u64,
    /// Bytes read in this round and the most in any.
    round: Round,
    peak: u64,
    /// The round-trip time when it was last asked.
    rtt: Duration,
}

#[derive(Debug)]
struct Flow {
    read: u64,
    limit: u64,
    window: u64,
    /// Lent beyond the floor.
    lent: u64,
    /// The peer has been told of this stream since it began. Until then it may go by what new streams
    /// were lent some time ago, or by the floor.
    told: bool,
    round: Round,
    /// The reader waited for data in this round: it is faster than the network.
    waited: bool,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    began: Instant,
    bytes: u64,
}

impl Windows {
    /// Windows of a new session that lends from `pool`, at most `most` to one flow.
    /// `opens`: this end opens the session's streams.
    pub fn new(pool: Pool, most: u64, opens: bool, now: Instant) -> Self {
        let began = Round {
            began: now,
            bytes: 0,
        };
        let windows = Self(Arc::new(Shared {
            pool,
            most: most.max(FLOOR),
            opens,
            state: Mutex::new(State {
                flows: BTreeMap::new(),
                lent: 0,
                default: 0,
                news: BTreeMap::new(),
                repeats: false,
                session: SESSION_BASE,
                round: began,
                peak: 0,
                rtt: Duration::from_millis(600),
            }),
            news: Notify::new(),
        }));
        windows.0.announce_default(&mut windows.lock());
        windows
    }

    /// A flow on stream `id` begins.
    pub fn begin(&self, id: u64, now: Instant) {
        let mut state = self.lock();
        let window = state.default;
        let lent = window - FLOOR;
        state.lend(&self.0.pool, lent);
        state.flows.insert(
            id,
            Flow {
                read: 0,
                limit: window,
                window,
                lent,
                told: false,
                round: Round {
                    began: now,
                    bytes: 0,
                },
                waited: false,
            },
        );
        if self.0.opens {
            state.news.insert(id, window);
            self.0.news.notify_one();
        }
        self.0.announce_default(&mut state);
    }

    /// How many streams are open.
    pub fn open(&self) -> usize {
        self.lock().flows.len()
    }

    /// The flow on stream `id` has no data; its reader waits.
    pub fn waits(&self, id: u64) {
        if let Some(flow) = self.lock().flows.get_mut(&id) {
            flow.waited = true;
        }
    }

    /// The flow on stream `id` has read `bytes`; the window of the whole session, when it
    /// is to be changed. `connection` is asked for its round-trip time.
    pub fn read(
        &self,
        id: u64,
        bytes: u64,
        now: Instant,
        connection: &noq::Connection,
    ) -> Option<VarInt> {
        let mut state = self.lock();
        let state = &mut *state;
        state.round.bytes += bytes;
        if now - state.round.began >= state.rtt.max(SHORTEST_ROUND) {
            let elapsed = (now - state.round.began).as_secs_f64();
            let rate = state.round.bytes as f64 / elapsed;
            state.peak = state.peak.max(bytes_in(rate, state.rtt));
            state.round = Round {
                began: now,
                bytes: 0,
            };
            if let Some(rtt) = connection.rtt(PathId::ZERO) {
                state.rtt = rtt;
            }
        }
        let part = self.0.part(state);
        let rtt = state.rtt.max(SHORTEST_ROUND);
        let flow = state.flows.get_mut(&id)?;
        flow.read += bytes;
        flow.round.bytes += bytes;
        let elapsed = now - flow.round.began;
        if elapsed >= rtt {
            let rate = flow.round.bytes as f64 / elapsed.as_secs_f64();
            let consumed = bytes_in(rate, rtt);
            // Slow start doubles what arrives in each round trip; the third part is what
            // is read while the next limit is on its way.
            let wanted = consumed.saturating_mul(3).max(FLOOR);
            if wanted > flow.window {
                let more = part.saturating_sub(state.lent) / 2;
                flow.window = wanted.min(flow.window + more).min(self.0.most);
            } else if !flow.waited && wanted < flow.window / 2 {
                // The reader is slower than the network: no more than it can use.
                flow.window /= 2;
            }
            flow.round = Round {
                began: now,
                bytes: 0,
            };
            flow.waited = false;
        }
        let limit = flow.read + flow.window;
        let worth_telling = flow.window / 8;
        if limit >= flow.limit + worth_telling.max(1) || !flow.told && flow.read >= FLOOR / 2 {
            flow.limit = flow.limit.max(limit);
            flow.told = true;
            state.news.insert(id, flow.limit);
            self.0.news.notify_one();
        }
        let lent = (flow.limit - flow.read).saturating_sub(FLOOR);
        let before = std::mem::replace(&mut flow.lent, lent);
        state.give_back(&self.0.pool, before);
        state.lend(&self.0.pool, lent);
        self.0.announce_default(state);
        state.session_window(&self.0.pool)
    }

    /// The flow on stream `id` is over.
    pub fn end(&self, id: u64) {
        let mut state = self.lock();
        if let Some(flow) = state.flows.remove(&id) {
            state.give_back(&self.0.pool, flow.lent);
            state.news.remove(&id);
            self.0.announce_default(&mut state);
        }
    }

    /// The window of the whole session, when it is to be changed.
    pub fn session_window(&self) -> Option<VarInt> {
        self.lock().session_window(&self.0.pool)
    }

    /// The most that one flow may be lent, bytes.
    pub fn most(&self) -> u64 {
        self.0.most
    }

    /// Whether they are of the same session.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What the flow on stream `id` may hold unread, bytes.
    pub fn held(&self, id: u64) -> u64 {
        let state = self.lock();
        state
            .flows
            .get(&id)
            .map_or(0, |flow| flow.limit - flow.read)
    }

    /// Whether so much is lent that flows that consume find too little.
    pub fn are_short(&self) -> bool {
        let state = self.lock();
        state.lent > self.0.part(&state) / 4 * 3
    }

    /// Tells the peer again, at length, what it knows: something that leaves as a long packet, and once more with each
    /// probe until it is acknowledged, and changes nothing. A peer that does not know the stream ignores it.
    pub fn repeat(&self) {
        let mut state = self.lock();
        state.repeats = true;
        self.0.news.notify_one();
    }

    /// Tells the peer on a stream of this end's own, until the connection ends.
    pub(crate) async fn tell(self, connection: &noq::Connection) {
        let Ok(mut stream) = connection.open_uni().await else {
            return;
        };
        // An error means that the connection has ended.
        let _ = stream.set_priority(i32::MAX);
        let mut text = Vec::new();
        put(&mut text, STREAM_TYPE);
        loop {
            self.lock().take_news(&mut text, self.0.opens);
            if stream.write_all(&text).await.is_err() {
                return;
            }
            text.clear();
            tokio::select! {
                () = self.0.news.notified() => {}
                _ = connection.closed() => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.pool.0.lent.fetch_sub(state.lent, Ordering::Relaxed);
    }
}

impl Shared {
    /// What this session may lend by now.
    fn part(&self, state: &State) -> u64 {
        (state.lent + self.pool.free() / 4).max(LEAST_PART)
    }

    /// Says what new streams are lent, when that has changed.
    fn announce_default(&self, state: &mut State) {
        let free = (self.part(state) / 2).saturating_sub(state.lent) / 8;
        let path = UNKNOWN_PATH.max(state.peak + state.peak / 2);
        // In powers of two: who is told seldom needs few packets.
        let share = (free.min(path) + 1).next_power_of_two() / 2;
        let default = share.clamp(FLOOR, self.most);
        if default != state.default {
            let is_first = state.default == 0;
            state.default = default;
            if is_first || !self.opens {
                state.news.insert(NEW_STREAMS, state.told(self.opens));
                self.news.notify_one();
            }
        }
    }
}

impl State {
    /// What the peer is told of new streams. Those that this end `opens` are told of one by one.
    fn told(&self, opens: bool) -> u64 {
        if opens { FLOOR } else { self.default }
    }

    /// Writes what is to be told to `text`.
    fn take_news(&mut self, text: &mut Vec<u8>, opens: bool) {
        let news = std::mem::take(&mut self.news).into_iter();
        let repeated = (NEW_STREAMS, self.told(opens));
        let times = if std::mem::take(&mut self.repeats) {
            REPETITIONS
        } else {
            0
        };
        for (id, limit) in news.chain(std::iter::repeat_n(repeated, times)) {
            put(text, id);
            put(text, limit);
        }
    }

    fn lend(&mut self, pool: &Pool, bytes: u64) {
        self.lent += bytes;
        pool.0.lent.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&mut self, pool: &Pool, bytes: u64) {
        self.lent -= bytes;
        pool.0.lent.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Flows never wait for the session's window: it is what they are lent, and what the
    /// next ones will be, and the eighth of it that the library keeps to itself: it tells
    /// of room only when there is so much.
    fn session_window(&mut self, pool: &Pool) -> Option<VarInt> {
        let floors = FLOOR * (self.flows.len() as u64 + 1);
        // Of all that one session's floors could be, no more than a part of the memory.
        let floors = floors.min(pool.0.total / 4);
        // Streams may begin before their peer has heard of a smaller default.
        let next = 4 * self.default;
        let needed = (self.lent + floors + next + SESSION_SLACK).max(SESSION_BASE);
        let wanted = (needed + needed / 7).next_multiple_of(SESSION_STEP);
        // It is lowered with hesitation: what has been told cannot be taken back at once.
        if wanted > self.session || wanted < self.session / 2 {
            self.session = wanted;
            return Some(VarInt::from_u64(wanted).unwrap_or(VarInt::MAX));
        }
        None
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of one round trip, saturating"
)]
fn bytes_in(rate: f64, time: Duration) -> u64 {
    (rate * time.as_secs_f64()) as u64
}

/// Writes a variable-length integer (RFC 9000, section 16) in its longest form.
fn put(text: &mut Vec<u8>, value: u64) {
    text.extend_from_slice(&(value | 0b11 << 62).to_be_bytes());
}

/// Reads what a peer says on its stream, from behind the stream's type.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    rest: Vec<u8>,
}

impl Reader {
    /// Passes on what `data` says to `scheduler`.
    pub(crate) fn take(&mut self, data: &[u8], scheduler: &Scheduler) {
        self.rest.extend_from_slice(data);
        let mut at = 0;
        while let Some((id, first)) = varint::read(&self.rest[at..])
            && let Some((limit, second)) = varint::read(&self.rest[at + first..])
        {
            at += first + second;
            match id {
                NEW_STREAMS => scheduler.default_limit(limit),
                id => scheduler.limit(id, limit),
            }
        }
        self.rest.drain(..at);
    }
}

/// What a new unidirectional stream is, from its first bytes; `None` while they are too few.
pub(crate) fn is_ours(start: &[u8]) -> Option<Result<usize, ()>> {
    match varint::read(start) {
        Some((STREAM_TYPE, length)) => Some(Ok(length)),
        Some(_) => Some(Err(())),
        None if start.len() >= 8 => Some(Err(())),
        None => None,
    }
}
