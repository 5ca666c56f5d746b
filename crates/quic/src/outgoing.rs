//! Datagrams that wait to be sent: a queue for each request, under controlled delay.
//!
//! Hosts take turns by bytes, and so do the requests of one host (deficit round robin,
//! Shreedhar and Varghese 1995): a call does not wait behind a transfer, not even one of its own
//! host. Each queue is under controlled delay ([`crate::codel`]), as in FQ-CoDel (RFC 8290).

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tokio::time::Instant;

use crate::codel::CoDel;
use crate::drops::{DropCause, Drops};
use crate::schedule::Host;

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

    /// Lets `frame` wait, which is of a `request` of `host`'s. How many others are dropped for it.
    pub(crate) fn enter(&mut self, host: Host, request: u64, frame: Bytes, now: Instant) -> u64 {
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
        queue.frames.push_back((now, frame));
        queue.bytes += bytes;
        requests.bytes += bytes;
        self.bytes += bytes;
        dropped
    }

    /// Takes out the next frame to send, whoever's turn it is; those that have waited too long are counted
    /// in `drops`.
    pub(crate) fn next(&mut self, now: Instant, drops: &Drops) -> Option<Bytes> {
        let next = self.pop(now, drops);
        self.under_way = next.is_some();
        next
    }

    fn pop(&mut self, now: Instant, drops: &Drops) -> Option<Bytes> {
        loop {
            let host = self.hosts.turn(Requests::next)?;
            let requests = &mut self.hosts.those.get_mut(&host)?.1;
            let request = requests.queues.turn(|queue| queue.next())?;
            let queue = &mut requests.queues.those.get_mut(&request)?.1;
            let (entered, frame, bytes) = queue.pop()?;
            let too_late = queue.codel.drops(now, entered, queue.bytes);
            requests.bytes -= bytes;
            self.bytes -= bytes;
            if too_late {
                drops.add(DropCause::WaitedTooLong, 1);
                continue;
            }
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
    use std::time::Duration;

    use bytes::BytesMut;

    use super::*;

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
            .map(|_| outgoing.enter(1, 4, frame(1, 1200), now))
            .sum();
        assert!(full > 8_900, "{full}");
        for _ in 0..100 {
            assert_eq!(outgoing.enter(2, 8, frame(2, 300), now), 0);
        }
        let mut sent = [0usize; 3];
        while sent[2] < 100 * 300 {
            let frame = outgoing.next(now, &drops).unwrap();
            sent[usize::from(frame[0])] += frame.len();
        }
        assert!(sent[1].abs_diff(sent[2]) < 6000, "{sent:?}");
    }

    #[test]
    fn a_call_does_not_wait_behind_a_transfer_of_its_own_host() {
        let (mut outgoing, drops) = (Outgoing::default(), Drops::default());
        let now = any();
        for _ in 0..10_000 {
            outgoing.enter(1, 4, frame(1, 1200), now);
        }
        let full = (0..).find_map(|_| match outgoing.enter(1, 4, frame(1, 1200), now) {
            0 => None,
            dropped => Some(dropped),
        });
        assert!(full > Some(40), "{full:?} of the transfer's oldest at once");
        assert_eq!(outgoing.enter(1, 8, frame(2, 1200), now), 0);
        let before = (0..).find(|_| outgoing.next(now, &drops).unwrap()[0] == 2);
        assert!(before < Some(3), "{before:?}");
    }

    #[test]
    fn what_waits_is_bounded_and_nothing_is_left_of_it() {
        let (mut outgoing, drops) = (Outgoing::default(), Drops::default());
        let now = any();
        for host in 0..200 {
            for request in 0..100 {
                outgoing.enter(host, 4 * request, frame(1, 1200), now);
                assert!(outgoing.bytes <= QUEUES);
            }
        }
        let later = now + Duration::from_secs(1);
        while outgoing.next(later, &drops).is_some() {}
        assert!(outgoing.is_idle() && outgoing.hosts.those.is_empty());
    }
}
