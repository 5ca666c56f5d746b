//! Admission of handshakes: how many may be under way, and who has to prove its address.
//!
//! Nobody has shown a key yet, so a handshake gets little: no stream, 16 KiB of early
//! packets, and not for long.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;

/// Handshakes that may be under way.
const MAX_HANDSHAKES: usize = 256;
/// When more than these are under way, each new source first proves that it receives
/// what is sent to its address (Retry, RFC 9000, section 8.1.2).
const WITHOUT_RETRY: usize = 64;
/// And none has more than so many: those behind one NAT share an address, and a host has a
/// whole IPv6 prefix (RFC 6177).
const MAX_OF_ONE_SOURCE: usize = 32;
/// The part of an IPv6 address that says who it is.
const IPV6_SOURCE: u8 = 56;
/// A handshake has to be over by then.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of packets that are kept for a handshake before it is looked at.
const EARLY_PACKETS: u64 = 16 * 1024;

/// The handshakes that are under way, by source.
#[derive(Clone, Default)]
pub struct Admission(Arc<Mutex<BTreeMap<IpNet, usize>>>);

/// A handshake's place among those under way.
pub struct Admitted {
    all: Admission,
    source: IpNet,
}

impl Admission {
    /// Sets the bounds that the QUIC library keeps.
    pub fn configure(server: &mut noq::ServerConfig) {
        server
            .max_incoming(MAX_HANDSHAKES)
            .incoming_buffer_size(EARLY_PACKETS)
            .incoming_buffer_size_total(EARLY_PACKETS * MAX_HANDSHAKES as u64);
    }

    /// Gives `incoming` a place; or lets it go, which costs least and answers nobody; or
    /// asks it to prove its address first.
    pub fn admit(&self, incoming: noq::Incoming) -> Option<(noq::Incoming, Admitted)> {
        let source = source(incoming.remote_address().ip());
        let mut under_way = self.lock();
        let all: usize = under_way.values().sum();
        let of_source = under_way.get(&source).copied().unwrap_or(0);
        if all >= MAX_HANDSHAKES || of_source >= MAX_OF_ONE_SOURCE {
            incoming.ignore();
            return None;
        }
        if all >= WITHOUT_RETRY && incoming.may_retry() && !incoming.remote_address_validated() {
            // Fails only for a source that has been validated.
            let _ = incoming.retry();
            return None;
        }
        *under_way.entry(source).or_default() += 1;
        let all = self.clone();
        Some((incoming, Admitted { all, source }))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpNet, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom an address belongs to, as far as it says.
fn source(address: IpAddr) -> IpNet {
    let address = address.to_canonical();
    match address {
        IpAddr::V4(_) => address.into(),
        IpAddr::V6(_) => IpNet::new_assert(address, IPV6_SOURCE).trunc(),
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut under_way = self.all.lock();
        if let Some(count) = under_way.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.source);
            }
        }
    }
}
