//! Admission of handshakes: how many may be under way, and who has to prove its address.
//!
//! Nobody has shown a key yet, so a handshake gets little: no stream, 16 KiB of early
//! packets, and not for long.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Handshakes that may be under way.
const MAX_HANDSHAKES: usize = 256;
/// When more than these are under way, each new source first proves that it receives
/// what is sent to its address (Retry, RFC 9000, section 8.1.2).
const WITHOUT_RETRY: usize = 64;
/// A handshake has to be over by then.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of packets that are kept for a handshake before it is looked at.
const EARLY_PACKETS: u64 = 16 * 1024;

/// The handshakes that are under way.
pub struct Admission(Arc<Semaphore>);

/// A handshake's place among those under way.
pub struct Admitted(#[expect(dead_code, reason = "held until dropped")] OwnedSemaphorePermit);

impl Admission {
    /// None is under way.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_HANDSHAKES)))
    }

    /// Sets the bounds that the QUIC library keeps.
    pub fn configure(server: &mut noq::ServerConfig) {
        server
            .max_incoming(MAX_HANDSHAKES)
            .incoming_buffer_size(EARLY_PACKETS)
            .incoming_buffer_size_total(EARLY_PACKETS * MAX_HANDSHAKES as u64);
    }

    /// Gives `incoming` a place, or answers it that it has none or has to prove its
    /// address first.
    pub fn admit(&self, incoming: noq::Incoming) -> Option<(noq::Incoming, Admitted)> {
        let Ok(place) = self.0.clone().try_acquire_owned() else {
            incoming.refuse();
            return None;
        };
        let under_way = MAX_HANDSHAKES - self.0.available_permits();
        if under_way > WITHOUT_RETRY && incoming.may_retry() && !incoming.remote_address_validated()
        {
            // Fails only for a source that has been validated.
            let _ = incoming.retry();
            return None;
        }
        Some((incoming, Admitted(place)))
    }
}
