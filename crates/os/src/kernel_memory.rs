//! Memory that the kernel may hold for one end's connections.
//!
//! Linux lets each receive buffer grow to several megabytes by itself, for a reader that keeps
//! up and for one that then stops. So each connection is lent a part of what is still free: while
//! there is much, as much as the kernel would ever give it; then a fixed buffer, smaller the
//! more there are, and at last a floor that no connection goes without. So with what it may
//! hold unsent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bentpipe_units::Bytes;
use socket2::SockRef;

/// What the kernel lets a receive buffer grow to where that cannot be read.
const USUAL_LARGEST: u64 = 6 << 20;
/// The least that a receive buffer has, bytes.
const FLOOR: u64 = 32 * 1024;
/// What the kernel takes of a connection before it can send it, bytes.
pub(crate) const UNSENT: u32 = 128 * 1024;
/// And the least of it.
const UNSENT_FLOOR: u32 = 16 * 1024;
/// The part of what is free that one connection may have.
const SHARE: u64 = 8;
/// The part of that which it may hold unsent.
const UNSENT_SHARE: u64 = 8;

/// Memory that connections are lent. Clones are the same.
#[derive(Debug, Clone)]
pub struct KernelMemory(Arc<State>);

#[derive(Debug)]
struct State {
    total: u64,
    /// What the kernel lets one buffer grow to by itself.
    largest: u64,
    lent: AtomicU64,
}

/// One connection's part, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    memory: KernelMemory,
    bytes: u64,
    receive: Option<u32>,
    unsent: u32,
}

impl KernelMemory {
    /// Half as much as an end may hold itself, with `memory` as in its configuration.
    pub fn beside(memory: Bytes) -> Self {
        let largest = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem");
        let largest = largest
            .ok()
            .and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
        Self(Arc::new(State {
            total: memory.as_u64() / 2,
            largest: largest.unwrap_or(USUAL_LARGEST),
            lent: AtomicU64::new(0),
        }))
    }

    /// A part for one more connection.
    pub(crate) fn lend(&self) -> Lent {
        let lent = self.0.lent.load(Ordering::Relaxed);
        let share = self.0.total.saturating_sub(lent) / SHARE;
        let (held, receive) = if share >= self.0.largest {
            (self.0.largest, None)
        } else {
            // The kernel doubles what it is asked for (socket(7)).
            let fixed = (share / 2).max(FLOOR);
            (2 * fixed, Some(u32::try_from(fixed).unwrap_or(u32::MAX)))
        };
        let unsent = u32::try_from(share / UNSENT_SHARE).unwrap_or(UNSENT);
        let unsent = unsent.clamp(UNSENT_FLOOR, UNSENT);
        let bytes = held + u64::from(unsent);
        self.0.lent.fetch_add(bytes, Ordering::Relaxed);
        Lent {
            memory: self.clone(),
            bytes,
            receive,
            unsent,
        }
    }
}

impl Lent {
    /// Holds the kernel to it for `socket`, if possible before it is connected.
    pub(crate) fn bound(&self, socket: SockRef<'_>) -> io::Result<()> {
        if let Some(bytes) = self.receive {
            socket.set_recv_buffer_size(bytes as usize)?;
        }
        if self.unsent < UNSENT {
            socket.set_tcp_notsent_lowat(self.unsent)?;
        }
        Ok(())
    }

    /// Whether the kernel tunes the receive buffer by itself.
    pub(crate) fn is_tuned(&self) -> bool {
        self.receive.is_none()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.memory.0.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
