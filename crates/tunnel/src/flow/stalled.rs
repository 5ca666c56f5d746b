//! The bound on flows that are not read.
//!
//! A flow whose application does not read keeps what it has been lent, and what a session
//! may lend is finite. When flows that consume find too little because of it, the flow that
//! has been stalled for a while and holds most is reset: one paused download must not stop
//! all others. A flow that is read slowly is not stalled.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bentpipe_quic::windows::Windows;
use tokio::sync::oneshot;

/// A write of which nothing is taken for longer than this is a stall.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// The stalled flows of one end. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct StalledFlows(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    stalled: BTreeMap<u64, (Held, oneshot::Sender<()>)>,
}

/// A flow's part of what its session has lent.
#[derive(Debug, Clone)]
pub struct Held {
    /// The session's windows.
    pub windows: Windows,
    /// The flow's stream.
    pub stream: u64,
}

/// The flow was reset in favour of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted;

impl StalledFlows {
    /// Waits for `write`, a write of some bytes to the application; the error tells that the
    /// flow has to end because its session lends too much to stalled flows, and this one
    /// holds most.
    pub async fn bound<T>(
        &self,
        held: &Held,
        write: impl Future<Output = T>,
    ) -> Result<T, Evicted> {
        tokio::pin!(write);
        if let Ok(done) = tokio::time::timeout(STALLED_AFTER, &mut write).await {
            return Ok(done);
        }
        let (evict, mut evicted) = oneshot::channel();
        let stall = Stall {
            all: self,
            number: self.enter(held, evict),
        };
        loop {
            stall.all.relieve(held);
            tokio::select! {
                biased;
                done = &mut write => return Ok(done),
                _ = &mut evicted => return Err(Evicted),
                () = tokio::time::sleep(STALLED_AFTER) => {}
            }
        }
    }

    fn enter(&self, held: &Held, evict: oneshot::Sender<()>) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.stalled.insert(number, (held.clone(), evict));
        number
    }

    /// Ends the stalled flow that holds most, if the session of `held` is short.
    fn relieve(&self, held: &Held) {
        if !held.windows.are_short() {
            return;
        }
        let mut state = self.lock();
        let of_session = state
            .stalled
            .iter()
            .filter(|(_, (other, _))| other.windows.is(&held.windows));
        let largest = of_session
            .max_by_key(|(_, (other, _))| other.windows.held(other.stream))
            .map(|(number, _)| *number);
        if let Some(number) = largest {
            // Dropping the sender is the message.
            state.stalled.remove(&number);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flow that is stalled now.
struct Stall<'a> {
    all: &'a StalledFlows,
    number: u64,
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.all.lock().stalled.remove(&self.number);
    }
}
