//! What sessions learnt of the paths to their peers, kept for the next ones (RFC 9959).
//!
//! A peer goes by its key, so what is known is used only for whom it was learnt with,
//! wherever that peer is now; that the path is still like it, the controller checks by
//! its round trip. Each peer has one session at a time, as RFC 9959, section 3, asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_cc::PathMemory;
use tokio::time::Instant;

use crate::identity::Fingerprint;

/// Peers that are remembered.
const MOST: usize = 4096;
/// How long what is known is believed after its session has ended. RFC 9959, section
/// 3.1, asks for hours where a path is stable and lightly shared, as a tunnel's is.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The paths of one end. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Paths(Arc<Mutex<BTreeMap<Fingerprint, Known>>>);

#[derive(Debug)]
struct Known {
    memory: PathMemory,
    /// When the last session ended; without, it has not.
    ended: Option<Instant>,
}

/// A session's use of a path; its end is noted when this is dropped.
#[derive(Debug)]
pub struct Use {
    paths: Paths,
    peer: Fingerprint,
    memory: PathMemory,
}

impl Paths {
    /// What is known of the path to `peer`.
    pub fn known(&self, peer: &Fingerprint) -> Option<bentpipe_cc::Path> {
        let now = now();
        let paths = self.lock();
        let known = paths.get(peer)?;
        let fresh = |ended| now.duration_since(ended) < LIFETIME;
        known.memory.get().filter(|_| known.ended.is_none_or(fresh))
    }

    /// A session with `peer`, whose controller works with `memory`, begins: it is told
    /// what is known, and learns for the sessions after it.
    pub fn enter(&self, peer: Fingerprint, memory: PathMemory) -> Use {
        if let Some(path) = self.known(&peer) {
            memory.save(path);
        }
        let mut paths = self.lock();
        if paths.len() >= MOST
            && !paths.contains_key(&peer)
            && let Some(oldest) = oldest(&paths)
        {
            paths.remove(&oldest);
        }
        let known = Known {
            memory: memory.clone(),
            ended: None,
        };
        paths.insert(peer, known);
        drop(paths);
        Use {
            paths: self.clone(),
            peer,
            memory,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut paths = self.paths.lock();
        // A newer session of the same peer may have taken over.
        if let Some(known) = paths.get_mut(&self.peer)
            && known.memory.is(&self.memory)
        {
            known.ended = Some(now());
        }
    }
}

/// The peer whose last session ended first.
fn oldest(paths: &BTreeMap<Fingerprint, Known>) -> Option<Fingerprint> {
    let ended = |(peer, known): (&Fingerprint, &Known)| known.ended.map(|ended| (ended, *peer));
    paths.iter().filter_map(ended).min().map(|(_, peer)| peer)
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
    use bentpipe_cc::Path;
    use bentpipe_units::Span;

    use super::*;
    use crate::identity::Identity;

    const PATH: Path = Path {
        rate: 2.5e6,
        rtt: Span::from_millis(600),
    };

    fn peer(number: u32) -> Fingerprint {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        Identity::from_seed(&seed).fingerprint()
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_session_learnt_its_peers_next_one_knows() {
        let paths = Paths::default();
        let first = PathMemory::default();
        let session = paths.enter(peer(1), first.clone());
        first.save(PATH);
        drop(session);
        let (next, stranger) = (PathMemory::default(), PathMemory::default());
        let _sessions = [
            paths.enter(peer(1), next.clone()),
            paths.enter(peer(2), stranger.clone()),
        ];
        assert_eq!(next.get(), Some(PATH));
        assert_eq!(stranger.get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_session_that_lingers_does_not_end_the_new_one() {
        let paths = Paths::default();
        let old = paths.enter(peer(1), PathMemory::with(PATH));
        let _new = paths.enter(peer(1), PathMemory::default());
        drop(old);
        tokio::time::advance(2 * LIFETIME).await;
        assert_eq!(paths.known(&peer(1)), Some(PATH));
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_lifetime_it_is_not_believed() {
        let paths = Paths::default();
        drop(paths.enter(peer(1), PathMemory::with(PATH)));
        assert_eq!(paths.known(&peer(1)), Some(PATH));
        tokio::time::advance(LIFETIME).await;
        assert_eq!(paths.known(&peer(1)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded_and_the_oldest_goes_first() {
        let paths = Paths::default();
        for number in 0..=u32::try_from(MOST).unwrap() {
            drop(paths.enter(peer(number), PathMemory::with(PATH)));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(paths.lock().len(), MOST);
        assert_eq!(paths.known(&peer(0)), None);
        assert_eq!(paths.known(&peer(1)), Some(PATH));
    }
}
