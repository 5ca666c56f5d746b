//! Datagrams that wait to be sent: a queue for each request, under controlled delay.
//!
//! Hosts take turns by bytes, and so do the requests of one host (deficit round robin,
//! Shreedhar and Varghese 1995): a call does not wait behind a transfer, not even one of its own
//! host. Each queue is under controlled delay ([`crate::codel`]), as in FQ-CoDel (RFC 8290): where another
//! is dropped, a datagram whose ends speak ECN (RFC 3168) is marked.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::codel::CoDel;
use crate::drops::{DropCause, Drops};
use crate::schedule::Host;
use crate::varint;

/// What may wait for one host, bytes, and for all: a round trip over GEO at 20 Mbit/s, so that a sender which
/// halves its window (RFC 9002, section 7.3.2) still keeps the link busy.
const HOST_QUEUE: usize = 1280 * 1024;
const QUEUES: usize = 2 << 20;
/// Where there is no more room, so much is made at a time, bytes. A sender in slow start fills a queue at twice the
/// rate at which it empties: losing every other packet, its receiver's acknowledgements would have a range for
/// each, and fill the return link.
const ROOM_MADE: usize = 64 * 1024;
/// What every datagram counts beside its bytes: an empty one takes memory too.
pub(crate) const OVERHEAD: usize = 64;
/// What a host, or one of its requests, may send at its turn, bytes: a full packet with what it costs.
const QUANTUM: usize = 1500 + OVERHEAD;
/// Among so many, whose turns are next, the longest queue is looked for when there is no more room.
const LOOKED_AT: usize = 32;

/// Lets a datagram's content say that it has met congestion; `false` if it cannot.
pub type MarkCongested = fn(&mut [u8]) -> bool;

/// Whose datagrams wait.
#[derive(Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) host: Host,
    pub(crate) request: u64,
    pub(crate) mark: MarkCongested,
}

/// What waits to be sent.
#[derive(Default)]
pub(crate) struct Outgoing {
    hosts: Turns<Host, Requests>,
    bytes: usize,
    /// A frame is on its way into the library: none may overtake it.
    under_way: bool,
}

/// What waits for one host.
#[derive(Default)]
struct Requests {
    queues: Turns<u64, Queue>,
    bytes: usize,
}

/// What waits of one request.
#[derive(Default)]
struct Queue {
    frames: VecDeque<(Instant, Bytes)>,
    bytes: usize,
    codel: CoDel,
    mark: Option<MarkCongested>,
}

/// Those who wait, in their turn, each with what it may still send at this one, bytes.
struct Turns<K, V> {
    those: BTreeMap<K, (usize, V)>,
    order: VecDeque<K>,
}

impl<K, V> Default for Turns<K, V> {
    fn default() -> Self {
        Self {
            those: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Copy + Ord, V: Default> Turns<K, V> {
    /// Whoever is `key`, behind all others if it did not wait before.
    fn enter(&mut self, key: K) -> &mut V {
        let (_, waiting) = self.those.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            Default::default()
        });
        waiting
    }

    /// Whose turn it is, as `next` tells what each would send, bytes; those with nothing leave.
    fn turn(&mut self, next: impl Fn(&mut V) -> Option<usize>) -> Option<K> {
        loop {
            let key = *self.order.front()?;
            let (credit, waiting) = self.those.get_mut(&key)?;
            match next(waiting) {
                None => {
                    self.order.pop_front();
                    self.those.remove(&key);
                }
                Some(bytes) if *credit < bytes => {
                    *credit += QUANTUM;
                    self.order.rotate_left(1);
                }
                Some(_) => return Some(key),
            }
        }
    }

    /// `key`, at whose expense `bytes` are sent.
    fn charge(&mut self, key: K, bytes: usize) -> Option<&mut V> {
        let (credit, waiting) = self.those.get_mut(&key)?;
        *credit = credit.saturating_sub(bytes);
        Some(waiting)
    }

    /// Who has most of those that are next; those with nothing leave.
    fn largest(&mut self, bytes: impl Fn(&V) -> usize) -> Option<&mut V> {
        while let Some(key) = self.order.front()
            && (self.those.get(key)).is_none_or(|(_, waiting)| bytes(waiting) == 0)
        {
            self.those.remove(key);
            self.order.pop_front();
        }
        let of = |key: &&K| self.those.get(key).map_or(0, |(_, waiting)| bytes(waiting));
        let largest = *self.order.iter().take(LOOKED_AT).max_by_key(of)?;
        self.those.get_mut(&largest).map(|(_, waiting)| waiting)
    }
}

impl Queue {
    fn next(&self) -> Option<usize> {
        self.frames.front().map(|(_, frame)| cost(frame))
    }

    fn pop(&mut self) -> Option<(Instant, Bytes, usize)> {
        let (entered, frame) = self.frames.pop_front()?;
        let bytes = cost(&frame);
        self.bytes -= bytes;
        Some((entered, frame, bytes))
    }

    /// `frame` of `request`, marked as one that has met congestion, if it can be.
    fn marked(&self, request: u64, frame: Bytes) -> Option<Bytes> {
        let mut frame = BytesMut::from(frame);
        let content = frame.get_mut(varint::length(request / 4)..)?;
        self.mark?(content).then(|| frame.freeze())
    }
}

impl Requests {
    fn next(&mut self) -> Option<usize> {
        let request = self.queues.turn(|queue| queue.next())?;
        self.queues.those.get(&request)?.1.next()
    }

    /// Drops the oldest frame of the longest queue; how many bytes it was.
    fn drop_one(&mut self) -> Option<usize> {
        let (_, _, bytes) = self.queues.largest(|queue| queue.bytes)?.pop()?;
        self.bytes -= bytes;
        Some(bytes)
    }
}

impl Outgoing {
    /// Whether nothing waits, nor is on its way into the library.
    pub(crate) fn is_idle(&self) -> bool {
        self.bytes == 0 && !self.under_way
    }

    /// Lets `frame` wait, which is of `flow`. How many others are dropped for it.
    pub(crate) fn enter(&mut self, flow: Flow, frame: Bytes, now: Instant) -> u64 {
        let Flow {
            host,
            request,
            mark,
        } = flow;
        let bytes = cost(&frame);
        let mut dropped = 0;
        let requests = self.hosts.enter(host);
        let room = room(HOST_QUEUE, requests.bytes + bytes);
        while requests.bytes + bytes > room
            && let Some(less) = requests.drop_one()
        {
            self.bytes -= less;
            dropped += 1;
        }
        let room = self::room(QUEUES, self.bytes + bytes);
        while self.bytes + bytes > room
            && let Some(largest) = self.hosts.largest(|requests| requests.bytes)
            && let Some(less) = largest.drop_one()
        {
            self.bytes -= less;
            dropped += 1;
        }
        let requests = self.hosts.enter(host);
        let queue = requests.queues.enter(request);
        queue.mark = Some(mark);
        queue.frames.push_back((now, frame));
        queue.bytes += bytes;
        requests.bytes += bytes;
        self.bytes += bytes;
        dropped
    }

    /// Takes out the next frame to send, whoever's turn it is, over a path of this `round_trip`; those that are dropped because they have
    /// waited too long are counted in `drops`.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        round_trip: Duration,
        drops: &Drops,
    ) -> Option<Bytes> {
        let next = self.pop(now, round_trip, drops);
        self.under_way = next.is_some();
        next
    }

    fn pop(&mut self, now: Instant, round_trip: Duration, drops: &Drops) -> Option<Bytes> {
        loop {
            let host = self.hosts.turn(Requests::next)?;
            let requests = &mut self.hosts.those.get_mut(&host)?.1;
            let request = requests.queues.turn(|queue| queue.next())?;
            let queue = &mut requests.queues.those.get_mut(&request)?.1;
            let (entered, frame, bytes) = queue.pop()?;
            let too_late = queue.codel.drops(now, entered, round_trip, queue.bytes);
            requests.bytes -= bytes;
            self.bytes -= bytes;
            let frame = match too_late {
                true => queue.marked(request, frame),
                false => Some(frame),
            };
            let Some(frame) = frame else {
                drops.add(DropCause::WaitedTooLong, 1);
                continue;
            };
            requests.queues.charge(request, bytes);
            self.hosts.charge(host, bytes);
            return Some(frame);
        }
    }
}

/// What is to wait at most where `limit` may, and `wanted` wants to.
fn room(limit: usize, wanted: usize) -> usize {
    match wanted > limit {
        true => limit - ROOM_MADE,
        false => limit,
    }
}

/// What `content` counts while it waits.
pub(crate) fn cost(content: &Bytes) -> usize {
    content.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(500);

    fn flow(host: Host, request: u64) -> Flow {
        Flow {
            host,
            request,
            mark: |_| false,
        }
    }

    fn frame(of: u8, content: usize) -> Bytes {
        let mut frame = BytesMut::zeroed(content);
        frame[0] = of;
        frame.freeze()
    }

    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    fn any() -> Instant {
        Instant::now()
    }

    #[test]
    fn hosts_take_turns_by_bytes_and_a_flood_of_one_takes_no_room_of_others() {
        let (mut outgoing, drops) = (Outgoing::default(), Drops::default());
        let now = any();
        let full: u64 = (0..10_000)
            .map(|_| outgoing.enter(flow(1, 4), frame(1, 1200), now))
            .sum();
        assert!(full > 8_900, "{full}");
        for _ in 0..100 {
            assert_eq!(outgoing.enter(flow(2, 8), frame(2, 300), now), 0);
        }
        let mut sent = [0usize; 3];
        while sent[2] < 100 * 300 {
            let frame = outgoing.next(now, ROUND_TRIP, &drops).unwrap();
            sent[usize::from(frame[0])] += frame.len();
        }
        assert!(sent[1].abs_diff(sent[2]) < 6000, "{sent:?}");
    }

    #[test]
    fn a_call_does_not_wait_behind_a_transfer_of_its_own_host() {
        let (mut outgoing, drops) = (Outgoing::default(), Drops::default());
        let now = any();
        for _ in 0..10_000 {
            outgoing.enter(flow(1, 4), frame(1, 1200), now);
        }
        let full = (0..).find_map(|_| match outgoing.enter(flow(1, 4), frame(1, 1200), now) {
            0 => None,
            dropped => Some(dropped),
        });
        assert!(full > Some(40), "{full:?} of the transfer's oldest at once");
        assert_eq!(outgoing.enter(flow(1, 8), frame(2, 1200), now), 0);
        let before = (0..).find(|_| outgoing.next(now, ROUND_TRIP, &drops).unwrap()[0] == 2);
        assert!(before < Some(3), "{before:?}");
    }

    #[test]
    fn what_has_waited_too_long_is_marked_where_it_can_be_and_else_dropped() {
        let carried = |mark: MarkCongested| {
            let (mut outgoing, drops) = (Outgoing::default(), Drops::default());
            let start = any();
            let mut sent = Vec::new();
            for number in 0..2000 {
                let now = start + Duration::from_millis(number);
                outgoing.enter(Flow { mark, ..flow(1, 4) }, frame(1, 1200), now);
                // A queue that stands.
                if number >= 500 {
                    sent.extend(outgoing.next(now, ROUND_TRIP, &drops));
                }
            }
            assert!(
                sent.iter()
                    .all(|frame| frame[0] == 1 && frame.len() == 1200)
            );
            let marked = sent.iter().filter(|frame| frame[1] == 6).count();
            (sent.len(), marked, drops.of(DropCause::WaitedTooLong))
        };
        let (sent, marked, dropped) = carried(|content| {
            content[0] = 6;
            true
        });
        assert!(marked > 1, "{marked}");
        assert_eq!((sent, dropped), (1500, 0));
        let (_, none, dropped) = carried(|_| false);
        assert_eq!((none, dropped), (0, marked as u64));
    }

    #[test]
    fn what_waits_is_bounded_and_nothing_is_left_of_it() {
        let (mut outgoing, drops) = (Outgoing::default(), Drops::default());
        let now = any();
        for host in 0..200 {
            for request in 0..100 {
                outgoing.enter(flow(host, 4 * request), frame(1, 1200), now);
                assert!(outgoing.bytes <= QUEUES);
            }
        }
        let later = now + Duration::from_secs(1);
        while outgoing.next(later, ROUND_TRIP, &drops).is_some() {}
        assert!(outgoing.is_idle() && outgoing.hosts.those.is_empty());
    }
}
