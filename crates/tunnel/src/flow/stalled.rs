//! The bound on flows that are not read.
//!
//! A flow whose application does not read keeps up to one window of bytes in this
//! end, and the session's window is finite. When so many flows have stalled that the
//! others would run short, the one that has been stalled longest is reset: one
//! paused download must not stop all others.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// A write that takes longer than this is a stall.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// The stalled flows of one session.
#[derive(Debug, Clone)]
pub struct StalledFlows {
    most: usize,
    flows: Arc<Mutex<Flows>>,
}

#[derive(Debug, Default)]
struct Flows {
    /// Counts up, so that the smallest key has been stalled longest.
    next: u64,
    stalled: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The flow was reset in favour of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted;

impl StalledFlows {
    /// Up to `most` flows may stall at the same time.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            flows: Arc::default(),
        }
    }

    /// Waits for `write`, a write to the application; the error tells that this flow
    /// has to end because too many have stalled and it has for longest.
    pub async fn bound<T>(&self, write: impl Future<Output = T>) -> Result<T, Evicted> {
        tokio::pin!(write);
        if let Ok(done) = tokio::time::timeout(STALLED_AFTER, &mut write).await {
            return Ok(done);
        }
        let (_stall, evicted) = self.enter();
        tokio::select! {
            biased;
            done = write => Ok(done),
            _ = evicted => Err(Evicted),
        }
    }

    fn enter(&self) -> (Stall<'_>, oneshot::Receiver<()>) {
        let (evict, evicted) = oneshot::channel();
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        let number = flows.next;
        flows.next += 1;
        flows.stalled.insert(number, evict);
        if flows.stalled.len() > self.most {
            // Dropping the sender is the message.
            flows.stalled.pop_first();
        }
        (Stall { all: self, number }, evicted)
    }
}

/// A flow that is stalled now.
struct Stall<'a> {
    all: &'a StalledFlows,
    number: u64,
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        let mut flows = self
            .all
            .flows
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        flows.stalled.remove(&self.number);
    }
}
