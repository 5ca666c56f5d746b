//! The hosts behind a terminal, numbered for shares: the gateway learns which flows are of
//! one host, not which host that is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Hosts that have flows, at most; more share number 0.
const MOST: usize = 4096;

/// The hosts that have flows. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Hosts(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Number and flows of each.
    hosts: BTreeMap<IpAddr, (u32, usize)>,
    numbers: BTreeSet<u32>,
}

/// A flow of a host; until it is dropped the number is the host's.
#[derive(Debug)]
pub struct OfHost {
    hosts: Hosts,
    host: IpAddr,
    number: u32,
}

impl Hosts {
    /// A flow of `host` begins.
    pub fn enter(&self, host: IpAddr) -> OfHost {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let known = state.hosts.len();
        let number = match state.hosts.get_mut(&host) {
            Some((number, flows)) => {
                *flows += 1;
                *number
            }
            None if known >= MOST => 0,
            None => {
                let free = (1..).find(|number| !state.numbers.contains(number));
                let number = free.unwrap_or(0);
                state.numbers.insert(number);
                state.hosts.insert(host, (number, 1));
                number
            }
        };
        OfHost {
            hosts: self.clone(),
            host,
            number,
        }
    }
}

impl OfHost {
    /// The number of the host that `flow` is of; 0 if it is of none.
    pub fn number_of(flow: Option<&Self>) -> u32 {
        flow.map_or(0, Self::number)
    }

    /// The host.
    pub fn address(&self) -> IpAddr {
        self.host
    }

    /// The host's number, from 1 on; 0 for a host too many.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for OfHost {
    fn drop(&mut self) {
        let mut state = self.hosts.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if let Some((number, flows)) = state.hosts.get_mut(&self.host)
            && *number == self.number
        {
            *flows -= 1;
            if *flows == 0 {
                state.hosts.remove(&self.host);
                state.numbers.remove(&self.number);
            }
        }
    }
}
