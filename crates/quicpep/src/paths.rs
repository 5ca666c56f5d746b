//! What is known of the paths to peers (RFC 9959), shared by the connections with each.
//!
//! Connections with one peer share a path, so each begins with its part of what the path is
//! known to carry: that divided by the number of connections that carry something. Ten that
//! begin at once make ten starts at a tenth of the rate, not ten slow starts and not ten times
//! the rate. From then on each has its own controller, and they share as any flows do.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_cc::{Path, PathMemory};
use tokio::time::Instant;

/// Peers that are remembered.
const MOST: usize = 4096;
/// How long what is known is believed after it was learnt, as the tunnel believes it.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The paths to all peers of one side. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Paths(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    peers: Mutex<BTreeMap<IpAddr, Peer>>,
    connections: AtomicU64,
}

#[derive(Debug, Default)]
struct Peer {
    known: Option<(Path, Instant)>,
    /// Connections that carry something.
    active: u32,
}

/// A connection's use of a path, until this is dropped.
#[derive(Debug)]
pub struct Lease {
    paths: Paths,
    peer: IpAddr,
    memory: PathMemory,
    number: u64,
    active: bool,
}

impl Paths {
    /// For a new connection with `peer`, which carries nothing yet, but already knows what its
    /// part would be: controllers look when they measure their first round trip.
    pub fn lease(&self, peer: IpAddr) -> Lease {
        let peer = peer.to_canonical();
        let memory = PathMemory::default();
        if let Some(peer) = self.lock().get(&peer) {
            peer.tell(&memory, peer.active + 1);
        }
        Lease {
            paths: self.clone(),
            peer,
            memory,
            number: self.0.connections.fetch_add(1, Ordering::Relaxed),
            active: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Peer>> {
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// What the connection's controller works with.
    pub fn memory(&self) -> &PathMemory {
        &self.memory
    }

    /// How many connections there were before it: tells the random numbers of their
    /// controllers apart.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The connection begins to carry something: from now on it counts, and knows its part.
    pub fn begin(&mut self) {
        if self.active {
            return;
        }
        self.active = true;
        let mut peers = self.paths.lock();
        if peers.len() >= MOST && !peers.contains_key(&self.peer) {
            peers.retain(|_, peer| peer.active > 0);
        }
        let peer = peers.entry(self.peer).or_default();
        peer.active += 1;
        peer.tell(&self.memory, peer.active);
    }
}

impl Peer {
    /// Tells a connection its part of what is known, one of `connections`.
    fn tell(&self, memory: &PathMemory, connections: u32) {
        let fresh = self.known.filter(|(_, at)| now() - *at < LIFETIME);
        if let Some((path, _)) = fresh {
            memory.save(Path {
                rate: path.rate / f64::from(connections),
                ..path
            });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.active {
            return;
        }
        let mut peers = self.paths.lock();
        let Some(peer) = peers.get_mut(&self.peer) else {
            return;
        };
        peer.active -= 1;
        // One that was alone knows the whole path, and others at least their part.
        let alone = peer.active == 0;
        if let Some(learnt) = self.memory.get()
            && (alone || peer.known.is_none_or(|(known, _)| learnt.rate > known.rate))
        {
            peer.known = Some((learnt, now()));
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's clock, which is virtual in the simulator"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Span;

    use super::*;

    const PATH: Path = Path {
        rate: 2.5e6,
        rtt: Span::from_millis(600),
    };
    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[tokio::test(start_paused = true)]
    async fn connections_that_begin_together_share_what_is_known() {
        let paths = Paths::default();
        let mut first = paths.lease(PEER);
        first.begin();
        assert_eq!(first.memory().get(), None);
        first.memory().save(PATH);
        drop(first);
        let mut all: Vec<_> = (0..10).map(|_| paths.lease(PEER)).collect();
        for (before, lease) in (1u32..).zip(&mut all) {
            lease.begin();
            let known = lease.memory().get().unwrap().rate;
            assert!((known - PATH.rate / f64::from(before)).abs() < 1.0);
        }
        let stranger = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(paths.lease(stranger).memory().get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_lifetime_it_is_not_believed() {
        let paths = Paths::default();
        let mut first = paths.lease(PEER);
        first.begin();
        first.memory().save(PATH);
        drop(first);
        tokio::time::advance(LIFETIME).await;
        let mut late = paths.lease(PEER);
        late.begin();
        assert_eq!(late.memory().get(), None);
    }
}
