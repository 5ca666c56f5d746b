//! Whether applications' own QUIC is tunnelled or refused: by how long transfers of both kinds
//! have taken here.
//!
//! A browser whose QUIC is refused uses TCP, which the tunnel splits: the server's congestion
//! control then sees the ground alone, while that of an application's QUIC sees the satellite.
//! On a short path that is no gain, and QUIC's own is lost. So times decide: from what an
//! application sends until so many bytes have come back ([`SIZES`]), of both kinds, at the same
//! server, because servers differ more than the kinds do. The figure is the geometric mean of
//! QUIC's time over TCP's; what is older counts less, half of it after an [hour](HALF_LIFE).
//!
//! A host's visits to a server, of some minutes each, have QUIC or have not. Every second visit is
//! refused while too little is known; then every [tenth](EXPLORE) goes the other way, lest a
//! change of the link or of the servers go unseen.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_quic::clock::now;
use lru::LruCache;
use tokio::time::Instant;

use crate::flow::transfer_time::{Meter, SIZES};

/// A sample counts half after this time.
const HALF_LIFE: Duration = Duration::from_secs(3600);
/// How long a host's visit to a server is, all connections of which are treated alike.
const VISIT: Duration = Duration::from_secs(300);
/// One visit of so many goes the other way, once it is decided.
const EXPLORE: u32 = 10;
/// Less evidence decides nothing: pairs of times, of one size at one server.
const ENOUGH: f64 = 6.0;
/// No size at one server counts more than this.
const MOST_OF_ONE: f64 = 3.0;
/// QUIC has to take so many times as long as TCP to be refused, and TCP as QUIC to be tunnelled
/// again; in between all stays as it is.
const MARGIN: f64 = 1.1;
/// Servers that are known, and visits; those of longest ago are forgotten first.
const SERVERS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
const VISITS: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// How an application reaches a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its own QUIC, tunnelled.
    Quic,
    /// TCP, split.
    Tcp,
}

/// What becomes of applications' QUIC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Every second visit is refused, for comparison.
    #[default]
    Learning,
    /// It is tunnelled.
    Tunnel,
    /// It is refused.
    Refuse,
}

/// The choice. Clones are the same.
#[derive(Debug, Clone)]
pub struct QuicChoice(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    decision: Decision,
    /// By name where it is known, else by address.
    servers: LruCache<Arc<str>, Server>,
    /// By host and server: when the visit began, its number, and whether it has QUIC.
    visits: LruCache<(IpAddr, IpAddr), (Instant, u32, bool)>,
    /// The number of the next visit of a host and server that are not known.
    next: u32,
    tunnelled: u64,
    refused: u64,
}

/// The times of one server, by kind and size.
#[derive(Debug, Clone, Copy, Default)]
struct Server([[Mean; SIZES.len()]; 2]);

/// A mean of logarithms of seconds, which fades.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    weight: f64,
    sum: f64,
    at: Option<Instant>,
}

impl Mean {
    /// Its weight, which halves with time.
    fn weight(&self, now: Instant) -> f64 {
        let age = self.at.map_or(Duration::ZERO, |at| now - at);
        self.weight * (-age.div_duration_f64(HALF_LIFE)).exp2()
    }

    fn value(&self) -> f64 {
        self.sum / self.weight
    }

    fn add(&mut self, seconds: f64, now: Instant) {
        let before = self.weight(now);
        if before > 0.0 {
            self.sum = self.value() * before;
        }
        self.weight = before + 1.0;
        self.sum += seconds.ln();
        self.at = Some(now);
    }
}

/// What is known of one of [`SIZES`], or of all.
#[derive(Debug, Clone, Copy, Default)]
struct Comparison {
    servers: u64,
    weight: f64,
    /// Sums of logarithms.
    quic: f64,
    tcp: f64,
}

impl Comparison {
    fn add(&mut self, quic: &Mean, tcp: &Mean, now: Instant) {
        let weight = quic.weight(now).min(tcp.weight(now)).min(MOST_OF_ONE);
        // One whole sample of an hour ago.
        if weight < 0.5 {
            return;
        }
        self.servers += 1;
        self.weight += weight;
        self.quic += quic.value() * weight;
        self.tcp += tcp.value() * weight;
    }

    /// QUIC's time over TCP's.
    fn ratio(&self) -> f64 {
        ((self.quic - self.tcp) / self.weight).exp()
    }
}

/// The choice at one moment, and why.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct QuicChoiceSnapshot {
    /// What becomes of it.
    pub decision: Decision,
    /// Why, for people.
    pub why: String,
    /// How many times as long as TCP it takes, at the same servers and sizes: a geometric mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic_to_tcp: Option<f64>,
    /// One of so many visits of a host to a server goes the other way.
    pub explores_one_of: u32,
    /// Visits that had QUIC, and that were refused it.
    pub tunnelled: u64,
    /// See above.
    pub refused: u64,
    /// The times behind it, of the sizes that are known of both at some server.
    pub times: Vec<TransferTimes>,
}

/// The times of transfers of one size, over the servers of which both kinds are known.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TransferTimes {
    /// What has come by then.
    pub bytes: u64,
    /// How many servers.
    pub servers: u64,
    /// By an application's own QUIC: a geometric mean.
    pub quic_ms: f64,
    /// By TCP: a geometric mean.
    pub tcp_ms: f64,
}

impl Default for QuicChoice {
    /// All is tunnelled, and nothing measured.
    fn default() -> Self {
        Self(Arc::new(Shared {
            on: AtomicBool::new(false),
            state: Mutex::new(State {
                decision: Decision::default(),
                servers: LruCache::new(SERVERS),
                visits: LruCache::new(VISITS),
                next: 0,
                tunnelled: 0,
                refused: 0,
            }),
        }))
    }
}

impl QuicChoice {
    /// Whether measurements decide from now on; else all is tunnelled.
    pub fn measure(&self, on: bool) {
        self.0.on.store(on, Ordering::Relaxed);
    }

    /// Whether measurements decide.
    pub fn is_measuring(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Whether QUIC of the host `client` to `server` is tunnelled now.
    pub fn admits(&self, client: IpAddr, server: IpAddr) -> bool {
        !self.is_measuring() || self.lock().admits(client, server, now())
    }

    /// Measures a flow of `kind` to `server`, if measurements decide.
    pub(super) fn meter(&self, kind: Kind, server: impl FnOnce() -> Arc<str>) -> Option<Meter> {
        self.is_measuring().then(|| {
            let (choice, server) = (self.clone(), server());
            Meter::new(move |size, time| choice.lock().note(&server, kind, size, time, now()))
        })
    }

    /// How it stands, and why; none where measurements do not decide.
    pub fn snapshot(&self) -> Option<QuicChoiceSnapshot> {
        self.is_measuring().then(|| self.lock().snapshot(now()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admits(&mut self, client: IpAddr, server: IpAddr, now: Instant) -> bool {
        let known = self.visits.get(&(client, server)).copied();
        let number = match known {
            Some((since, _, admitted)) if now - since < VISIT => return admitted,
            Some((_, number, _)) => number.wrapping_add(1),
            None => {
                self.next = self.next.wrapping_add(1);
                self.next
            }
        };
        self.decide(now);
        let explores = number.is_multiple_of(EXPLORE);
        let admitted = match self.decision {
            Decision::Learning => number % 2 == 1,
            Decision::Tunnel => !explores,
            Decision::Refuse => explores,
        };
        match admitted {
            true => self.tunnelled += 1,
            false => self.refused += 1,
        }
        self.visits.put((client, server), (now, number, admitted));
        admitted
    }

    fn note(&mut self, server: &Arc<str>, kind: Kind, size: usize, time: Duration, now: Instant) {
        let server = (self.servers).get_or_insert_mut(server.clone(), Server::default);
        server.0[kind as usize][size].add(time.as_secs_f64().max(1e-6), now);
    }

    /// What is known of each size.
    fn compare(&self, now: Instant) -> [Comparison; SIZES.len()] {
        let mut sizes = [Comparison::default(); SIZES.len()];
        for (_, Server([quic, tcp])) in &self.servers {
            for (size, (quic, tcp)) in sizes.iter_mut().zip(quic.iter().zip(tcp)) {
                size.add(quic, tcp, now);
            }
        }
        sizes
    }

    fn decide(&mut self, now: Instant) -> [Comparison; SIZES.len()] {
        let sizes = self.compare(now);
        let all = total(&sizes);
        self.decision = match (all.weight, self.decision) {
            (..ENOUGH, _) => Decision::Learning,
            _ if all.ratio() > MARGIN => Decision::Refuse,
            _ if all.ratio() < 1.0 / MARGIN => Decision::Tunnel,
            (_, Decision::Learning) => Decision::Tunnel,
            (_, before) => before,
        };
        sizes
    }

    fn snapshot(&mut self, now: Instant) -> QuicChoiceSnapshot {
        let sizes = self.decide(now);
        let all = total(&sizes);
        let known = || SIZES.iter().zip(&sizes).filter(|(_, c)| c.servers > 0);
        QuicChoiceSnapshot {
            decision: self.decision,
            why: self.why(&all),
            quic_to_tcp: (all.weight > 0.0).then(|| all.ratio()),
            explores_one_of: match self.decision {
                Decision::Learning => 2,
                _ => EXPLORE,
            },
            tunnelled: self.tunnelled,
            refused: self.refused,
            times: known()
                .map(|(bytes, size)| TransferTimes {
                    bytes: *bytes,
                    servers: size.servers,
                    quic_ms: (size.quic / size.weight).exp() * 1e3,
                    tcp_ms: (size.tcp / size.weight).exp() * 1e3,
                })
                .collect(),
        }
    }

    fn why(&self, all: &Comparison) -> String {
        let mut why = String::new();
        if all.weight > 0.0 {
            let ratio = all.ratio();
            let _ = write!(why, "QUIC takes {ratio:.2} times as long as TCP");
        }
        match self.decision {
            Decision::Learning if why.is_empty() => {
                why.push_str("no server is known by transfers of both kinds");
            }
            Decision::Learning => {
                let weight = all.weight;
                let _ = write!(why, ", by {weight:.1} comparisons; {ENOUGH} decide");
            }
            Decision::Tunnel if all.ratio() > 1.0 / MARGIN => {
                let _ = write!(why, ", less than the {MARGIN} from which it is refused");
            }
            Decision::Refuse if all.ratio() < MARGIN => {
                let back = 1.0 / MARGIN;
                let _ = write!(why, "; it is tunnelled again below {back:.2}");
            }
            Decision::Tunnel | Decision::Refuse => {}
        }
        why
    }
}

fn total(sizes: &[Comparison]) -> Comparison {
    let all = sizes.iter().copied();
    all.reduce(|a, b| Comparison {
        servers: a.servers.max(b.servers),
        weight: a.weight + b.weight,
        quic: a.quic + b.quic,
        tcp: a.tcp + b.tcp,
    })
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn host(number: u32) -> IpAddr {
        let [_, b, c, d] = number.to_be_bytes();
        [10, b, c, d].into()
    }

    fn state() -> State {
        let choice = Arc::into_inner(QuicChoice::default().0).unwrap();
        choice.state.into_inner().unwrap()
    }

    /// Transfers of both kinds at some servers, of which some are slow by both.
    fn compare(state: &mut State, quic: f64, now: Instant) {
        for server in 0..3 {
            let name: Arc<str> = format!("server-{server}.example").into();
            let tcp = 0.5 * f64::from(server + 1);
            for size in 0..2 {
                let mut note = |kind, time| {
                    state.note(&name, kind, size, Duration::from_secs_f64(time), now);
                };
                note(Kind::Tcp, tcp);
                note(Kind::Quic, tcp * quic);
            }
        }
    }

    fn share(state: &mut State, now: Instant) -> f64 {
        let visits = 200;
        let admitted = (0..visits).filter(|n| {
            // Later visits of some hosts to some servers.
            let later = now + VISIT * (n / 10);
            state.admits(host(n % 10), host(1000 + n % 2), later)
        });
        f64::from(u32::try_from(admitted.count()).unwrap()) / f64::from(visits)
    }

    #[test]
    fn half_of_the_visits_are_refused_until_enough_is_known_of_the_same_servers() {
        let (mut state, start) = (state(), now());
        assert!((share(&mut state, start) - 0.5).abs() < 0.05);
        // Fast servers by QUIC and slow ones by TCP say nothing of QUIC.
        for number in 0..100 {
            let name: Arc<str> = format!("{number}.example").into();
            let (kind, seconds) = [(Kind::Quic, 1), (Kind::Tcp, 9)][number % 2];
            state.note(&name, kind, 0, Duration::from_secs(seconds), start);
        }
        let snapshot = state.snapshot(start);
        assert_eq!(snapshot.decision, Decision::Learning, "{snapshot:?}");
        assert_eq!(snapshot.quic_to_tcp, None);
    }

    #[test]
    fn the_faster_is_chosen_and_the_other_is_tried_now_and_then() {
        for (quic, decision, admitted) in [
            (1.8, Decision::Refuse, 0.1),
            (0.7, Decision::Tunnel, 0.9),
            (1.05, Decision::Tunnel, 0.9),
        ] {
            let (mut state, start) = (state(), now());
            for _ in 0..2 {
                compare(&mut state, quic, start);
            }
            let snapshot = state.snapshot(start);
            assert_eq!(snapshot.decision, decision, "{snapshot:?}");
            let ratio = snapshot.quic_to_tcp.unwrap();
            assert!((ratio - quic).abs() < 0.01, "{snapshot:?}");
            assert_eq!(snapshot.times[0].servers, 3);
            let short = start + MINUTE;
            let tried = (0..200).filter(|n| state.admits(host(*n), host(1000), short));
            let tried = f64::from(u32::try_from(tried.count()).unwrap()) / 200.0;
            assert!((tried - admitted).abs() < 0.02, "{tried}");
        }
    }

    #[test]
    fn a_decision_stays_within_the_margin_and_changes_when_the_link_does() {
        let (mut state, start) = (state(), now());
        for _ in 0..2 {
            compare(&mut state, 1.5, start);
        }
        assert_eq!(state.snapshot(start).decision, Decision::Refuse);
        // An hour at a place where both are alike: the mean is within the margin.
        let mut later = start;
        for _ in 0..12 {
            later += 5 * MINUTE;
            compare(&mut state, 0.98, later);
        }
        let within = state.snapshot(later);
        assert_eq!(within.decision, Decision::Refuse, "{within:?}");
        assert!(
            within.why.contains("tunnelled again below 0.91"),
            "{within:?}"
        );
        for _ in 0..24 {
            later += 5 * MINUTE;
            compare(&mut state, 0.8, later);
        }
        assert_eq!(state.snapshot(later).decision, Decision::Tunnel);
        // What was known fades.
        let night = later + HALF_LIFE * 10;
        assert_eq!(state.snapshot(night).decision, Decision::Learning);
    }

    #[test]
    fn a_visit_is_treated_alike_and_what_is_kept_is_bounded() {
        let (mut state, start) = (state(), now());
        let first = state.admits(host(1), host(1000), start);
        for seconds in 0..290 {
            let later = start + Duration::from_secs(seconds);
            assert_eq!(state.admits(host(1), host(1000), later), first);
        }
        let next = state.admits(host(1), host(1000), start + VISIT);
        assert_eq!(next, !first, "the next visit, for comparison");
        for number in 0..5000 {
            state.admits(host(number), host(number), start);
            let name: Arc<str> = number.to_string().into();
            state.note(&name, Kind::Tcp, 0, MINUTE, start);
        }
        assert_eq!(state.visits.len(), VISITS.get());
        assert_eq!(state.servers.len(), SERVERS.get());
    }
}
