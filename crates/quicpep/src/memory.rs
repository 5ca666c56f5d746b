//! The memory of a proxy: what all its connections may hold together, as their windows.
//!
//! A connection may hold what it has received and not passed on (its receive window), and
//! what it has sent and not heard acknowledged (its send window). A joined pair of connections
//! has two of each. Each may be as large as its side asks for, but no larger than an equal
//! share of the memory; shares change in powers of two, so that a new pair seldom changes the
//! others'.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use noq::{Connection, VarInt};

use crate::transport::{LEAST, Side};

/// Windows of a pair.
const WINDOWS: u64 = 4;

/// The memory of one proxy. Clones are the same.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: u64,
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
            total,
            state: Mutex::default(),
        }))
    }

    /// How many pairs of connections have room, with the least share each.
    pub fn room(&self) -> usize {
        usize::try_from(self.0.total / (WINDOWS * LEAST)).unwrap_or(usize::MAX)
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
        self.0.total / WINDOWS / pairs.next_power_of_two() as u64
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
