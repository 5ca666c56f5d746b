//! The send scheduler of a session: whose bytes the QUIC library gets next.
//!
//! The library sends in the order of its own queue, so that queue is kept short: a flow
//! writes a quantum when it is its turn, and as a whole no more is written than the
//! congestion window can use soon. What waits, waits here, where the order can still change:
//!
//! 1. by class: small flows before medium ones before bulk, by the bytes really sent since
//!    the flow was last idle;
//! 2. within a class by host, then by flow, the least served first (start-time fair
//!    queueing, Goyal, Vin and Cheng, SIGCOMM 1996): a host with sixteen flows gets as much
//!    as a host with one.
//!
//! Only the flow whose turn it is attempts to write, so only it is woken when there is room;
//! the next one stands by, in case that it is the first one's own stream that has none.
//! Room is reserved for small flows: bulk leaves a part of the queue free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// Bytes after which a flow is no longer small. The median web object is below 64 KiB; a
/// page of them stays ahead of any download.
const SMALL: u64 = 64 * 1024;
/// Bytes after which a flow is bulk.
const BULK: u64 = 2 * 1024 * 1024;
/// A flow that has sent nothing for so long begins anew as a small one.
const IDLE: Duration = Duration::from_secs(1);
/// What a flow writes at its turn before others are looked at, bytes.
const QUANTUM: usize = 16 * 1024;
/// Unsent bytes beyond the congestion window that keep the sender busy until the next turn.
const AHEAD: u64 = 256 * 1024;
/// Room for small flows that no other may use, and half of it that only bulk may not,
/// bytes: also when the congestion window has just become smaller.
const RESERVE: u64 = 1024 * 1024;
/// What a session may have written that is not acknowledged, bytes, however little its flows are lent: the reserve is for those that begin.
pub const LEAST_SEND_WINDOW: u64 = 2 * RESERVE;
/// Limits that have come for streams not yet seen, at most.
const MAX_EARLY_LIMITS: usize = 1024;

/// How urgent a flow's next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Small, or just begun.
    Small,
    /// In between.
    Medium,
    /// Long.
    Bulk,
}

/// Whom a flow belongs to, for shares; 0 if that is not known.
pub type Host = u64;

impl Class {
    const COUNT: usize = 3;

    fn of(sent: u64) -> Self {
        match sent {
            0..SMALL => Self::Small,
            SMALL..BULK => Self::Medium,
            _ => Self::Bulk,
        }
    }

    /// The priority of a stream with such bytes in the library's queue; larger goes first.
    pub fn priority(self) -> i32 {
        match self {
            Self::Small => 2,
            Self::Medium => 1,
            Self::Bulk => 0,
        }
    }

    /// How much of what has been written may be unacknowledged, with `window` as the
    /// congestion window, bytes.
    pub fn send_window(self, window: u64) -> u64 {
        let ahead = window.saturating_add(AHEAD);
        match self {
            Self::Small => ahead.saturating_add(RESERVE),
            Self::Medium => ahead.saturating_add(RESERVE / 2),
            Self::Bulk => ahead,
        }
    }
}

/// A flow's turn: what it may write now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// As what.
    pub class: Class,
    /// At most so many bytes.
    pub bytes: usize,
}

/// The scheduler of one session. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Scheduler(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    flows: BTreeMap<u64, Flow>,
    hosts: BTreeMap<Host, HostState>,
    classes: [ClassState; Class::COUNT],
    /// Where the peer lets new streams send to, once it says so.
    default_limit: Option<u64>,
    early_limits: BTreeMap<u64, u64>,
    /// Which flow the library has taken nothing of at its turn.
    blocked: Option<u64>,
    /// The session is over: whoever writes learns it from the library.
    closed: bool,
}

#[derive(Debug)]
struct Flow {
    host: Host,
    class: Class,
    /// Bytes sent in all, and since it was last idle.
    sent: u64,
    recent: u64,
    last: Option<Instant>,
    /// How far the peer lets it send.
    limit: u64,
    /// Bytes served, on the host's scale of this class.
    tag: u64,
    /// In line, and how to reach it.
    waiting: bool,
    waker: Option<Waker>,
    /// Standing by, it has let the first one try again.
    has_yielded: bool,
}

#[derive(Debug, Default)]
struct HostState {
    flows: usize,
    lines: [Line; Class::COUNT],
}

/// The flows of one host and class that are in line, the least served first.
#[derive(Debug, Default)]
struct Line {
    /// Bytes served, on the scale of the class.
    tag: u64,
    /// Where the flow served last began, on the scale of the flows.
    time: u64,
    flows: BTreeSet<(u64, u64)>,
}

/// The hosts with flows in line in one class, the least served first.
#[derive(Debug, Default)]
struct ClassState {
    time: u64,
    hosts: BTreeSet<(u64, Host)>,
}

impl Scheduler {
    /// A flow on stream `id` begins.
    pub fn begin(&self, id: u64) {
        let mut state = self.lock();
        let limit = state
            .early_limits
            .remove(&id)
            .max(state.default_limit)
            .unwrap_or(u64::MAX);
        state.hosts.entry(0).or_default().flows += 1;
        state.flows.insert(
            id,
            Flow {
                host: 0,
                class: Class::Small,
                sent: 0,
                recent: 0,
                last: None,
                limit,
                tag: 0,
                waiting: false,
                waker: None,
                has_yielded: false,
            },
        );
    }

    /// The flow on stream `id` belongs to `host`.
    pub fn set_host(&self, id: u64, host: Host) {
        let mut state = self.lock();
        state.leave(id);
        let Some(flow) = state.flows.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut flow.host, host);
        flow.tag = 0;
        if let Some(waker) = flow.waker.take() {
            waker.wake();
        }
        state.hosts.entry(host).or_default().flows += 1;
        state.forget_host(before);
        state.wake_first();
    }

    /// The flow on stream `id` wants to write: its turn, or nothing until it is woken.
    pub fn poll_turn(&self, id: u64, now: Instant, waker: &Waker) -> Poll<Turn> {
        let mut state = self.lock();
        let closed = state.closed;
        let Some(flow) = state.flows.get_mut(&id) else {
            return Poll::Pending;
        };
        if closed {
            return Poll::Ready(Turn {
                class: Class::Bulk,
                bytes: QUANTUM,
            });
        }
        let room = flow.limit.saturating_sub(flow.sent);
        if room == 0 {
            // The peer's next limit wakes it.
            flow.waker = Some(waker.clone());
            state.leave(id);
            state.wake_first();
            return Poll::Pending;
        }
        if flow.last.is_some_and(|last| now - last >= IDLE) && !flow.waiting {
            flow.recent = 0;
        }
        flow.last = Some(now);
        flow.waker = Some(waker.clone());
        let has_yielded = std::mem::replace(&mut flow.has_yielded, true);
        if state.blocked == Some(id) || !has_yielded {
            // There may be room by now, and it is the first one's.
            state.blocked = None;
        }
        state.enter(id);
        if state.first() != Some(id) {
            state.wake_first();
            return Poll::Pending;
        }
        let class = state.flows.get(&id).map_or(Class::Bulk, |flow| flow.class);
        let bytes = usize::try_from(room).unwrap_or(usize::MAX).min(QUANTUM);
        Poll::Ready(Turn { class, bytes })
    }

    /// The flow on stream `id` has written `bytes` at its turn.
    pub fn wrote(&self, id: u64, bytes: u64) {
        let mut state = self.lock();
        state.charge(id, bytes);
        state.wake_first_but(id);
    }

    /// The library has taken nothing of the flow on stream `id` at its turn, and wakes it
    /// when it does.
    pub fn blocked(&self, id: u64) {
        let mut state = self.lock();
        let Some(flow) = state.flows.get_mut(&id) else {
            return;
        };
        flow.has_yielded = false;
        if flow.limit == u64::MAX {
            // How far the peer lets this stream go only the library knows, so it may be that.
            state.leave(id);
            state.wake_first();
        } else if state.blocked.is_none() {
            state.blocked = Some(id);
            state.wake_first();
        }
    }

    /// The flow on stream `id` has nothing to write for now.
    pub fn pause(&self, id: u64) {
        let mut state = self.lock();
        if state.leave(id) {
            state.wake_first();
        }
    }

    /// The flow on stream `id` has ended.
    pub fn end(&self, id: u64) {
        let mut state = self.lock();
        let was_in_line = state.leave(id);
        if let Some(flow) = state.flows.remove(&id) {
            state.forget_host(flow.host);
        }
        if was_in_line {
            state.wake_first();
        }
    }

    /// The peer lets stream `id` send up to `limit` bytes in all.
    pub fn limit(&self, id: u64, limit: u64) {
        let mut state = self.lock();
        let early = state.early_limits.len();
        match state.flows.get_mut(&id) {
            Some(flow) => {
                flow.limit = match flow.limit {
                    u64::MAX => limit,
                    old => old.max(limit),
                };
                if let Some(waker) = flow.waker.take() {
                    waker.wake();
                }
            }
            None if early < MAX_EARLY_LIMITS => {
                state.early_limits.insert(id, limit);
            }
            None => {}
        }
    }

    /// The peer lets streams that begin from now on send up to `limit` bytes.
    pub fn default_limit(&self, limit: u64) {
        self.lock().default_limit = Some(limit);
    }

    /// The session is over: wakes all.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        for flow in state.flows.values_mut() {
            if let Some(waker) = flow.waker.take() {
                waker.wake();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Puts the flow in line, in the class that it has by now.
    fn enter(&mut self, id: u64) {
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        let class = Class::of(flow.recent);
        if flow.waiting {
            if flow.class == class {
                return;
            }
            self.leave(id);
        }
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let host = self.hosts.entry(flow.host).or_default();
        let line = &mut host.lines[class as usize];
        let of_class = &mut self.classes[class as usize];
        if flow.class != class {
            flow.class = class;
            flow.tag = line.time;
        }
        // Who was away is not owed what he did not ask for.
        flow.tag = flow.tag.max(line.time);
        if line.flows.is_empty() {
            line.tag = line.tag.max(of_class.time);
            of_class.hosts.insert((line.tag, flow.host));
        }
        line.flows.insert((flow.tag, id));
        flow.waiting = true;
    }

    /// Takes the flow out of line; whether it was in it.
    fn leave(&mut self, id: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.waiting) else {
            return false;
        };
        flow.waiting = false;
        if self.blocked == Some(id) {
            self.blocked = None;
        }
        let class = flow.class as usize;
        if let Some(host) = self.hosts.get_mut(&flow.host) {
            let line = &mut host.lines[class];
            line.flows.remove(&(flow.tag, id));
            if line.flows.is_empty() {
                self.classes[class].hosts.remove(&(line.tag, flow.host));
            }
        }
        true
    }

    /// Whose turn it is.
    fn first(&self) -> Option<u64> {
        let classes = self.classes.iter().enumerate();
        let hosts = classes.flat_map(|(class, state)| {
            let hosts = state.hosts.iter();
            hosts.filter_map(move |(_, host)| Some(&self.hosts.get(host)?.lines[class]))
        });
        let mut flows = hosts.flat_map(|line| line.flows.iter().map(|(_, id)| *id));
        flows.find(|id| self.blocked != Some(*id))
    }

    fn charge(&mut self, id: u64, bytes: u64) {
        let was_in_line = self.leave(id);
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let class = flow.class as usize;
        if let Some(host) = self.hosts.get_mut(&flow.host) {
            let line = &mut host.lines[class];
            let of_class = &mut self.classes[class];
            of_class.time = of_class.time.max(line.tag);
            line.time = line.time.max(flow.tag);
            // The line is empty, or its place among the hosts changes with its tag.
            if !line.flows.is_empty() {
                of_class.hosts.remove(&(line.tag, flow.host));
            }
            line.tag += bytes;
            if !line.flows.is_empty() {
                of_class.hosts.insert((line.tag, flow.host));
            }
        }
        flow.tag += bytes;
        flow.sent += bytes;
        flow.recent += bytes;
        if was_in_line {
            self.enter(id);
        }
    }

    fn wake_first(&mut self) {
        if let Some(first) = self.first()
            && let Some(flow) = self.flows.get_mut(&first)
            && let Some(waker) = flow.waker.take()
        {
            waker.wake();
        }
    }

    fn wake_first_but(&mut self, id: u64) {
        if self.first() != Some(id) {
            self.wake_first();
        }
    }

    fn forget_host(&mut self, host: Host) {
        if let Some(state) = self.hosts.get_mut(&host) {
            state.flows -= 1;
            if state.flows == 0 {
                self.hosts.remove(&host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    fn polled(scheduler: &Scheduler, id: u64) -> bool {
        let turn = scheduler.poll_turn(id, Instant::now(), Waker::noop());
        turn.is_ready()
    }

    /// A stream without room of its own must not stop the session.
    #[test]
    fn a_flow_that_the_library_takes_nothing_of_does_not_stop_the_others() {
        for told in [false, true] {
            let scheduler = Scheduler::default();
            if told {
                scheduler.default_limit(1 << 20);
            }
            scheduler.begin(0);
            scheduler.begin(4);
            assert!(polled(&scheduler, 0));
            scheduler.blocked(0);
            // At its second try, when the first one has had its own.
            let turns = [polled(&scheduler, 4), {
                let first = polled(&scheduler, 0);
                scheduler.blocked(0);
                first
            }];
            assert!(turns[0] || turns[1]);
            assert!(polled(&scheduler, 4), "told: {told}");
        }
    }

    #[test]
    fn hosts_and_then_flows_take_turns_by_bytes() {
        let scheduler = Scheduler::default();
        let mut wrote = [0u64; 4];
        for id in 0..4 {
            scheduler.begin(id);
            // All in one class from the beginning.
            scheduler.wrote(id, BULK);
            scheduler.set_host(id, if id == 0 { 1 } else { 2 });
        }
        for _ in 0..3000 {
            for id in 0..4 {
                if polled(&scheduler, id) {
                    // Packets are of all sizes.
                    let bytes = 500 + 977 * (wrote[1] % 7);
                    scheduler.wrote(id, bytes);
                    wrote[usize::try_from(id).unwrap()] += bytes;
                }
            }
        }
        let all: u64 = wrote.iter().sum();
        let share = |bytes: u64| bytes as f64 / all as f64;
        assert!((share(wrote[0]) - 0.5).abs() < 0.01, "{wrote:?}");
        for flow in &wrote[1..] {
            assert!((share(*flow) - 1.0 / 6.0).abs() < 0.01, "{wrote:?}");
        }
    }

    #[test]
    fn a_flow_that_was_idle_is_small_again() {
        let scheduler = Scheduler::default();
        scheduler.begin(0);
        #[expect(clippy::disallowed_methods, reason = "any moment will do")]
        let begin = Instant::now();
        let class = |now| match scheduler.poll_turn(0, now, Waker::noop()) {
            Poll::Ready(turn) => turn.class,
            Poll::Pending => panic!("it is alone"),
        };
        assert_eq!(class(begin), Class::Small);
        scheduler.wrote(0, BULK);
        assert_eq!(class(begin), Class::Bulk);
        scheduler.pause(0);
        assert_eq!(class(begin + IDLE / 2), Class::Bulk);
        scheduler.pause(0);
        assert_eq!(class(begin + IDLE * 2), Class::Small);
    }
}
