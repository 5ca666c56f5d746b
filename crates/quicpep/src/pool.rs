//! Connections to another proxy that are open before a client needs one, so that its data
//! wait for no handshake over the satellite.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use noq::{Connection, ConnectionError};
use tokio::sync::Notify;

use crate::close::Code;
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
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    ready: Mutex<VecDeque<Ready>>,
    changed: Notify,
}

impl Pool {
    /// A pool that keeps `wanted` connections ready.
    pub(crate) fn new(wanted: usize) -> Self {
        Self {
            wanted,
            shared: Arc::default(),
        }
    }

    /// The connection that has been ready the longest.
    pub(crate) fn take(&self) -> Option<Ready> {
        let mut ready = self.shared.living();
        self.shared.changed.notify_one();
        ready.pop_front()
    }

    /// How many are ready.
    pub(crate) fn count(&self) -> usize {
        self.shared.living().len()
    }

    /// Waits until there are fewer than are wanted, and says how many fewer.
    pub(crate) async fn missing(&self) -> usize {
        loop {
            let missing = self.wanted.saturating_sub(self.count());
            if missing > 0 {
                return missing;
            }
            self.shared.changed.notified().await;
        }
    }

    /// Adds one that has been opened. When it ends it is dropped at once; when the other proxy answers it, whoever uses it
    /// by then, with a stateless reset, that one was started anew, and all others are dropped too: they would be answered
    /// the same, each at the cost of a client.
    pub(crate) fn put(&self, ready: Ready) {
        let (connection, shared) = (ready.connection.clone(), self.shared.clone());
        shared.living().push_back(ready);
        tokio::spawn(async move {
            let ended = connection.closed().await;
            let mut ready = shared.living();
            if ended == ConnectionError::Reset {
                for other in ready.drain(..) {
                    (other.connection).close(Code::Lost.into(), b"the proxy was started anew");
                }
            }
            shared.changed.notify_one();
        });
    }
}

impl Shared {
    /// Those that have not ended.
    fn living(&self) -> MutexGuard<'_, VecDeque<Ready>> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.retain(|ready| ready.connection.close_reason().is_none());
        ready
    }
}
