//! Connections to another proxy that are open before a client needs one, so that its data
//! wait for no handshake over the satellite.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use noq::{Connection, ConnectionError, OnClosed};
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
pub(crate) struct Pool {
    wanted: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    connections: Mutex<Connections>,
    changed: Notify,
}

#[derive(Default)]
struct Connections {
    ready: VecDeque<Ready>,
    /// The ends of all that have been put here, also of those that are used by now.
    ends: Vec<OnClosed>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Pool")
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
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
        let mut living = self.shared.living();
        self.shared.changed.notify_one();
        living.ready.pop_front()
    }

    /// How many are ready.
    pub(crate) fn count(&self) -> usize {
        self.shared.living().ready.len()
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
        let ended = ready.connection.on_closed();
        let mut living = self.shared.living();
        living.ends.push(ready.connection.on_closed());
        living.ready.push_back(ready);
        let shared = self.shared.clone();
        tokio::spawn(async move {
            ended.await;
            drop(shared.living());
            shared.changed.notify_one();
        });
    }
}

impl Shared {
    /// Those that have not ended. Asked whenever they are looked at, and not by a task of its own: a client that was told
    /// of the end may be back before that task has run.
    fn living(&self) -> MutexGuard<'_, Connections> {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Connections { ready, ends } = &mut *connections;
        let mut started_anew = false;
        // Why each ended first: whoever used it closes it then as well.
        ends.retain_mut(|end| match end.now_or_never() {
            None => true,
            Some(ended) => {
                started_anew |= ended.reason == ConnectionError::Reset;
                false
            }
        });
        if started_anew {
            for other in ready.drain(..) {
                (other.connection).close(Code::Lost.into(), b"the proxy was started anew");
            }
        }
        ready.retain(|ready| ready.connection.close_reason().is_none());
        connections
    }
}
