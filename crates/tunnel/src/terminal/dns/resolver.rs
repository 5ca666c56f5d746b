//! The terminal's resolver: replies from what is kept, or from what the gateway answers.
//!
//! Nothing is ever asked outside the tunnel. While there is no session, answers that have
//! expired are given, and where there is none, that there is no answer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_quic::clock::now;
use bentpipe_units::Bytes;
use ipnet::IpNet;
use tokio::sync::{Notify, watch};

use super::answer::Answer;
use super::cache::{Cache, Kept, State};
use super::key::Key;
use super::local;
use super::question::{Over, Question};
use crate::flow::FlowError;
use crate::gateway::egress::Egress;
use crate::terminal::flows::Terminal;
use crate::terminal::room::{Room, Seat};
use crate::wire::dns::MAX_UNDER_WAY;

/// The gateway has this long for an answer, sessions that are lost on the way included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// And so long, when there is an expired answer to give instead: 1.8 s (RFC 8767, section 5) less
/// the millisecond that the runtime's timers may be late.
const CLIENT_PATIENCE: Duration = Duration::from_millis(1799);
/// Time to live of an expired answer (RFC 8767, section 4).
const STALE_TTL: Duration = Duration::from_secs(30);
/// Replies that hosts may wait for, of which several may wait for one answer.
const MAX_WAITING: usize = 2048;
/// For whom answers are renewed: for no host, and no more than for one.
const RENEWAL: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// How names are resolved.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What kept answers may take.
    pub cache: Bytes,
    /// Networks whose addresses an answer may name although they are not public.
    pub allow_private: Vec<IpNet>,
}

/// A resolver. Clones are the same.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

struct Shared {
    terminal: Terminal,
    private: Egress,
    memory: Mutex<Memory>,
    /// There is something else to renew.
    renewals: Notify,
    tally: Tally,
}

struct Memory {
    cache: Cache,
    /// Questions that the gateway has been asked, and their answers to come.
    under_way: BTreeMap<Key, Answering>,
    /// How many of them each host has asked.
    asking: Room<IpAddr>,
    /// How many replies each host waits for.
    waiting: Room<IpAddr>,
}

type Answering = watch::Receiver<Option<Asked>>;

/// What became of a question that the gateway was asked.
#[derive(Debug, Clone)]
enum Asked {
    Answered(Arc<Answer>),
    /// Its host had asked most of too many, and another's had to have a place.
    GivenWay,
}

#[derive(Debug, Default)]
struct Tally {
    questions: AtomicU64,
    kept: AtomicU64,
    stale: AtomicU64,
    failed: AtomicU64,
    too_many: AtomicU64,
    asked: AtomicU64,
    renewed: AtomicU64,
}

/// What a resolver has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ResolverSnapshot {
    /// Questions of applications.
    pub questions: u64,
    /// Of these, answered from what was kept, within its time to live.
    pub kept: u64,
    /// Answered with what had expired, because no better came in time.
    pub stale: u64,
    /// Answered with a failure.
    pub failed: u64,
    /// Not asked of the gateway, because too many of their host's, or of all, waited for an answer.
    #[serde(default)]
    pub too_many: u64,
    /// Questions that went to the gateway.
    pub asked: u64,
    /// Of these, to renew an answer in use.
    pub renewed: u64,
}

/// A reply that a host waits for, until this is dropped.
struct Waiting<'a> {
    resolver: &'a Resolver,
    host: IpAddr,
    seat: Seat,
}

impl Resolver {
    /// A resolver that asks through `terminal`, and the task that renews what is in use: run it
    /// for as long as the resolver is to work.
    pub fn new(
        terminal: Terminal,
        settings: &Settings,
    ) -> (Self, impl Future<Output = Infallible> + Send + 'static) {
        let room = usize::try_from(settings.cache.as_u64()).unwrap_or(usize::MAX);
        let resolver = Self(Arc::new(Shared {
            terminal,
            private: Egress::new(settings.allow_private.clone()),
            memory: Mutex::new(Memory {
                cache: Cache::new(room),
                under_way: BTreeMap::new(),
                asking: Room::new(MAX_UNDER_WAY),
                waiting: Room::new(MAX_WAITING),
            }),
            renewals: Notify::new(),
            tally: Tally::default(),
        }));
        (resolver.clone(), resolver.renew())
    }

    /// The reply to `question`, a message of RFC 1035 that came from `host`; `None` if it
    /// deserves none.
    pub async fn reply(&self, host: IpAddr, question: &[u8], over: Over) -> Option<Vec<u8>> {
        let question = match Question::read(question) {
            Ok(question) => question,
            Err(refusal) => return refusal,
        };
        let tally = &self.0.tally;
        count(&tally.questions);
        let (answer, left) = self.answer(host, question.key()).await;
        if !answer.is_good() {
            count(&tally.failed);
        }
        let name: Arc<str> = key_name(question.key()).into();
        for address in answer.addresses() {
            self.0.terminal.names().learn(host, address, &name);
        }
        Some(question.reply(&answer, |ttl| left.of(ttl), over))
    }

    /// What it has done.
    pub fn snapshot(&self) -> ResolverSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let tally = &self.0.tally;
        ResolverSnapshot {
            questions: read(&tally.questions),
            kept: read(&tally.kept),
            stale: read(&tally.stale),
            failed: read(&tally.failed),
            too_many: read(&tally.too_many),
            asked: read(&tally.asked),
            renewed: read(&tally.renewed),
        }
    }

    async fn answer(&self, host: IpAddr, key: &Key) -> (Arc<Answer>, Left) {
        if let Some(answer) = local::answer(key) {
            return (Arc::new(answer), Left::All);
        }
        let tally = &self.0.tally;
        let kept = self.lock().cache.get(key, now());
        let stale = match kept {
            Some(Kept { answer, age, state }) => match state {
                State::Fresh => {
                    count(&tally.kept);
                    self.0.renewals.notify_one();
                    return (answer, Left::After(age));
                }
                State::Unrenewable => {
                    count(&tally.stale);
                    return (answer, Left::Stale);
                }
                State::Expired => Some(answer),
            },
            None => None,
        };
        let patience = match stale {
            Some(_) => CLIENT_PATIENCE,
            None => ANSWER_TIMEOUT,
        };
        let asked = async {
            let mut waiting = self.wait(host)?;
            tokio::select! {
                biased;
                answer = self.asked(host, key) => answer,
                () = waiting.seat.lost() => None,
            }
        };
        let answer = match tokio::time::timeout(patience, asked).await {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                count(&tally.too_many);
                Answer::too_many().into()
            }
            Err(_) => Answer::none().into(),
        };
        match stale {
            Some(stale) if !answer.is_good() => {
                count(&tally.stale);
                (stale, Left::Stale)
            }
            _ => (answer, Left::All),
        }
    }

    /// The answer to `key`; `None` if `host` has too much under way.
    async fn asked(&self, host: IpAddr, key: &Key) -> Option<Arc<Answer>> {
        loop {
            match answered(self.ask(host, key)?).await {
                Asked::Answered(answer) => return Some(answer),
                // That may have been another host's question; this one may have fewer.
                Asked::GivenWay => {}
            }
        }
    }

    /// The answer to come to `key`, which is asked for once at a time; `None` if `host` has too much
    /// under way.
    fn ask(&self, host: IpAddr, key: &Key) -> Option<Answering> {
        let mut memory = self.lock();
        if let Some(answering) = memory.under_way.get(key) {
            return Some(answering.clone());
        }
        let mut seat = memory.asking.enter(host)?;
        let (answered, answering) = watch::channel(None);
        memory.under_way.insert(key.clone(), answering.clone());
        count(&self.0.tally.asked);
        let (resolver, key) = (self.clone(), key.clone());
        // Whoever asked may go away; others wait for the answer as well.
        tokio::spawn(async move {
            let asked = tokio::time::timeout(ANSWER_TIMEOUT, resolver.ask_gateway(&key));
            let asked = tokio::select! {
                biased;
                answer = asked => Asked::Answered(answer.unwrap_or_else(|_| Answer::none()).into()),
                () = seat.lost() => Asked::GivenWay,
            };
            {
                let mut memory = resolver.lock();
                if let Asked::Answered(answer) = &asked {
                    memory.cache.put(&key, answer.clone(), now());
                }
                memory.under_way.remove(&key);
                memory.asking.leave(host, seat.number);
            }
            resolver.0.renewals.notify_one();
            answered.send_replace(Some(asked));
        });
        Some(answering)
    }

    async fn ask_gateway(&self, key: &Key) -> Answer {
        loop {
            match self.0.terminal.ask(&key.question()).await {
                Ok(message) => {
                    return Answer::read(key, &message, &self.0.private).unwrap_or_else(|why| {
                        tracing::debug!(name = %key.name, "the gateway's answer is not used: {why}");
                        Answer::none()
                    });
                }
                // Lost with its session; there will be another.
                Err(FlowError::Stream(error)) => {
                    tracing::debug!(name = %key.name, "question lost: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => {
                    tracing::debug!(name = %key.name, "question not answered: {error}");
                    return Answer::none();
                }
            }
        }
    }

    /// Renews what is in use before it expires, for ever.
    async fn renew(self) -> Infallible {
        loop {
            let next = self.lock().cache.next_renewal();
            let changed = self.0.renewals.notified();
            match next {
                None => changed.await,
                Some(at) => {
                    tokio::select! {
                        () = changed => continue,
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
            }
            let due = self.lock().cache.due(now());
            for key in due {
                if self.ask(RENEWAL, &key).is_some() {
                    count(&self.0.tally.renewed);
                }
            }
        }
    }

    /// A place among those who wait, if there is one.
    fn wait(&self, host: IpAddr) -> Option<Waiting<'_>> {
        let seat = self.lock().waiting.enter(host)?;
        Some(Waiting {
            resolver: self,
            host,
            seat,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let (host, number) = (self.host, self.seat.number);
        self.resolver.lock().waiting.leave(host, number);
    }
}

/// What is left of an answer's time to live.
enum Left {
    /// All.
    All,
    /// What there was, less its age.
    After(Duration),
    /// Nothing, but it is given all the same.
    Stale,
}

impl Left {
    fn of(&self, ttl: Duration) -> Duration {
        match self {
            Self::All => ttl,
            Self::After(age) => ttl.saturating_sub(*age),
            Self::Stale => STALE_TTL,
        }
    }
}

async fn answered(mut answering: Answering) -> Asked {
    match answering.wait_for(Option::is_some).await {
        Ok(asked) => asked.clone(),
        Err(_) => None,
    }
    .unwrap_or_else(|| Asked::Answered(Answer::none().into()))
}

/// The name of `key` as people write it, without the last dot.
fn key_name(key: &Key) -> String {
    let name = key.name.to_string();
    name.trim_end_matches('.').to_owned()
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
