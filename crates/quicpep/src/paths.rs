//! What is known of the paths to peers (RFC 9959), shared by the connections with each.
//!
//! Connections between two proxies share one controller, with its window and its rate
//! ([`Together`]): one that begins finds the path known, and ten that begin at once do not start
//! ten times.
//!
//! Others with one peer (a client's, or those with a server) have controllers of their own. Each
//! begins with its part of what the path is known to carry: that divided by the number of
//! connections that carry something.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_cc::{Path, PathMemory};
use bentpipe_quic::Together;
use bentpipe_quic::clock::now;
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
    /// What connections with another proxy have together, and what that learns.
    together: (Together, PathMemory),
    /// How many those are.
    sharing: u32,
}

/// A connection's use of a path, until this is dropped.
#[derive(Debug)]
pub struct Lease {
    paths: Paths,
    peer: IpAddr,
    memory: PathMemory,
    number: u64,
    active: bool,
    together: Option<Together>,
}

impl Paths {
    /// For a new connection with `peer` that has a controller of its own, which begins with its part
    /// of what is known.
    pub fn lease(&self, peer: IpAddr) -> Lease {
        let mut lease = Lease {
            paths: self.clone(),
            peer: peer.to_canonical(),
            memory: PathMemory::default(),
            number: self.number(),
            active: false,
            together: None,
        };
        lease.begin();
        lease
    }

    /// For a new connection with another proxy, which shares its controller with all others there.
    pub fn lease_together(&self, peer: IpAddr) -> Lease {
        let address = peer.to_canonical();
        let mut peers = self.room_for(address);
        let peer = peers.entry(address).or_default();
        if peer.sharing == 0 {
            // Nobody has looked at the path since: what was known of it is tried carefully.
            peer.together = Default::default();
            peer.tell(&peer.together.1, 1);
        }
        peer.sharing += 1;
        let (together, memory) = peer.together.clone();
        Lease {
            paths: self.clone(),
            peer: address,
            memory,
            number: self.number(),
            active: false,
            together: Some(together),
        }
    }

    fn number(&self) -> u64 {
        self.0.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// The peers, with room for this one.
    fn room_for(&self, peer: IpAddr) -> MutexGuard<'_, BTreeMap<IpAddr, Peer>> {
        let mut peers = self.lock();
        if peers.len() >= MOST && !peers.contains_key(&peer) {
            peers.retain(|_, peer| peer.active > 0 || peer.sharing > 0);
        }
        peers
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

    /// What it shares with others instead of having a controller of its own.
    pub fn together(&self) -> Option<&Together> {
        self.together.as_ref()
    }

    /// The connection begins to carry something: from now on it counts.
    pub fn begin(&mut self) {
        if self.active {
            return;
        }
        self.active = true;
        let mut peers = self.paths.room_for(self.peer);
        let peer = peers.entry(self.peer).or_default();
        peer.active += 1;
        if self.together.is_none() {
            peer.tell(&self.memory, peer.active);
        }
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
        let mut peers = self.paths.lock();
        let Some(peer) = peers.get_mut(&self.peer) else {
            return;
        };
        if self.together.is_some() {
            peer.sharing -= 1;
        }
        if !self.active {
            return;
        }
        peer.active -= 1;
        // One that was alone knows the whole path, and others at least their part.
        let alone = peer.active == 0 || self.together.is_some();
        if let Some(learnt) = self.memory.get()
            && (alone || peer.known.is_none_or(|(known, _)| learnt.rate > known.rate))
        {
            peer.known = Some((learnt, now()));
        }
    }
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
        let first = paths.lease(PEER);
        assert_eq!(first.memory().get(), None);
        first.memory().save(PATH);
        drop(first);
        let all: Vec<_> = (0..10).map(|_| paths.lease(PEER)).collect();
        for (before, lease) in (1u32..).zip(&all) {
            let known = lease.memory().get().unwrap().rate;
            assert!((known - PATH.rate / f64::from(before)).abs() < 1.0);
        }
        let stranger = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(paths.lease(stranger).memory().get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_with_a_proxy_share_all_that_is_known() {
        let paths = Paths::default();
        let mut all: Vec<_> = (0..3).map(|_| paths.lease_together(PEER)).collect();
        all[0].memory().save(PATH);
        for lease in &mut all {
            lease.begin();
            assert_eq!(lease.memory().get(), Some(PATH));
        }
        drop(all);
        assert_eq!(paths.lease_together(PEER).memory().get(), Some(PATH));
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_lifetime_it_is_not_believed() {
        let paths = Paths::default();
        let first = paths.lease(PEER);
        first.memory().save(PATH);
        drop(first);
        tokio::time::advance(LIFETIME).await;
        let late = paths.lease(PEER);
        assert_eq!(late.memory().get(), None);
    }
}
