//! The memory of a proxy: what all its connections may hold together, as their windows and as
//! datagrams that wait.
//!
//! A connection may hold what it has received and not passed on (its receive window), and
//! what it has sent and not heard acknowledged (its send window). A joined pair of connections
//! has two of each, and in each direction datagrams of a quarter of a window. Each window may
//! be as large as its side asks for, but no larger than an equal share of the memory; shares
//! change in powers of two, so that a new pair seldom changes the others'.
//!
//! An eighth is not handed out: what lies in windows needs more room than its bytes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use noq::{Connection, VarInt};

use crate::transport::{DATAGRAMS, LEAST, Side};

/// Windows of a pair.
const WINDOWS: u64 = 4;
/// What of a window datagrams may take in each direction.
const DATAGRAMS_PART: u64 = 4;

/// The share of one window when `pairs` have `memory` bytes together.
fn share(memory: u64, pairs: u64) -> u64 {
    memory / (WINDOWS * DATAGRAMS_PART + 2) * DATAGRAMS_PART / pairs
}

/// The memory of one proxy. Clones are the same.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// What pairs may have together, bytes.
    pairs: u64,
    /// What a window may hold now, bytes.
    share: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pairs: BTreeMap<u64, Pair>,
    next: u64,
}

/// Two connections with the most that each may hold: receive window and send window.
#[derive(Debug)]
struct Pair([(Connection, u64, u64); 2]);

/// A pair's part of the memory, until this is dropped.
#[derive(Debug)]
pub struct Part {
    memory: Memory,
    number: u64,
}

impl Memory {
    /// A memory of `total` bytes.
    pub fn new(total: u64) -> Self {
        let pairs = total - total / 8;
        Self(Arc::new(Shared {
            pairs,
            share: AtomicU64::new(share(pairs, 1)),
            state: Mutex::default(),
        }))
    }

    /// How many pairs of connections have room: each window has half of what it begins with, at least.
    pub fn room(&self) -> usize {
        usize::try_from(share(self.0.pairs, LEAST)).unwrap_or(usize::MAX)
    }

    /// What may wait of datagrams in one direction of a pair, bytes.
    pub fn datagrams(&self) -> usize {
        let part = self.0.share.load(Ordering::Relaxed) / DATAGRAMS_PART;
        usize::try_from(part).map_or(DATAGRAMS, |part| part.min(DATAGRAMS))
    }

    /// Gives two connections that are joined their part.
    pub fn join(&self, client: (&Connection, &Side), next: (&Connection, &Side)) -> Part {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let member = |(connection, side): (&Connection, &Side)| {
            (
                connection.clone(),
                side.receive_window(),
                side.send_window(),
            )
        };
        let pair = Pair([member(client), member(next)]);
        pair.limit(self.share(state.pairs.len() + 1));
        state.pairs.insert(number, pair);
        self.update(&state);
        Part {
            memory: self.clone(),
            number,
        }
    }

    fn share(&self, pairs: usize) -> u64 {
        share(self.0.pairs, pairs.next_power_of_two() as u64)
    }

    /// Tells all pairs their shares, if these have changed.
    fn update(&self, state: &State) {
        let share = self.share(state.pairs.len());
        if share != self.0.share.swap(share, Ordering::Relaxed) {
            for pair in state.pairs.values() {
                pair.limit(share);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.pairs.remove(&self.number);
        self.memory.update(&state);
    }
}

impl Pair {
    fn limit(&self, share: u64) {
        for (connection, receive, send) in &self.0 {
            let window = VarInt::from_u64(share.min(*receive)).unwrap_or(VarInt::MAX);
            connection.set_receive_window(window);
            connection.set_send_window(share.min(*send));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_hundred_pairs_have_room_in_256_mib_and_leave_an_eighth() {
        const TOTAL: u64 = 256 << 20;
        let memory = Memory::new(TOTAL);
        let room = memory.room();
        assert!(room >= 500, "{room}");
        for pairs in 1..=room {
            let share = memory.share(pairs);
            let held = (WINDOWS * share + 2 * (share / DATAGRAMS_PART)) * pairs as u64;
            assert!(held <= TOTAL / 8 * 7, "{pairs} pairs: {held}");
        }
    }
}
