//! The table of open sessions: one for each terminal, the newest.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use noq::VarInt;

use crate::identity::Fingerprint;
use crate::session::{REPLACED, remote_address};

/// Open sessions by the terminal's key.
#[derive(Default)]
pub struct Sessions {
    open: Mutex<BTreeMap<Fingerprint, noq::Connection>>,
    /// Where the session before the open one came from.
    replaced: Mutex<BTreeMap<Fingerprint, Option<SocketAddr>>>,
    /// UDP datagrams that belonged to sessions which have ended.
    datagrams_before: AtomicU64,
}

impl Sessions {
    /// Enters a session into the table, `false` if `most` are open. A terminal's new
    /// session replaces its old one, which it has lost or it would not open another.
    pub fn admit(&self, key: Fingerprint, connection: &noq::Connection, most: u64) -> bool {
        let mut open = self.lock();
        if !open.contains_key(&key) && open.len() as u64 >= most {
            return false;
        }
        if let Some(old) = open.insert(key, connection.clone()) {
            let (from, before) = (remote_address(connection), remote_address(&old));
            tracing::info!(%key, ?before, ?from, "replaced by a newer session with the same key");
            let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
            // A terminal that has moved or restarted does not come back to where it was.
            if replaced.insert(key, before) == Some(from) && from != before {
                tracing::warn!(
                    %key, ?from, ?before,
                    "two machines use this terminal's key and replace each other's sessions; pair one of them anew, with a key of its own (remove its terminal.key, then `bentpipe terminal join`)"
                );
            }
            old.close(
                VarInt::from_u32(REPLACED),
                match from {
                    Some(from) => {
                        format!("replaced by a newer session with the same key, from {from}")
                    }
                    None => "replaced by a newer session with the same key".to_owned(),
                }
                .as_bytes(),
            );
        }
        true
    }

    /// Takes a session that has ended out of the table.
    pub fn ended(&self, key: &Fingerprint, connection: &noq::Connection) {
        self.datagrams_before
            .fetch_add(connection.stats().udp_rx.datagrams, Ordering::Relaxed);
        let mut open = self.lock();
        if open
            .get(key)
            .is_some_and(|open| open.stable_id() == connection.stable_id())
        {
            open.remove(key);
        }
    }

    /// UDP datagrams that belonged to a session, so far.
    pub fn datagrams(&self) -> u64 {
        let open: u64 = self
            .lock()
            .values()
            .map(|connection| connection.stats().udp_rx.datagrams)
            .sum();
        open + self.datagrams_before.load(Ordering::Relaxed)
    }

    /// The open session of the terminal with `key`.
    pub fn get(&self, key: &Fingerprint) -> Option<noq::Connection> {
        self.lock().get(key).cloned()
    }

    /// All open sessions.
    pub fn all(&self) -> Vec<(Fingerprint, noq::Connection)> {
        let open = self.lock();
        open.iter()
            .map(|(key, open)| (*key, open.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, noq::Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
