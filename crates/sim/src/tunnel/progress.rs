//! The progress of a flow, shared by its application, its server and the run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_units::Time;

/// How far a flow has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// When the request was at the server.
    pub(crate) reached: Option<Time>,
    /// When the first byte of the answer was at the application.
    pub(crate) first_byte: Option<Time>,
    /// And the last.
    pub(crate) done: Option<Time>,
    /// Bytes of the answer that have arrived.
    pub(crate) received: u64,
    /// Bytes of the upload that have arrived.
    pub(crate) uploaded: u64,
    /// Datagrams that a call has sent.
    pub(crate) datagrams: u64,
    /// How long the echo of each took that has come, nanoseconds.
    pub(crate) echoes: Vec<u64>,
    /// A byte was not the right one, or one too many.
    pub(crate) wrong: bool,
    /// How the application's connection ended.
    pub(crate) end: Option<End>,
}

/// How a connection ended for its application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// In both directions.
    Closed,
    /// By a reset.
    Reset,
}

/// Shared by the two sides of a flow and whoever watches.
pub(crate) type Shared = Arc<Mutex<Progress>>;

pub(crate) fn lock(progress: &Shared) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
