//! The table of open sessions: one for each terminal, the newest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use h3::error::Code;

use crate::identity::Fingerprint;
use crate::session::close;

/// Open sessions by the terminal's key.
#[derive(Default)]
pub struct Sessions {
    open: Mutex<BTreeMap<Fingerprint, noq::Connection>>,
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
            close(
                &old,
                Code::H3_NO_ERROR,
                "replaced by a newer session of the same terminal",
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
