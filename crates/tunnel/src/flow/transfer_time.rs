//! How long a flow's transfers take, from what an application sends until so much has come back.
//!
//! The same for TCP connections and for an application's own QUIC: both are seen where the
//! terminal takes bytes from the application and gives it others, handshakes included.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bentpipe_quic::clock::now;
use tokio::time::Instant;

use super::watched::Watch;

/// The sizes whose times are told, bytes: small objects, pages, images, videos' segments, files.
pub const SIZES: [u64; 6] = [30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];

/// What comes after a silence of this length is another transfer: three round trips over GEO, so
/// that the silences of its slow start are none.
const IDLE: Duration = Duration::from_secs(2);

/// The transfer that is under way.
#[derive(Debug, Default)]
struct Transfer {
    /// When the application sent the first of it; none between transfers.
    began: Option<Instant>,
    /// When anything was last sent or came.
    last: Option<Instant>,
    came: u64,
    /// How many of [`SIZES`] are reached.
    reached: usize,
}

impl Transfer {
    fn sent(&mut self, now: Instant) {
        if self.last.is_none_or(|last| now - last > IDLE) {
            *self = Self {
                began: Some(now),
                ..Self::default()
            };
        }
        self.last = Some(now);
    }

    /// What has come since the last call, and when; the sizes that are reached with it, and after
    /// how long.
    fn came(&mut self, bytes: usize, now: Instant) -> Vec<(usize, Duration)> {
        let silent = self.last.is_none_or(|last| now - last > IDLE);
        self.last = Some(now);
        // A server may take its time to answer, but not in between.
        if silent && self.came > 0 {
            self.began = None;
        }
        let Some(began) = self.began else {
            return Vec::new();
        };
        self.came += bytes as u64;
        let from = self.reached;
        let more = SIZES[from..].iter().take_while(|size| **size <= self.came);
        self.reached += more.count();
        (from..self.reached)
            .map(|size| (size, now - began))
            .collect()
    }
}

/// Measures one flow's transfers.
pub struct Meter {
    transfer: Mutex<Transfer>,
    /// Told which of [`SIZES`] was reached after how long.
    tell: Box<dyn Fn(usize, Duration) + Send + Sync>,
}

impl fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    /// Tells `tell` which of [`SIZES`] was reached after how long.
    pub fn new(tell: impl Fn(usize, Duration) + Send + Sync + 'static) -> Self {
        Self {
            transfer: Mutex::default(),
            tell: Box::new(tell),
        }
    }

    /// The application has sent something.
    pub fn sent(&self) {
        let mut transfer = self.transfer.lock().unwrap_or_else(PoisonError::into_inner);
        transfer.sent(now());
    }

    /// `bytes` have come for it.
    pub fn came(&self, bytes: usize) {
        let mut transfer = self.transfer.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = transfer.came(bytes, now());
        drop(transfer);
        for (size, time) in reached {
            (self.tell)(size, time);
        }
    }
}

impl Watch for Meter {
    fn read(&mut self, _: &[u8]) {
        self.sent();
    }

    fn written(&mut self, bytes: usize) {
        self.came(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_begins_with_a_request_and_ends_with_a_silence() {
        let start = now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut transfer = Transfer::default();
        assert_eq!(transfer.came(1_000_000, at(0)), [], "nobody asked");
        transfer.sent(at(10_000));
        assert_eq!(transfer.came(20_000, at(11_000)), []);
        transfer.sent(at(11_100));
        let both = [0, 1].map(|size| (size, Duration::from_millis(1500)));
        assert_eq!(transfer.came(80_000, at(11_500)), both);
        // What the server sends after a silence was not waited for.
        assert_eq!(transfer.came(1_000_000, at(14_000)), []);
        transfer.sent(at(20_000));
        let slow = [(0, Duration::from_secs(3))];
        assert_eq!(transfer.came(40_000, at(23_000)), slow, "a slow answer");
    }
}
