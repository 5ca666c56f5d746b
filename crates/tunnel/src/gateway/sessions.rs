//! The table of open sessions: each terminal's, the newest last.
//!
//! A terminal's new session does not end its older ones: it may have two ways to the gateway, or
//! a command may run beside it. Of sessions with one key, some may be lost to their terminal, as
//! after a crash: those are ended when they do not answer ([`Sessions::judge`]). Some may be of
//! another machine with a copy of the key: both are told ([`Sessions::notices`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use noq::VarInt;
use tokio::sync::watch;

use crate::identity::Fingerprint;
use crate::session::{REPLACED, remote_address};
use crate::wire::notices::{Ask, Notices};

/// Sessions that one terminal may have: one more ends the oldest.
const MOST_OF_ONE: usize = 8;
/// An older session that does not answer for so long is lost to its terminal.
const LOST: Duration = Duration::from_secs(10);

/// Open sessions by the terminal's key.
#[derive(Default)]
pub struct Sessions {
    open: Mutex<BTreeMap<Fingerprint, Vec<Open>>>,
    /// Grows whenever notices may have changed.
    revision: watch::Sender<u64>,
    /// The gateway's next key.
    next_key: Mutex<Option<Fingerprint>>,
    /// UDP datagrams that belonged to sessions which have ended.
    datagrams_before: AtomicU64,
}

struct Open {
    connection: noq::Connection,
    /// The terminal's process, once that has said so.
    instance: Option<u64>,
    /// Another machine's session with the same key was open and answered at the same time.
    beside_others: bool,
}

impl Open {
    fn is(&self, connection: &noq::Connection) -> bool {
        self.connection.stable_id() == connection.stable_id()
    }

    fn replace(&self, by: &noq::Connection) {
        let why = match remote_address(by) {
            Some(from) => format!("replaced by a newer session with the same key, from {from}"),
            None => "replaced by a newer session with the same key".to_owned(),
        };
        self.connection
            .close(VarInt::from_u32(REPLACED), why.as_bytes());
    }
}

impl Sessions {
    /// Enters a session into the table, `false` if `most` are open. Where there is no room for
    /// another, or the terminal has too many, its oldest one gives way.
    pub fn admit(&self, key: Fingerprint, connection: &noq::Connection, most: u64) -> bool {
        let mut open = self.lock();
        let full = open.values().map(Vec::len).sum::<usize>() as u64 >= most;
        let own = open.entry(key).or_default();
        if full && own.is_empty() {
            open.remove(&key);
            return false;
        }
        if full || own.len() >= MOST_OF_ONE {
            let oldest = own.remove(0);
            tracing::info!(%key, "the oldest of the sessions with one key gives way to a newer one");
            oldest.replace(connection);
        }
        own.push(Open {
            connection: connection.clone(),
            instance: None,
            beside_others: false,
        });
        true
    }

    /// Asks the sessions with `key` that are older than `newer` for an answer. Those that give none
    /// are ended; those that are another machine's are told in the log. Returns after that.
    pub async fn judge(&self, key: &Fingerprint, newer: &noq::Connection) {
        let older: Vec<_> = {
            let open = self.lock();
            let own = open.get(key).into_iter().flatten();
            let older = own.take_while(|open| !open.is(newer));
            older.map(|open| open.connection.clone()).collect()
        };
        if older.is_empty() {
            return;
        }
        let heard: Vec<_> = older.iter().map(datagrams).collect();
        for connection in &older {
            if let Some(path) = connection.path(noq::PathId::ZERO) {
                let _ = path.ping();
            }
        }
        tokio::time::sleep(LOST).await;
        let mut open = self.lock();
        let own = open.get_mut(key).map(Vec::as_mut_slice).unwrap_or_default();
        let newer_instance = own
            .iter()
            .find(|open| open.is(newer))
            .map(|open| open.instance);
        let Some(newer_instance) = newer_instance else {
            return;
        };
        let mut others = Vec::new();
        for (connection, heard) in older.iter().zip(heard) {
            let Some(old) = own.iter_mut().find(|open| open.is(connection)) else {
                continue;
            };
            let at = remote_address(connection);
            match (old.instance, newer_instance) {
                // One process knows itself which of its ways is out.
                (Some(old), Some(new)) if old == new => {}
                _ if datagrams(connection) == heard => {
                    tracing::info!(%key, ?at, "this session does not answer, and there is a newer one with the same key: it is ended");
                    old.replace(newer);
                }
                (Some(_), Some(_)) => {
                    old.beside_others = true;
                    others.extend(at);
                }
                _ => {}
            }
        }
        if others.is_empty() {
            return;
        }
        if let Some(new) = own.iter_mut().find(|open| open.is(newer)) {
            new.beside_others = true;
        }
        drop(open);
        let from = remote_address(newer);
        tracing::warn!(
            %key, ?from, ?others,
            "several machines use this terminal's key at the same time; pair all but one of them anew, each with a key of its own (remove its terminal.key, then `bentpipe terminal join`)"
        );
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// The next notices for the terminal of a session: as soon as they are of another revision
    /// than it has seen, or when it wants them.
    pub async fn notices(
        &self,
        key: &Fingerprint,
        connection: &noq::Connection,
        ask: &Ask,
    ) -> Notices {
        if let Some(instance) = ask.instance {
            self.identify(key, connection, instance);
        }
        let mut revision = self.revision.subscribe();
        let news = revision.wait_for(|revision| Some(*revision) != ask.seen);
        match ask.after {
            Some(after) => tokio::time::sleep(after).await,
            // The sender is ours: it is there.
            None => drop(news.await),
        }
        let revision = *self.revision.borrow();
        Notices {
            revision,
            next_key: *self.next_key.lock().unwrap_or_else(PoisonError::into_inner),
            same_key: self.others(key, connection),
        }
    }

    /// Notes of which process of a terminal a session is.
    fn identify(&self, key: &Fingerprint, connection: &noq::Connection, instance: u64) {
        let mut open = self.lock();
        let own = open.get_mut(key).into_iter().flatten();
        for open in own.filter(|open| open.is(connection)) {
            open.instance = Some(instance);
        }
    }

    /// Where live sessions of other machines with the same key come from.
    pub fn others(&self, key: &Fingerprint, connection: &noq::Connection) -> Vec<SocketAddr> {
        let open = self.lock();
        let own = open.get(key).map(Vec::as_slice).unwrap_or_default();
        let Some(this) = own.iter().find(|open| open.is(connection)) else {
            return Vec::new();
        };
        let others = own.iter().filter(|other| {
            this.beside_others && other.beside_others && other.instance != this.instance
        });
        others
            .filter_map(|other| remote_address(&other.connection))
            .collect()
    }

    /// All terminals are to be told that the gateway's next key is `next`.
    pub fn announce(&self, next: Option<Fingerprint>) {
        let mut key = self.next_key.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *key, next) != next {
            drop(key);
            self.revision.send_modify(|revision| *revision += 1);
        }
    }

    /// Takes a session that has ended out of the table.
    pub fn ended(&self, key: &Fingerprint, connection: &noq::Connection) {
        self.datagrams_before
            .fetch_add(datagrams(connection), Ordering::Relaxed);
        let mut open = self.lock();
        let Some(own) = open.get_mut(key) else {
            return;
        };
        own.retain(|open| !open.is(connection));
        if own.is_empty() {
            open.remove(key);
        } else {
            drop(open);
            self.revision.send_modify(|revision| *revision += 1);
        }
    }

    /// UDP datagrams that belonged to a session, so far.
    pub fn datagrams(&self) -> u64 {
        let open = self.lock();
        let open: u64 = (open.values().flatten())
            .map(|open| datagrams(&open.connection))
            .sum();
        open + self.datagrams_before.load(Ordering::Relaxed)
    }

    /// The newest session of the terminal with `key`.
    pub fn get(&self, key: &Fingerprint) -> Option<noq::Connection> {
        let open = self.lock();
        Some(open.get(key)?.last()?.connection.clone())
    }

    /// All open sessions.
    pub fn all(&self) -> Vec<(Fingerprint, noq::Connection)> {
        let open = self.lock();
        let all = open
            .iter()
            .flat_map(|(key, own)| own.iter().map(|open| (*key, open)));
        all.map(|(key, open)| (key, open.connection.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, Vec<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn datagrams(connection: &noq::Connection) -> u64 {
    connection.stats().udp_rx.datagrams
}
