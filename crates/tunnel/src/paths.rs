//! Memory of paths: what sessions learnt, saved for the next ones (RFC 9959).
//!
//! A peer goes by its key, so what is known is used only for whom it was learnt with,
//! wherever that peer is now. There may be several ways to a peer, over a satellite and over
//! land: what was learnt on one is kept beside what was learnt on another, told apart by the
//! round trip (RFC 9959, section 4.2.1), which the controller checks again before it uses it.
//!
//! Whoever runs an end may keep what [`Paths::saved`] gives over a restart and begin with
//! [`Paths::restored`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_cc::{Path, PathMemory};
use bentpipe_quic::clock::now;
use bentpipe_units::Span;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::identity::Fingerprint;

/// Peers that are remembered, and paths that are saved.
pub const MOST: usize = 4096;
/// Paths of one peer that are remembered.
const MOST_OF_ONE: usize = 4;
/// How long what is known is believed after its session has ended. RFC 9959, section
/// 3.1, asks for hours where a path is stable and lightly shared, as a tunnel's is.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The paths of one end. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Paths(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    paths: Mutex<BTreeMap<Fingerprint, Vec<PathEntry>>>,
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
        for (peer, known) in saved.into_iter().filter_map(believed) {
            let of_peer: &mut Vec<_> = paths.entry(peer).or_default();
            if of_peer.len() < MOST_OF_ONE {
                of_peer.push(known);
            }
        }
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
        let saved = |peer: &Fingerprint, known: &PathEntry| {
            Some(SavedPath {
                peer: *peer,
                path: known.believed(now)?,
                ended: known.until.map(|until| LIFETIME - (until - now)),
            })
        };
        let paths = self.lock();
        let all = paths
            .iter()
            .flat_map(|(peer, of_peer)| of_peer.iter().filter_map(|known| saved(peer, known)));
        all.take(MOST).collect()
    }

    /// Waits for the end of a session, or returns at once if one has ended since the last wait.
    pub async fn session_ended(&self) {
        self.0.session_ended.notified().await;
    }

    /// What is known of the path to `peer` with the round trip `rtt`.
    pub fn known(&self, peer: &Fingerprint, rtt: Duration) -> Option<Path> {
        let paths = self.lock();
        let of_peer = paths.get(peer)?;
        of_peer[like(of_peer, rtt)?].believed(now())
    }

    /// A session with `peer`, whose controller works with `memory`, has been opened, and its
    /// handshake took the round trip `rtt`: it is told what is known of such a path, and learns
    /// for the sessions after it.
    pub fn lease(&self, peer: Fingerprint, rtt: Duration, memory: PathMemory) -> PathLease {
        let mut paths = self.lock();
        if paths.len() >= MOST
            && !paths.contains_key(&peer)
            && let Some(oldest) = oldest(&paths)
        {
            paths.remove(&oldest);
        }
        let of_peer = paths.entry(peer).or_default();
        let before = like(of_peer, rtt).map(|index| of_peer.remove(index));
        if let Some(before) = before.filter(|before| before.is_fresh(now())) {
            memory.take_over(&before.memory);
            memory.like(Span::from_secs_f64(rtt.as_secs_f64()));
        }
        if of_peer.len() >= MOST_OF_ONE {
            let ended = of_peer.iter().position(|known| known.until.is_some());
            let oldest = ended.unwrap_or(0);
            of_peer.remove(oldest);
        }
        of_peer.push(PathEntry {
            memory: memory.clone(),
            until: None,
        });
        drop(paths);
        PathLease {
            paths: self.clone(),
            peer,
            memory,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, Vec<PathEntry>>> {
        self.0.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathEntry {
    fn is_fresh(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn believed(&self, now: Instant) -> Option<Path> {
        self.memory.get().filter(|_| self.is_fresh(now))
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
        let Some(of_peer) = paths.get_mut(&self.peer) else {
            return;
        };
        // A newer session over the same path may have taken over.
        let Some(index) = of_peer
            .iter()
            .position(|known| known.memory.is(&self.memory))
        else {
            return;
        };
        of_peer[index].until = Some(now() + LIFETIME);
        if self.memory.get().is_none() {
            of_peer.remove(index);
        }
        if of_peer.is_empty() {
            paths.remove(&self.peer);
        }
        drop(paths);
        self.paths.0.session_ended.notify_one();
    }
}

/// Which of a peer's paths has a round trip like `rtt`, the nearest.
fn like(of_peer: &[PathEntry], rtt: Duration) -> Option<usize> {
    let far = |path: &Path| (path.rtt.as_secs_f64() / rtt.as_secs_f64()).ln().abs();
    let fits = |(index, known): (usize, &PathEntry)| {
        let path = known.memory.get()?;
        path.fits(Span::from_secs_f64(rtt.as_secs_f64()))
            .then(|| (far(&path), index))
    };
    let nearest = of_peer.iter().enumerate().filter_map(fits);
    let nearest = nearest.min_by(|one, other| one.0.total_cmp(&other.0));
    nearest.map(|(_, index)| index)
}

/// The peer whose last session ended first.
fn oldest(paths: &BTreeMap<Fingerprint, Vec<PathEntry>>) -> Option<Fingerprint> {
    let until = |(peer, of_peer): (&Fingerprint, &Vec<PathEntry>)| {
        let all: Option<Vec<_>> = of_peer.iter().map(|known| known.until).collect();
        Some((all?.into_iter().max()?, *peer))
    };
    paths.iter().filter_map(until).min().map(|(_, peer)| peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    const PATH: Path = Path {
        rate: 2.5e6,
        rtt: Span::from_millis(600),
    };

    const RTT: Duration = Duration::from_millis(620);

    fn peer(number: u32) -> Fingerprint {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        Identity::from_seed(&seed).fingerprint()
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_session_learnt_its_peers_next_one_knows() {
        let paths = Paths::default();
        let first = PathMemory::default();
        let session = paths.lease(peer(1), RTT, first.clone());
        first.save(PATH);
        drop(session);
        let (next, stranger) = (PathMemory::default(), PathMemory::default());
        let _sessions = [
            paths.lease(peer(1), RTT, next.clone()),
            paths.lease(peer(2), RTT, stranger.clone()),
        ];
        assert_eq!(next.get(), Some(PATH));
        assert_eq!(stranger.get(), None);
    }

    /// Over a satellite and over land, one after the other and beside each other.
    #[tokio::test(start_paused = true)]
    async fn each_way_to_a_peer_has_what_was_learnt_on_it() {
        const LAND: Path = Path {
            rate: 12.5e6,
            rtt: Span::from_millis(30),
        };
        let paths = Paths::default();
        let rtts = [RTT, Duration::from_millis(31)];
        for known in [[None, None], [Some(PATH), Some(LAND)]] {
            let memories = [PathMemory::default(), PathMemory::default()];
            let leases = [0, 1].map(|way| paths.lease(peer(1), rtts[way], memories[way].clone()));
            assert_eq!(memories.each_ref().map(PathMemory::get), known);
            memories[0].save(PATH);
            memories[1].save(LAND);
            drop(leases);
        }
        assert_eq!(paths.saved().len(), 2);
        let rtts = [10, 25, 100, 500, 900, 20_000].map(Duration::from_millis);
        let known = rtts.map(|rtt| paths.known(&peer(1), rtt));
        let (land, satellite) = (Some(LAND), Some(PATH));
        assert_eq!(known, [None, land, land, satellite, satellite, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_has_few_paths_and_what_learnt_nothing_is_none() {
        let paths = Paths::default();
        for number in 0..20 {
            drop(paths.lease(peer(1), RTT, PathMemory::default()));
            let rtt = Span::from_millis(1 << number);
            let path = PathMemory::with(Path { rate: 1e6, rtt });
            drop(paths.lease(peer(1), rtt.as_duration(), path));
        }
        assert!(paths.saved().len() <= MOST_OF_ONE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_session_that_lingers_does_not_end_the_new_one() {
        let paths = Paths::default();
        let old = paths.lease(peer(1), RTT, PathMemory::with(PATH));
        let _new = paths.lease(peer(1), RTT, PathMemory::default());
        drop(old);
        tokio::time::advance(2 * LIFETIME).await;
        assert_eq!(paths.known(&peer(1), RTT), Some(PATH));
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_lifetime_it_is_not_believed() {
        let paths = Paths::default();
        drop(paths.lease(peer(1), RTT, PathMemory::with(PATH)));
        assert_eq!(paths.known(&peer(1), RTT), Some(PATH));
        tokio::time::advance(LIFETIME).await;
        assert_eq!(paths.known(&peer(1), RTT), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded_and_the_oldest_goes_first() {
        let paths = Paths::default();
        for number in 0..=u32::try_from(MOST).unwrap() {
            drop(paths.lease(peer(number), RTT, PathMemory::with(PATH)));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(paths.lock().len(), MOST);
        assert_eq!(paths.known(&peer(0), RTT), None);
        assert_eq!(paths.known(&peer(1), RTT), Some(PATH));
    }

    /// The paths of the process that comes after.
    fn restart(paths: &Paths) -> Paths {
        Paths::restored(paths.saved())
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_forgets_nothing_and_makes_nothing_younger() {
        let paths = Paths::default();
        drop(paths.lease(peer(1), RTT, PathMemory::with(PATH)));
        let _open = paths.lease(peer(2), RTT, PathMemory::with(PATH));
        tokio::time::advance(LIFETIME / 2).await;
        let saved = paths.saved();
        let ended: Vec<_> = [peer(1), peer(2)]
            .map(|peer| saved.iter().find(|saved| saved.peer == peer).unwrap().ended)
            .into();
        assert_eq!(ended, [Some(LIFETIME / 2), None]);

        let paths = restart(&restart(&paths));
        let known = |number| paths.known(&peer(number), RTT);
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
        let _session = paths.lease(peer(1), RTT, memory.clone());
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
        assert_eq!(paths.known(&peer(most), RTT), None);
        assert_eq!(paths.known(&peer(0), RTT), Some(PATH));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_session_is_told_also_to_who_asks_later() {
        let paths = Paths::default();
        let session = paths.lease(peer(1), RTT, PathMemory::default());
        let told = tokio::time::timeout(LIFETIME, paths.session_ended()).await;
        assert!(told.is_err(), "it has not ended");
        drop(session);
        paths.session_ended().await;
    }
}
