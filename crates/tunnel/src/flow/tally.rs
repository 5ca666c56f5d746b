//! The tally of an end's flows: how many are open, what they have carried, how they ended,
//! and which of their datagrams were dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_quic::drops::{DropCause, Drops};

use super::{Carried, FlowError};

/// Counts flows. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    open_udp: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    ended: AtomicU64,
    failed: Mutex<BTreeMap<&'static str, u64>>,
    drops: Drops,
}

/// A flow that is open until this is dropped.
#[derive(Debug)]
pub struct OpenFlow {
    tally: Tally,
    is_udp: bool,
}

/// The tally at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct TallySnapshot {
    /// Flows that are open.
    pub open: u64,
    /// Those of them that are of UDP, which end only when they have been idle.
    pub open_udp: u64,
    /// Flows that have ended well.
    pub ended: u64,
    /// Flows that were refused or reset, by cause.
    pub failed: BTreeMap<&'static str, u64>,
    /// Datagrams that this end has dropped, by cause; causes without any are left out.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Bytes from local sockets into the tunnel, of flows that are over.
    pub up_bytes: u64,
    /// Bytes from the tunnel to local sockets, of flows that are over.
    pub down_bytes: u64,
}

impl Tally {
    /// Counts a flow as open.
    pub fn open(&self) -> OpenFlow {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        OpenFlow {
            tally: self.clone(),
            is_udp: false,
        }
    }

    /// Counts a flow of UDP as open.
    pub fn open_udp(&self) -> OpenFlow {
        self.0.open_udp.fetch_add(1, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::Relaxed);
        OpenFlow {
            tally: self.clone(),
            is_udp: true,
        }
    }

    /// Counts a flow that is over.
    pub fn over(&self, carried: Carried, result: &Result<(), FlowError>) {
        self.0.up.fetch_add(carried.up, Ordering::Relaxed);
        self.0.down.fetch_add(carried.down, Ordering::Relaxed);
        match result {
            Ok(()) => {
                self.0.ended.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.failed(error.cause()),
        }
    }

    /// Counts a flow that was refused or reset because of `cause`.
    pub fn failed(&self, cause: &'static str) {
        let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed.entry(cause).or_default() += 1;
    }

    /// Where datagrams are counted that are dropped.
    pub fn drops(&self) -> &Drops {
        &self.0.drops
    }

    /// Whether no flow is open that ends by itself: all but those of UDP.
    pub fn is_drained(&self) -> bool {
        let now = self.snapshot();
        now.open <= now.open_udp
    }

    /// The counts now.
    pub fn snapshot(&self) -> TallySnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        TallySnapshot {
            open: read(&self.0.open),
            open_udp: read(&self.0.open_udp),
            ended: read(&self.0.ended),
            failed: failed.clone(),
            dropped: DropCause::ALL
                .into_iter()
                .map(|cause| (cause.name(), self.0.drops.of(cause)))
                .filter(|(_, dropped)| *dropped > 0)
                .collect(),
            up_bytes: read(&self.0.up),
            down_bytes: read(&self.0.down),
        }
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        let counts = &self.tally.0;
        counts.open.fetch_sub(1, Ordering::Relaxed);
        if self.is_udp {
            counts.open_udp.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
