//! Memory of paths: what sessions learnt, saved for the next ones (RFC 9959).
//!
//! A peer goes by its key, so what is known is used only for whom it was learnt with,
//! wherever that peer is now; that the path is still like it, the controller checks by
//! its round trip. Each peer has one session at a time, as RFC 9959, section 3, asks.
//!
//! Whoever runs an end may keep what [`Paths::saved`] gives over a restart and begin with
//! [`Paths::restored`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_cc::{Path, PathMemory};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::identity::Fingerprint;

/// Peers that are remembered.
pub const MOST: usize = 4096;
/// How long what is known is believed after its session has ended. RFC 9959, section
/// 3.1, asks for hours where a path is stable and lightly shared, as a tunnel's is.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The paths of one end. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Paths(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    paths: Mutex<BTreeMap<Fingerprint, PathEntry>>,
    session_ended: Notify,
}

#[derive(Debug)]
struct PathEntry {
    memory: PathMemory,
    /// Until when it is believed; without, its session is open.
    until: Option<Instant>,
}

/// What is known of the path to one peer, for whoever keeps it over a restart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SavedPath {
    /// To whom.
    pub peer: Fingerprint,
    /// What is known.
    pub path: Path,
    /// How long ago the last session with that peer ended; `None` while one is open.
    pub ended: Option<Duration>,
}

/// A session's use of a path; its end is noted when this is dropped.
#[derive(Debug)]
pub struct PathLease {
    paths: Paths,
    peer: Fingerprint,
    memory: PathMemory,
}

impl Paths {
    /// The paths that an earlier process [saved](Self::saved), those that are not too old
    /// by now. A session that was open then has ended with its process.
    pub fn restored(saved: impl IntoIterator<Item = SavedPath>) -> Self {
        let now = now();
        let believed = |saved: SavedPath| {
            let left = LIFETIME.checked_sub(saved.ended.unwrap_or_default())?;
            let known = PathEntry {
                memory: PathMemory::with(saved.path),
                until: Some(now + left),
            };
            Some((saved.peer, known))
        };
        let restored = Self::default();
        let mut paths = restored.lock();
        paths.extend(saved.into_iter().filter_map(believed));
        while paths.len() > MOST
            && let Some(oldest) = oldest(&paths)
        {
            paths.remove(&oldest);
        }
        drop(paths);
        restored
    }

    /// What is known now, in the order of the peers' keys: at most [`MOST`] paths.
    pub fn saved(&self) -> Vec<SavedPath> {
        let now = now();
        let saved = |(peer, known): (&Fingerprint, &PathEntry)| {
            Some(SavedPath {
                peer: *peer,
                path: known.believed(now)?,
                ended: known.until.map(|until| LIFETIME - (until - now)),
            })
        };
        self.lock().iter().filter_map(saved).take(MOST).collect()
    }

    /// Waits for the end of a session, or returns at once if one has ended since the last wait.
    pub async fn session_ended(&self) {
        self.0.session_ended.notified().await;
    }

    /// What is known of the path to `peer`.
    pub fn known(&self, peer: &Fingerprint) -> Option<Path> {
        self.lock().get(peer)?.believed(now())
    }

    /// A session with `peer`, whose controller works with `memory`, has been opened: it is
    /// told what is known, and learns for the sessions after it.
    pub fn lease(&self, peer: Fingerprint, memory: PathMemory) -> PathLease {
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
        let known = PathEntry {
            memory: memory.clone(),
            until: None,
        };
        paths.insert(peer, known);
        drop(paths);
        PathLease {
            paths: self.clone(),
            peer,
            memory,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, PathEntry>> {
        self.0.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathEntry {
    fn believed(&self, now: Instant) -> Option<Path> {
        let fresh = self.until.is_none_or(|until| now < until);
        self.memory.get().filter(|_| fresh)
    }
}

impl PathLease {
    /// What is known of the path by now, for people who look into the log.
    pub fn describe(&self) -> String {
        self.memory.get().map_or_else(
            || "nothing of the path".to_owned(),
            |path| {
                let (rate, rtt) = (path.rate * 8.0 / 1e6, path.rtt.as_secs_f64() * 1e3);
                format!("{rate:.2} Mbit/s, {rtt:.0} ms")
            },
        )
    }
}

impl Drop for PathLease {
    fn drop(&mut self) {
        let mut paths = self.paths.lock();
        // A newer session of the same peer may have taken over.
        if let Some(known) = paths.get_mut(&self.peer)
            && known.memory.is(&self.memory)
        {
            known.until = Some(now() + LIFETIME);
            drop(paths);
            self.paths.0.session_ended.notify_one();
        }
    }
}

/// The peer whose last session ended first.
fn oldest(paths: &BTreeMap<Fingerprint, PathEntry>) -> Option<Fingerprint> {
    let until = |(peer, known): (&Fingerprint, &PathEntry)| known.until.map(|until| (until, *peer));
    paths.iter().filter_map(until).min().map(|(_, peer)| peer)
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
        let session = paths.lease(peer(1), first.clone());
        first.save(PATH);
        drop(session);
        let (next, stranger) = (PathMemory::default(), PathMemory::default());
        let _sessions = [
            paths.lease(peer(1), next.clone()),
            paths.lease(peer(2), stranger.clone()),
        ];
        assert_eq!(next.get(), Some(PATH));
        assert_eq!(stranger.get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_session_that_lingers_does_not_end_the_new_one() {
        let paths = Paths::default();
        let old = paths.lease(peer(1), PathMemory::with(PATH));
        let _new = paths.lease(peer(1), PathMemory::default());
        drop(old);
        tokio::time::advance(2 * LIFETIME).await;
        assert_eq!(paths.known(&peer(1)), Some(PATH));
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_lifetime_it_is_not_believed() {
        let paths = Paths::default();
        drop(paths.lease(peer(1), PathMemory::with(PATH)));
        assert_eq!(paths.known(&peer(1)), Some(PATH));
        tokio::time::advance(LIFETIME).await;
        assert_eq!(paths.known(&peer(1)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded_and_the_oldest_goes_first() {
        let paths = Paths::default();
        for number in 0..=u32::try_from(MOST).unwrap() {
            drop(paths.lease(peer(number), PathMemory::with(PATH)));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(paths.lock().len(), MOST);
        assert_eq!(paths.known(&peer(0)), None);
        assert_eq!(paths.known(&peer(1)), Some(PATH));
    }

    /// The paths of the process that comes after.
    fn restart(paths: &Paths) -> Paths {
        Paths::restored(paths.saved())
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_forgets_nothing_and_makes_nothing_younger() {
        let paths = Paths::default();
        drop(paths.lease(peer(1), PathMemory::with(PATH)));
        let _open = paths.lease(peer(2), PathMemory::with(PATH));
        tokio::time::advance(LIFETIME / 2).await;
        let saved = paths.saved();
        let ended: Vec<_> = [peer(1), peer(2)]
            .map(|peer| saved.iter().find(|saved| saved.peer == peer).unwrap().ended)
            .into();
        assert_eq!(ended, [Some(LIFETIME / 2), None]);

        let paths = restart(&restart(&paths));
        let known = |number| paths.known(&peer(number));
        assert_eq!(
            [known(1), known(2), known(3)],
            [Some(PATH), Some(PATH), None]
        );
        tokio::time::advance(LIFETIME / 2).await;
        assert_eq!([known(1), known(2)], [None, Some(PATH)]);
        tokio::time::advance(LIFETIME / 2).await;
        assert_eq!([known(1), known(2)], [None, None]);
        assert_eq!(paths.saved(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_forgotten_is_not_kept() {
        let paths = Paths::default();
        let memory = PathMemory::with(PATH);
        let _session = paths.lease(peer(1), memory.clone());
        memory.forget();
        assert_eq!(paths.saved(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_paths_the_newest_are_restored() {
        let most = u32::try_from(MOST).unwrap();
        let saved = |number| SavedPath {
            peer: peer(number),
            path: PATH,
            ended: Some(Duration::from_millis(number.into())),
        };
        let paths = Paths::restored((0..=most).map(saved));
        assert_eq!(paths.saved().len(), MOST);
        assert_eq!(paths.known(&peer(most)), None);
        assert_eq!(paths.known(&peer(0)), Some(PATH));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_session_is_told_also_to_who_asks_later() {
        let paths = Paths::default();
        let session = paths.lease(peer(1), PathMemory::default());
        let told = tokio::time::timeout(LIFETIME, paths.session_ended()).await;
        assert!(told.is_err(), "it has not ended");
        drop(session);
        paths.session_ended().await;
    }
}
