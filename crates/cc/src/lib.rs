//! Congestion controllers without a clock and without I/O.
//!
//! A controller is told what was sent, acknowledged and lost, each with its
//! moment, and answers with a window and, if it has one, a pacing rate. Each
//! controller has a folder that reads like its paper.
//!
//! The calls come in this order: [`Controller::on_sent`] for each packet; for
//! each ACK frame [`Controller::on_acked`] for each packet that it newly
//! acknowledges, then [`Controller::on_acks_done`], then [`Controller::on_lost`]
//! for each packet that it shows to be lost, then [`Controller::on_congestion`]
//! once if there was one.

pub mod delivery;
pub mod satellite;
pub mod newreno;
pub mod cubic;
pub mod hybla;
pub mod bbr3;
pub mod fixed;
pub mod resume;
pub mod shared;
mod bounded;
mod choice;
mod convert;

use std::fmt::Debug;

use bentpipe_units::{Span, Time};

pub use choice::{Choice, ChoiceError, Settings};
pub use resume::{Path, PathMemory};
pub use shared::Shared;

/// A packet that has just been sent and counts against the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub now: Time,
    /// Its packet number.
    pub number: u64,
    /// Its length, UDP payload.
    pub bytes: u64,
}

/// A packet that has just been acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    /// When the acknowledgement came.
    pub now: Time,
    /// When the packet was sent.
    pub sent: Time,
    /// Its packet number.
    pub number: u64,
    /// Its length, UDP payload.
    pub bytes: u64,
    /// Whether the window is larger than the sender needs or may use: it does not grow then.
    pub app_limited: bool,
    /// The smoothed round-trip time; it does not include this packet yet.
    pub smoothed_rtt: Span,
}

impl Acked {
    /// From sending to acknowledgement, the peer's acknowledgement delay included.
    pub fn rtt(&self) -> Span {
        self.now.since(self.sent)
    }
}

/// The end of one ACK frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcksDone {
    /// When it came.
    pub now: Time,
    /// Bytes still in flight.
    pub in_flight: u64,
    /// Whether the sender had nothing to send.
    pub app_limited: bool,
}

/// A packet that has just been given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// When it was given up.
    pub now: Time,
    /// Its packet number.
    pub number: u64,
    /// Its length, UDP payload.
    pub bytes: u64,
}

/// Packets were lost, or one came with a congestion mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Congestion {
    /// When it was noticed.
    pub now: Time,
    /// When the last of the lost or marked packets was sent.
    pub sent: Time,
    /// Whether nothing sent over a whole persistent-congestion period arrived (RFC 9002, section 7.6).
    pub persistent: bool,
    /// Whether it was a mark (RFC 3168), not a loss.
    pub marked: bool,
    /// Bytes lost; 0 for a mark.
    pub lost: u64,
}

/// How much may be in flight, and how fast it may leave.
pub trait Controller: Debug + Send + Sync {
    /// A packet has left.
    fn on_sent(&mut self, packet: Sent) {
        let _ = packet;
    }

    /// There was something to send, and the window was full.
    fn on_window_limited(&mut self) {}

    /// A packet was acknowledged for the first time.
    fn on_acked(&mut self, packet: &Acked);

    /// All acknowledgements of one ACK frame have been told.
    fn on_acks_done(&mut self, end: AcksDone) {
        let _ = end;
    }

    /// A packet was given up.
    fn on_lost(&mut self, packet: Lost) {
        let _ = packet;
    }

    /// Of so many bytes that were sent it will never be known whether they arrived: their
    /// connection is closed, or they were of a handshake that is over.
    fn on_forgotten(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// The path is congested, if a loss or a mark means that.
    fn on_congestion(&mut self, event: &Congestion);

    /// The last congestion was none: all its packets have arrived.
    fn on_spurious_congestion(&mut self) {}

    /// Full packets carry `bytes` of UDP payload from now on.
    fn on_packet_size(&mut self, bytes: u64);

    /// Most bytes that may be in flight, never less than two full packets.
    fn window(&self) -> u64;

    /// Slow-start threshold in bytes, where there is one.
    fn slow_start_threshold(&self) -> Option<u64> {
        None
    }

    /// Bytes per second at which packets leave; without one the window is spread
    /// over four fifths of a round trip (RFC 9002, section 7.7).
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Careful Resume sets the window, and the slow-start threshold after a safe retreat.
    fn resume_at(&mut self, window: u64, threshold: Option<u64>) {
        let _ = (window, threshold);
    }

    /// A copy with the same state.
    fn clone_box(&self) -> Box<dyn Controller>;
}
