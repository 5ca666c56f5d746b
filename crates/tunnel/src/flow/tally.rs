//! The tally of an end's flows: how many are open, what they have carried, how they ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Carried, FlowError};

/// Counts flows. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    ended: AtomicU64,
    failed: Mutex<BTreeMap<&'static str, u64>>,
}

/// A flow that is open until this is dropped.
#[derive(Debug)]
pub struct OpenFlow(Tally);

/// The tally at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct TallySnapshot {
    /// Flows that are open.
    pub open: u64,
    /// Flows that have ended well.
    pub ended: u64,
    /// Flows that were refused or reset, by cause.
    pub failed: BTreeMap<&'static str, u64>,
    /// Bytes from local sockets into the tunnel, of flows that are over.
    pub up_bytes: u64,
    /// Bytes from the tunnel to local sockets, of flows that are over.
    pub down_bytes: u64,
}

impl Tally {
    /// Counts a flow as open.
    pub fn open(&self) -> OpenFlow {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        OpenFlow(self.clone())
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

    /// The counts now.
    pub fn snapshot(&self) -> TallySnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        TallySnapshot {
            open: read(&self.0.open),
            ended: read(&self.0.ended),
            failed: failed.clone(),
            up_bytes: read(&self.0.up),
            down_bytes: read(&self.0.down),
        }
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
