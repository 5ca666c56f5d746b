//! The memory of a proxy: what all its connections may hold together, as their windows.
//!
//! A connection may hold what it has received and not passed on (its receive window), and
//! what it has sent and not heard acknowledged (its send window). A joined pair of connections
//! has two of each. Each may be as large as its side asks for, but no larger than an equal
//! share of the memory; shares change in powers of two, so that a new pair seldom changes the
//! others'.
//!
//! An eighth is not handed out as windows: what lies in them needs more room than its bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use noq::{Connection, VarInt};

use crate::transport::{LEAST, Side};

/// Windows of a pair.
const WINDOWS: u64 = 4;

/// The bytes of `total` that windows may have together.
fn for_windows(total: u64) -> u64 {
    total - total / 8
}

/// The memory of one proxy. Clones are the same.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// What all windows may hold, bytes.
    windows: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pairs: BTreeMap<u64, Pair>,
    next: u64,
    share: u64,
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
        Self(Arc::new(Shared {
            windows: for_windows(total),
            state: Mutex::default(),
        }))
    }

    /// How many pairs of connections have room: each window has half of what it begins with, at least.
    pub fn room(&self) -> usize {
        usize::try_from(self.0.windows / (WINDOWS * LEAST)).unwrap_or(usize::MAX)
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
        let share = self.share(state.pairs.len() + 1);
        pair.limit(share);
        state.pairs.insert(number, pair);
        state.change(share);
        Part {
            memory: self.clone(),
            number,
        }
    }

    fn share(&self, pairs: usize) -> u64 {
        self.0.windows / WINDOWS / pairs.next_power_of_two() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.pairs.remove(&self.number);
        let share = self.memory.share(state.pairs.len());
        state.change(share);
    }
}

impl State {
    fn change(&mut self, share: u64) {
        if share != self.share {
            self.share = share;
            for pair in self.pairs.values() {
                pair.limit(share);
            }
        }
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
            let held = WINDOWS * memory.share(pairs) * pairs as u64;
            assert!(held <= TOTAL / 8 * 7, "{pairs} pairs: {held}");
        }
    }
}
