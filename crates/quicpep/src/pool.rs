//! Connections to another proxy that are open before a client needs one, so that its data
//! wait for no handshake over the satellite.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use noq::Connection;
use tokio::sync::Notify;

use crate::paths::Lease;

/// A connection with its use of the path.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) connection: Connection,
    pub(crate) lease: Lease,
}

/// Connections to one proxy.
#[derive(Debug)]
pub(crate) struct Pool {
    wanted: usize,
    ready: Mutex<VecDeque<Ready>>,
    changed: Arc<Notify>,
}

impl Pool {
    /// A pool that keeps `wanted` connections ready.
    pub(crate) fn new(wanted: usize) -> Self {
        Self {
            wanted,
            ready: Mutex::default(),
            changed: Arc::default(),
        }
    }

    /// The connection that has been ready the longest.
    pub(crate) fn take(&self) -> Option<Ready> {
        let mut ready = self.lock();
        ready.retain(|ready| ready.connection.close_reason().is_none());
        self.changed.notify_one();
        ready.pop_front()
    }

    /// How many are ready.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Waits until there are fewer than are wanted, and says how many fewer.
    pub(crate) async fn missing(&self) -> usize {
        loop {
            let missing = {
                let mut ready = self.lock();
                ready.retain(|ready| ready.connection.close_reason().is_none());
                self.wanted.saturating_sub(ready.len())
            };
            if missing > 0 {
                return missing;
            }
            self.changed.notified().await;
        }
    }

    /// Adds one that has been opened.
    pub(crate) fn put(&self, ready: Ready) {
        let (connection, changed) = (ready.connection.clone(), self.changed.clone());
        tokio::spawn(async move {
            connection.closed().await;
            changed.notify_one();
        });
        self.lock().push_back(ready);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Ready>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
