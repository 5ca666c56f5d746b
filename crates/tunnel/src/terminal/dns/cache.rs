//! Answers that are kept: for their time to live (RFC 1035, RFC 2308), and beyond it for when no
//! better can be had (RFC 8767). Memory is bounded; what was used longest ago goes first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

use super::answer::Answer;
use super::key::Key;

/// An answer is kept for so long after it has expired (RFC 8767, section 5).
const STALE: Duration = Duration::from_secs(24 * 60 * 60);
/// After a failure to renew it, an expired answer is given at once for so long (RFC 8767, section 5).
const FAILURE_RECHECK: Duration = Duration::from_secs(30);
/// The last part of its time to live in which an answer that is in use is renewed.
const RENEWAL_PART: u32 = 10;
/// And the least of it: a satellite there and back, and the name servers' time.
const RENEWAL_LEAST: Duration = Duration::from_secs(2);

/// Kept answers.
#[derive(Debug)]
pub struct Cache {
    entries: LruCache<Key, Entry>,
    /// When which is to be renewed if it is in use.
    renewals: BTreeSet<(Instant, Key)>,
    held: usize,
    room: usize,
}

#[derive(Debug)]
struct Entry {
    answer: Arc<Answer>,
    stored: Instant,
    expires: Instant,
    renewal: Instant,
    /// Asked for since it was stored.
    used: bool,
    /// Expired and could not be renewed; given as it is until then.
    failed_until: Option<Instant>,
}

/// A kept answer.
#[derive(Debug, Clone)]
pub struct Kept {
    /// What it is.
    pub answer: Arc<Answer>,
    /// Since it was stored.
    pub age: Duration,
    /// How far it is to be believed.
    pub state: State,
}

/// How far a kept answer is to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Within its time to live.
    Fresh,
    /// Expired: to be asked for again.
    Expired,
    /// Expired, and has just been asked for in vain.
    Unrenewable,
}

impl Cache {
    /// A cache that takes about `room` bytes.
    pub fn new(room: usize) -> Self {
        Self {
            entries: LruCache::unbounded(),
            renewals: BTreeSet::new(),
            held: 0,
            room,
        }
    }

    /// What is kept for `key`.
    pub fn get(&mut self, key: &Key, now: Instant) -> Option<Kept> {
        let entry = self.entries.get_mut(key)?;
        entry.used = true;
        let state = if now < entry.expires {
            State::Fresh
        } else if !entry.answer.is_good() || now >= entry.expires + STALE {
            return None;
        } else if entry.failed_until.is_some_and(|until| now < until) {
            State::Unrenewable
        } else {
            State::Expired
        };
        Some(Kept {
            answer: entry.answer.clone(),
            age: now - entry.stored,
            state,
        })
    }

    /// Keeps `answer` for `key`. One that is no answer does not replace one that is.
    pub fn put(&mut self, key: &Key, answer: Arc<Answer>, now: Instant) {
        if !answer.is_good()
            && let Some(entry) = self.entries.peek_mut(key)
            && entry.answer.is_good()
        {
            entry.failed_until = Some(now + FAILURE_RECHECK);
            return;
        }
        self.remove(key);
        let lifetime = answer.lifetime();
        if lifetime.is_zero() {
            return;
        }
        let ahead = (lifetime / RENEWAL_PART).max(RENEWAL_LEAST);
        let renewal = now + lifetime - ahead.min(lifetime / 2);
        self.renewals.insert((renewal, key.clone()));
        self.held += size(key, &answer);
        let entry = Entry {
            stored: now,
            expires: now + lifetime,
            renewal,
            used: false,
            failed_until: None,
            answer,
        };
        self.entries.put(key.clone(), entry);
        while self.held > self.room
            && let Some((oldest, _)) = self.entries.peek_lru()
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    /// What is to be renewed by `now`: what expires soon and has been asked for since it was stored.
    pub fn due(&mut self, now: Instant) -> Vec<Key> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.renewals.first()
            && *at <= now
            && let Some((_, key)) = self.renewals.pop_first()
        {
            if self.entries.peek(&key).is_some_and(|entry| entry.used) {
                due.push(key);
            }
        }
        due
    }

    /// When something may be to be renewed next.
    pub fn next_renewal(&self) -> Option<Instant> {
        self.renewals.first().map(|(at, _)| *at)
    }

    fn remove(&mut self, key: &Key) {
        if let Some((key, entry)) = self.entries.pop_entry(key) {
            self.held -= size(&key, &entry.answer);
            self.renewals.remove(&(entry.renewal, key));
        }
    }
}

/// What an entry takes, about: its key is there twice.
fn size(key: &Key, answer: &Answer) -> usize {
    2 * (size_of::<Key>() + key.name.len()) + size_of::<Entry>() + answer.size()
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
    use hickory_proto::rr::rdata::SOA;
    use hickory_proto::rr::{LowerName, Name, RData, Record, RecordType};

    use super::*;

    fn key(name: &str) -> Key {
        Key {
            name: LowerName::new(&name.parse().unwrap()),
            record_type: RecordType::A,
            dnssec_ok: false,
            checking_disabled: false,
        }
    }

    fn answer(name: &str, ttl: u32) -> Arc<Answer> {
        let name: Name = name.parse().unwrap();
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(Query::query(name.clone(), RecordType::A));
        let address = RData::A(std::net::Ipv4Addr::new(93, 184, 216, 34).into());
        message.add_answer(Record::from_rdata(name, ttl, address));
        Arc::new(Answer::of(message))
    }

    fn nothing(ttl: u32, minimum: u32) -> Arc<Answer> {
        let mut message = Message::response(0, OpCode::Query);
        message.metadata.response_code = ResponseCode::NXDomain;
        let zone = SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, minimum);
        message.add_authority(Record::from_rdata(Name::root(), ttl, RData::SOA(zone)));
        Arc::new(Answer::of(message))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the beginning of the test's time"
    )]
    fn begin() -> Instant {
        Instant::now()
    }

    fn state(cache: &mut Cache, name: &str, now: Instant) -> Option<State> {
        cache.get(&key(name), now).map(|kept| kept.state)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_is_fresh_for_its_time_to_live_then_stale_for_a_day() {
        let (mut cache, t) = (Cache::new(1 << 20), begin());
        cache.put(&key("a."), answer("a.", 60), t);
        assert_eq!(state(&mut cache, "a.", t + 59 * SECOND), Some(State::Fresh));
        assert_eq!(
            state(&mut cache, "a.", t + 60 * SECOND),
            Some(State::Expired)
        );
        // In vain: not asked for again for half a minute.
        cache.put(&key("a."), Arc::new(Answer::none()), t + 61 * SECOND);
        assert_eq!(
            state(&mut cache, "a.", t + 90 * SECOND),
            Some(State::Unrenewable)
        );
        assert_eq!(
            state(&mut cache, "a.", t + 91 * SECOND),
            Some(State::Expired)
        );
        assert_eq!(state(&mut cache, "a.", t + 60 * SECOND + STALE), None);
    }

    #[test]
    fn that_there_is_nothing_holds_as_long_as_the_zone_says() {
        let (mut cache, t) = (Cache::new(1 << 20), begin());
        for (ttl, minimum, holds) in [(60, 10, 10), (10, 60, 10), (1 << 30, 1 << 30, 3600)] {
            cache.put(&key("a."), nothing(ttl, minimum), t);
            let last = t + (holds - 1) * SECOND;
            assert_eq!(state(&mut cache, "a.", last), Some(State::Fresh));
            assert_eq!(state(&mut cache, "a.", last + SECOND), Some(State::Expired));
        }
    }

    #[test]
    fn what_holds_for_once_is_not_kept() {
        let (mut cache, t) = (Cache::new(1 << 20), begin());
        cache.put(&key("a."), answer("a.", 0), t);
        cache.put(&key("b."), Arc::new(Answer::none()), t);
        assert_eq!(state(&mut cache, "a.", t), None);
        assert_eq!(state(&mut cache, "b.", t), None);
    }

    #[test]
    fn what_is_in_use_is_renewed_before_it_expires_and_nothing_else() {
        let (mut cache, t) = (Cache::new(1 << 20), begin());
        cache.put(&key("used."), answer("used.", 60), t);
        cache.put(&key("unused."), answer("unused.", 60), t);
        state(&mut cache, "used.", t + SECOND);
        assert_eq!(cache.due(t + 53 * SECOND), []);
        assert_eq!(cache.next_renewal(), Some(t + 54 * SECOND));
        assert_eq!(cache.due(t + 54 * SECOND), [key("used.")]);
        assert_eq!(cache.next_renewal(), None);
    }

    #[test]
    fn memory_is_bounded_and_what_was_used_last_stays() {
        let (mut cache, t) = (Cache::new(100_000), begin());
        for number in 0..10_000 {
            let name = format!("host-{number}.example.");
            cache.put(&key(&name), answer(&name, 600), t);
            assert!(state(&mut cache, "host-0.example.", t).is_some());
        }
        assert!(cache.held <= 100_000);
        assert!(cache.entries.len() > 20, "{}", cache.entries.len());
        assert_eq!(cache.renewals.len(), cache.entries.len());
        assert!(state(&mut cache, "host-9999.example.", t).is_some());
        assert!(state(&mut cache, "host-1.example.", t).is_none());
    }
}
