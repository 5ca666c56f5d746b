//! Memory that the kernel may hold in the receive buffers of one end's connections.
//!
//! Linux lets each buffer grow to several megabytes by itself, for a reader that keeps up
//! and for one that does not. So each connection is lent a part of what is still free: while
//! there is much, as much as the kernel would ever give it; then a fixed buffer, smaller the
//! more there are, and at last a floor that no connection goes without.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the kernel lets a buffer grow to where that cannot be read.
const USUAL_LARGEST: u64 = 6 << 20;
/// The least that a connection gets, bytes.
const FLOOR: u64 = 32 * 1024;
/// The part of what is free that one connection may have.
const SHARE: u64 = 8;

/// Memory that connections are lent. Clones are the same.
#[derive(Debug, Clone)]
pub struct ReceiveMemory(Arc<State>);

#[derive(Debug)]
struct State {
    total: u64,
    /// What the kernel lets one buffer grow to by itself.
    largest: u64,
    lent: AtomicU64,
}

/// One connection's part, given back when it is dropped.
#[derive(Debug)]
pub struct Lent {
    memory: ReceiveMemory,
    bytes: u64,
    fixed: Option<u32>,
}

impl ReceiveMemory {
    /// Memory of `total` bytes.
    pub fn new(total: u64) -> Self {
        let largest = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem");
        let largest = largest
            .ok()
            .and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
        Self(Arc::new(State {
            total,
            largest: largest.unwrap_or(USUAL_LARGEST),
            lent: AtomicU64::new(0),
        }))
    }

    /// A part for one more connection.
    pub fn lend(&self) -> Lent {
        let lent = self.0.lent.load(Ordering::Relaxed);
        let share = self.0.total.saturating_sub(lent) / SHARE;
        let (bytes, fixed) = if share >= self.0.largest {
            (self.0.largest, None)
        } else {
            // The kernel doubles what it is asked for (socket(7)).
            let fixed = (share / 2).max(FLOOR);
            (2 * fixed, Some(u32::try_from(fixed).unwrap_or(u32::MAX)))
        };
        self.0.lent.fetch_add(bytes, Ordering::Relaxed);
        Lent {
            memory: self.clone(),
            bytes,
            fixed,
        }
    }
}

impl Lent {
    /// The size to fix the buffer at; `None` leaves it to the kernel.
    pub fn fixed(&self) -> Option<u32> {
        self.fixed
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.memory.0.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
