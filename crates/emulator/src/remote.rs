//! Talking to a run from another thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_link::Counters;
use rustix::event::{EventfdFlags, eventfd};

use crate::certificate::Certificate;
use crate::change::{ChangeError, Changed, Order, PATIENCE};

/// A handle on a run. Whatever it asks for happens between two packets.
#[derive(Debug, Clone)]
pub struct Remote(Arc<Line>);

#[derive(Debug)]
struct Line {
    requests: Mutex<Vec<Request>>,
    /// Readable when there are requests.
    bell: OwnedFd,
}

/// What a run can be asked.
#[derive(Debug)]
pub(super) enum Request {
    /// To end.
    Stop,
    /// How it is going.
    Look(Sender<Vec<Sight>>),
    /// A certificate of the time since the last one.
    Lap(Sender<Certificate>),
    /// To change links.
    Change(Vec<Order>, Sender<Result<Vec<Changed>, ChangeError>>),
    /// What was changed so far.
    Changes(Sender<Vec<Changed>>),
}

/// How one direction of a link is doing.
#[derive(Debug, Clone)]
pub struct Sight {
    /// The link's name.
    pub link: String,
    /// "forward" or "return".
    pub direction: &'static str,
    /// What became of the packets so far.
    pub counters: Counters,
    /// Packets inside.
    pub held: u64,
    /// Bytes that wait for the transmitter.
    pub queue_bytes: u64,
    /// Lateness that one packet in a hundred has exceeded so far, microseconds.
    pub late_p99_us: f64,
}

impl Remote {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Line {
            requests: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })))
    }

    /// Ends the run now; later calls change nothing.
    pub fn stop(&self) {
        self.ask(Request::Stop);
    }

    /// How every direction is doing, in the certificate's order; `None` when the run
    /// has ended or is too busy to say.
    pub fn look(&self) -> Option<Vec<Sight>> {
        let (sender, receiver): (_, Receiver<_>) = channel();
        self.ask(Request::Look(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    /// A certificate of the time since the last lap, or since the beginning; `None` when
    /// the run has ended or is too busy to give one.
    pub fn lap(&self) -> Option<Certificate> {
        let (sender, receiver) = channel();
        self.ask(Request::Lap(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    /// Changes links, all between the same two packets or none; says what was changed.
    ///
    /// # Errors
    /// When nothing was changed, and why. After [`ChangeError::Silent`] it may still be.
    pub fn change(&self, orders: Vec<Order>) -> Result<Vec<Changed>, ChangeError> {
        let (sender, receiver) = channel();
        self.ask(Request::Change(orders, sender));
        receiver
            .recv_timeout(PATIENCE)
            .unwrap_or(Err(ChangeError::Silent))
    }

    /// What was changed since the run began; `None` as for [`Self::look`].
    pub fn changes(&self) -> Option<Vec<Changed>> {
        let (sender, receiver) = channel();
        self.ask(Request::Changes(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    fn ask(&self, request: Request) {
        self.requests().push(request);
        if let Err(errno) = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes()) {
            // The bell has been rung 2^64 - 2 times and not been heard: it is ringing.
            tracing::debug!("bell: {errno}");
        }
    }

    pub(super) fn bell(&self) -> &OwnedFd {
        &self.0.bell
    }

    /// Takes what has been asked for since the last time.
    pub(super) fn take(&self) -> Vec<Request> {
        // Silences the bell before taking: a request after that rings it again.
        let _ = rustix::io::read(&self.0.bell, &mut [0; 8]);
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
        let remote = Remote::new().unwrap();
        assert!(remote.take().is_empty());
        remote.stop();
        remote.ask(Request::Look(channel().0));
        assert!(matches!(
            remote.take()[..],
            [Request::Stop, Request::Look(_)]
        ));
        assert!(remote.take().is_empty());
    }
}
