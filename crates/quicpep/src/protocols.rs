//! What next hops have chosen of the application protocols that they were offered, for the
//! next client that asks for the same server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::hello::ClientHello;
use crate::routes::Route;
use bentpipe_quic::clock::now;

/// Servers that are remembered; beyond, it begins anew.
const MOST: usize = 4096;
/// How long a server that has answered is taken for one that answers.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A next hop, and the server name that is asked for there.
type Server = (Route, Option<String>);

/// The protocols of next hops.
#[derive(Debug, Default)]
pub(crate) struct Protocols(Mutex<BTreeMap<Server, Answer>>);

/// What a server has chosen last, and when.
#[derive(Debug)]
struct Answer {
    protocol: Vec<u8>,
    at: Instant,
}

impl Protocols {
    /// What the server will choose of what a client offers: what it has chosen before, or
    /// else what the client prefers.
    pub(crate) fn expected(&self, route: &Route, hello: &ClientHello) -> Option<Vec<u8>> {
        self.answered(route, hello, Duration::MAX)
            .or_else(|| hello.protocols.first().cloned())
    }

    /// What the server will choose, if it has answered lately and not failed since.
    pub(crate) fn known(&self, route: &Route, hello: &ClientHello) -> Option<Vec<u8>> {
        self.answered(route, hello, LIFETIME)
    }

    fn answered(&self, route: &Route, hello: &ClientHello, within: Duration) -> Option<Vec<u8>> {
        let known = self.lock();
        (known.get(&(route.clone(), hello.server_name.clone())))
            .filter(|answer| now() - answer.at <= within)
            .filter(|answer| hello.protocols.contains(&answer.protocol))
            .map(|answer| answer.protocol.clone())
    }

    /// The server has chosen `protocol`.
    pub(crate) fn learn(&self, route: &Route, hello: &ClientHello, protocol: Vec<u8>) {
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        let answer = Answer {
            protocol,
            at: now(),
        };
        known.insert((route.clone(), hello.server_name.clone()), answer);
    }

    /// The server could not be reached, or not with what was expected of it.
    pub(crate) fn forget(&self, route: &Route, hello: &ClientHello) {
        (self.lock()).remove(&(route.clone(), hello.server_name.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Server, Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
