//! The gateways of a terminal: which of them its session is with.
//!
//! - Without a session, gateways are tried in the order of their delays, the next beside
//!   those that have not answered in time (RFC 8305), and the first that answers is taken.
//! - The delays of several gateways are measured again and again ([`super::probe`]). One that
//!   was nearer by a fifth, and by 10 ms, three times in a row is moved to.
//! - When the gateway is silent and another answers, the other is moved to at once.
//!
//! What moves is where new flows go. Those that are open stay where they are, and their
//! session with them, until they end; where the gateway is silent, for [`SILENCE`].

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_quic::clock::now;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::Instant;

use super::connector::{BACKOFF, Connector, NEXT_ADDRESS};
use super::session::Session;
use crate::sockets::Resolve;
use crate::target::Target;

/// Pause between two measurements: 2.5 kB a minute for each gateway.
const MEASURE: Duration = Duration::from_secs(30);
/// Measurements of which the shortest counts: a queue on the way is no distance.
const RECENT: usize = 3;
/// Measurements in a row that another gateway has to be nearer in.
const NEARER: u32 = 3;
/// What counts as nearer: by this, and by a fifth.
const NEARER_BY: Duration = Duration::from_millis(10);
/// Flows of a gateway that was left because it was silent have so long to hear from it.
const SILENCE: Duration = Duration::from_secs(8);
/// It is looked so often whether a session that was left has flows.
const LOOK: Duration = Duration::from_secs(1);
/// Wait after another machine with the same key has taken the session: two that take it
/// from each other do so at leisure.
const REPLACED_WAIT: Duration = Duration::from_secs(60);

/// How a gateway stands.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayState {
    /// Which.
    pub gateway: Target,
    /// How long an answer takes; `None` if it gave none, or there is no other gateway.
    pub delay: Option<Duration>,
    /// New flows go there.
    pub in_use: bool,
}

/// The gateways of one terminal.
pub(super) struct Gateways<R> {
    connectors: Vec<Arc<Connector<R>>>,
    /// What is known of each, in the same order.
    known: Mutex<Vec<Known>>,
    current: watch::Sender<Option<Session>>,
    states: watch::Sender<Vec<GatewayState>>,
}

struct Known {
    /// The last measurements.
    delays: VecDeque<Option<Duration>>,
    /// The session with it, also when new flows go elsewhere.
    session: Option<Session>,
    /// The next attempt is not before this, and the wait after that.
    next_attempt: Option<Instant>,
    wait: Duration,
}

impl Known {
    fn delay(&self) -> Option<Duration> {
        self.delays.iter().flatten().min().copied()
    }

    fn open_session(&self) -> Option<&Session> {
        self.session.as_ref().filter(|session| !session.is_closed())
    }

    fn failed(&mut self) {
        self.next_attempt = Some(now() + self.wait);
        self.wait = (self.wait * 2).clamp(BACKOFF.0, BACKOFF.1);
    }
}

impl<R: Resolve> Gateways<R> {
    /// Publishes the session for new flows in `current`.
    pub fn new(
        connectors: Vec<Connector<R>>,
        current: watch::Sender<Option<Session>>,
    ) -> (Self, watch::Receiver<Vec<GatewayState>>) {
        let known = connectors.iter().map(|_| Known {
            delays: VecDeque::new(),
            session: None,
            next_attempt: None,
            wait: BACKOFF.0,
        });
        let (states, watched) = watch::channel(Vec::new());
        let gateways = Self {
            known: Mutex::new(known.collect()),
            connectors: connectors.into_iter().map(Arc::new).collect(),
            current,
            states,
        };
        gateways.publish(None);
        (gateways, watched)
    }

    /// Keeps a session open for ever.
    pub async fn keep(&self) -> Infallible {
        loop {
            let (mut index, mut session) = self.open().await;
            loop {
                self.publish(Some((index, &session)));
                if let Err(why) = session.accepted().await {
                    tracing::warn!(gateway = %self.name(index), "no session: {why}");
                    self.lock()[index].failed();
                    break;
                }
                self.up(index, &session);
                tokio::select! {
                    biased;
                    why = session.closed() => {
                        self.lost(index, &session, &why);
                        break;
                    }
                    opened = self.renewed(index, &session) => {
                        tracing::info!(gateway = %self.name(index), key = %opened.identity(), "new flows go to a session with this terminal's new key");
                        session = opened;
                    }
                    (other, opened) = self.better(index, &session) => {
                        tracing::info!(from = %self.name(index), to = %self.name(other), "new flows go to another gateway");
                        (index, session) = (other, opened);
                    }
                }
            }
            self.publish(None);
        }
    }

    /// Opens a session with the first gateway that answers.
    async fn open(&self) -> (usize, Session) {
        let pause = self.connectors[0].transport.expected_rtt.as_duration() * NEXT_ADDRESS;
        loop {
            let (order, next) = self.order();
            if order.is_empty() {
                tokio::time::sleep_until(next).await;
                continue;
            }
            let mut waiting = order.into_iter();
            let mut attempts = FuturesUnordered::new();
            loop {
                if let Some(index) = waiting.next() {
                    attempts.push(async move { (index, self.session_with(index).await) });
                } else if attempts.is_empty() {
                    break;
                }
                let more = waiting.len() > 0;
                tokio::select! {
                    biased;
                    Some((index, opened)) = attempts.next() => {
                        if let Some(session) = opened {
                            return (index, session);
                        }
                    }
                    () = tokio::time::sleep(pause), if more => {}
                }
            }
        }
    }

    /// The gateways that may be tried now, the nearest first and those that gave no answer
    /// last; and when the next may be.
    fn order(&self) -> (Vec<usize>, Instant) {
        let (known, now) = (self.lock(), now());
        let may = |known: &Known| known.next_attempt.is_none_or(|at| at <= now);
        let mut order: Vec<_> = (0..known.len()).filter(|&i| may(&known[i])).collect();
        order.sort_by_key(|&i| known[i].delay().unwrap_or(Duration::MAX));
        let next = known.iter().filter_map(|known| known.next_attempt).min();
        (order, next.unwrap_or(now))
    }

    /// The open session with a gateway, or a new one; `None` if there cannot be one now.
    async fn session_with(&self, index: usize) -> Option<Session> {
        let open = self.lock()[index].open_session().cloned();
        if let Some(open) = open.filter(|open| !open.is_silent()) {
            return Some(open);
        }
        self.open_with(index).await
    }

    /// A new session with a gateway; `None` if there cannot be one now.
    async fn open_with(&self, index: usize) -> Option<Session> {
        match self.connectors[index].open().await {
            Ok(session) => {
                let (connector, followed) = (self.connectors[index].clone(), session.clone());
                tokio::spawn(async move { connector.follow(&followed).await });
                self.lock()[index].session = Some(session.clone());
                Some(session)
            }
            Err(error) => {
                tracing::warn!(gateway = %self.name(index), "no session: {error}");
                self.lock()[index].failed();
                None
            }
        }
    }

    fn up(&self, index: usize, session: &Session) {
        self.lock()[index].wait = BACKOFF.0;
        let known = session.known_path();
        tracing::info!(gateway = %self.name(index), known, "session is up");
    }

    fn lost(&self, index: usize, session: &Session, why: &str) {
        let path = session.path_summary();
        let mut known = self.lock();
        let known = &mut known[index];
        known.session = None;
        if session.was_forgotten() {
            known.next_attempt = None;
            tracing::warn!(gateway = %self.name(index), %path, "session lost: the gateway can be reached and has forgotten it, as after a restart");
            return;
        }
        tracing::warn!(gateway = %self.name(index), %path, "session lost: {why}");
        if session.was_replaced() {
            let key = session.identity();
            tracing::error!(
                %key,
                "another machine uses this terminal's key: pair one of the two anew, with a key of its own (remove its terminal.key, then `bentpipe terminal join`). Next attempt in {} s",
                REPLACED_WAIT.as_secs()
            );
            known.wait = REPLACED_WAIT;
        }
        known.failed();
    }

    /// Waits until this terminal has another key than it has shown in `session`; a session with
    /// that. The old one is closed when its flows have ended.
    async fn renewed(&self, index: usize, session: &Session) -> Session {
        let mut identity = self.connectors[index].identity.clone();
        let shown = session.identity();
        loop {
            let other = identity.wait_for(|identity| identity.fingerprint() != shown);
            if other.await.is_err() {
                return std::future::pending().await;
            }
            match self.open_with(index).await {
                Some(opened) if opened.accepted().await.is_ok() => {
                    let left = session.clone();
                    tokio::spawn(async move {
                        while !left.is_closed() && left.has_flows() {
                            tokio::time::sleep(LOOK).await;
                        }
                        left.close();
                    });
                    return opened;
                }
                _ => tokio::time::sleep(BACKOFF.1).await,
            }
        }
    }

    /// Measures the gateways until another than `current` is to be moved to; a session with it.
    async fn better(&self, current: usize, session: &Session) -> (usize, Session) {
        if self.connectors.len() < 2 {
            return std::future::pending().await;
        }
        let mut nearest = (current, 0);
        loop {
            self.measure().await;
            self.publish(Some((current, session)));
            self.close_unused(current);
            let silent = session.is_silent();
            let other = match silent {
                true => self.answering(current),
                false => self.nearer(current),
            };
            nearest = match other {
                Some(other) if other == nearest.0 => (other, nearest.1 + 1),
                Some(other) => (other, 1),
                None => (current, 0),
            };
            if (silent && nearest.1 > 0) || nearest.1 >= NEARER {
                let other = nearest.0;
                if let Some(opened) = self.session_with(other).await
                    && opened.accepted().await.is_ok()
                {
                    if silent {
                        let left = session.clone();
                        tokio::spawn(async move {
                            left.silent_for(SILENCE).await;
                            left.close();
                        });
                    }
                    return (other, opened);
                }
                nearest = (current, 0);
            }
            // The probes' own patience is the pause while nothing is heard.
            if !session.is_silent() {
                tokio::select! {
                    () = tokio::time::sleep(MEASURE) => {}
                    () = session.silent_for(Duration::ZERO) => {}
                }
            }
        }
    }

    /// Asks all gateways for an answer, at the same time.
    async fn measure(&self) {
        let answers = join_all(self.connectors.iter().map(|gateway| gateway.delay())).await;
        for (known, delay) in self.lock().iter_mut().zip(answers) {
            known.delays.push_back(delay);
            if known.delays.len() > RECENT {
                known.delays.pop_front();
            }
        }
    }

    /// The nearest gateway, if that is another and by so much that it is worth it.
    fn nearer(&self, current: usize) -> Option<usize> {
        let (order, _) = self.order();
        let known = self.lock();
        let nearest = *order.first()?;
        let (there, here) = (known[nearest].delay()?, known[current].delay()?);
        (nearest != current && there + NEARER_BY.max(there / 5) < here).then_some(nearest)
    }

    /// The nearest of the gateways that answer now, if `current` does not.
    fn answering(&self, current: usize) -> Option<usize> {
        let (order, _) = self.order();
        let known = self.lock();
        let answers = |&i: &usize| known[i].delays.back().is_some_and(Option::is_some);
        if answers(&current) {
            return None;
        }
        order.into_iter().find(answers)
    }

    /// Closes the sessions that new flows do not go to and that have none.
    fn close_unused(&self, current: usize) {
        for (index, known) in self.lock().iter_mut().enumerate() {
            let unused = |session: &Session| session.is_closed() || !session.has_flows();
            if index != current
                && let Some(session) = known.session.take_if(|session| unused(session))
            {
                session.close();
            }
        }
    }

    fn publish(&self, session: Option<(usize, &Session)>) {
        let in_use = session.map(|(index, _)| index);
        let known = self.lock();
        let states = self.connectors.iter().zip(known.iter()).enumerate();
        let states = states.map(|(index, (connector, known))| GatewayState {
            gateway: connector.gateway.clone(),
            delay: known.delay(),
            in_use: in_use == Some(index),
        });
        self.states.send_replace(states.collect());
        let session = session.map(|(_, session)| session);
        self.current.send_if_modified(|current| {
            let same = match (&*current, session) {
                (Some(one), Some(other)) => one.is(other),
                (None, None) => true,
                _ => false,
            };
            if !same {
                *current = session.cloned();
            }
            !same
        });
    }

    fn name(&self, index: usize) -> &Target {
        &self.connectors[index].gateway
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
