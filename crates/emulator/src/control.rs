//! Control of a run from another thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_link::Counters;
use rustix::event::{EventfdFlags, eventfd};
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::certificate::Certificate;
use crate::direction::DirectionName;
use crate::link_update::{AppliedChange, LinkUpdate, PATIENCE, UpdateError};

/// A handle on a run. Whatever it asks for happens between two packets.
#[derive(Debug, Clone)]
pub struct ControlHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    /// Readable when there are requests.
    wake: OwnedFd,
}

/// What a run can be asked.
#[derive(Debug)]
pub(super) enum Request {
    /// To end.
    Stop,
    /// How it is going.
    Status(Sender<Vec<DirectionStatus>>),
    /// A certificate of the time since the last one.
    Interval(Sender<Certificate>),
    /// To change links.
    Update(
        Vec<LinkUpdate>,
        Sender<Result<Vec<AppliedChange>, UpdateError>>,
    ),
    /// What was changed so far.
    Changes(Sender<Vec<AppliedChange>>),
}

/// The form of [`RunStatus`] that this version writes.
pub const STATUS_SCHEMA: &str = "bentpipe/links/1";

/// How a run is doing, for programs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RunStatus {
    /// Names this form of the status: [`STATUS_SCHEMA`].
    pub schema: &'static str,
    /// The scenario's name.
    pub scenario: String,
    /// Every direction, in the certificate's order.
    pub directions: Vec<DirectionStatus>,
    /// What was changed so far, in order.
    pub changes: Vec<AppliedChange>,
}

/// JSON Schema of a run's status.
pub fn status_schema() -> Schema {
    schemars::schema_for!(RunStatus)
}

/// How one direction of a link is doing.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DirectionStatus {
    /// The link's name.
    pub link: String,
    /// Which of its directions.
    #[serde(rename = "name")]
    pub direction: DirectionName,
    /// What became of the packets so far.
    #[serde(flatten)]
    pub counters: Counters,
    /// Packets inside.
    pub held: u64,
    /// Bytes that wait for the transmitter.
    pub queue_bytes: u64,
    /// Lateness that one packet in a hundred has exceeded so far, microseconds.
    pub late_p99_us: f64,
}

impl ControlHandle {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Shared {
            requests: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })))
    }

    /// Ends the run now; later calls change nothing.
    pub fn stop(&self) {
        self.ask(Request::Stop);
    }

    /// How every direction is doing, in the certificate's order; `None` when the run
    /// has ended or is too busy to say.
    pub fn status(&self) -> Option<Vec<DirectionStatus>> {
        let (sender, receiver): (_, Receiver<_>) = channel();
        self.ask(Request::Status(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    /// A certificate of the time since the last one, or since the beginning; `None` when
    /// the run has ended or is too busy to give one.
    pub fn interval_certificate(&self) -> Option<Certificate> {
        let (sender, receiver) = channel();
        self.ask(Request::Interval(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    /// Changes links, all between the same two packets or none; says what was changed.
    ///
    /// # Errors
    /// When nothing was changed, and why. After [`UpdateError::Silent`] it may still be.
    pub fn update(&self, updates: Vec<LinkUpdate>) -> Result<Vec<AppliedChange>, UpdateError> {
        let (sender, receiver) = channel();
        self.ask(Request::Update(updates, sender));
        receiver
            .recv_timeout(PATIENCE)
            .unwrap_or(Err(UpdateError::Silent))
    }

    /// What was changed since the run began; `None` as for [`Self::status`].
    pub fn changes(&self) -> Option<Vec<AppliedChange>> {
        let (sender, receiver) = channel();
        self.ask(Request::Changes(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    fn ask(&self, request: Request) {
        self.requests().push(request);
        if let Err(errno) = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes()) {
            // The counter is full: the loop has been woken and not looked yet.
            tracing::debug!("waking the loop: {errno}");
        }
    }

    pub(super) fn wake(&self) -> &OwnedFd {
        &self.0.wake
    }

    /// Takes what has been asked for since the last time.
    pub(super) fn take(&self) -> Vec<Request> {
        // Resets the counter before taking: a request after that wakes the loop again.
        let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
        std::mem::take(&mut *self.requests())
    }

    fn requests(&self) -> std::sync::MutexGuard<'_, Vec<Request>> {
        self.0
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_taken_once_and_in_order() {
        let control = ControlHandle::new().unwrap();
        assert!(control.take().is_empty());
        control.stop();
        control.ask(Request::Status(channel().0));
        assert!(matches!(
            control.take()[..],
            [Request::Stop, Request::Status(_)]
        ));
        assert!(control.take().is_empty());
    }
}
