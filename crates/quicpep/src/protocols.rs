//! What next hops have chosen of the application protocols that they were offered, for the
//! next client that asks for the same server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hello::ClientHello;
use crate::routes::Route;

/// Servers that are remembered; beyond, it begins anew.
const MOST: usize = 4096;

/// A next hop, and the server name that is asked for there.
type Server = (Route, Option<String>);

/// The protocols of next hops.
#[derive(Debug, Default)]
pub(crate) struct Protocols(Mutex<BTreeMap<Server, Vec<u8>>>);

impl Protocols {
    /// What the server will choose of what a client offers: what it has chosen before, or
    /// else what the client prefers.
    pub(crate) fn expected(&self, route: &Route, hello: &ClientHello) -> Option<Vec<u8>> {
        let known = self.lock();
        (known.get(&(route.clone(), hello.server_name.clone())))
            .filter(|known| hello.protocols.contains(known))
            .or(hello.protocols.first())
            .cloned()
    }

    /// The server has chosen `protocol`.
    pub(crate) fn learn(&self, route: &Route, hello: &ClientHello, protocol: Vec<u8>) {
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert((route.clone(), hello.server_name.clone()), protocol);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Server, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
