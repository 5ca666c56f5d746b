//! The places of UDP flows: a bounded table that one host cannot fill for the others.
//!
//! UDP does not say when a flow is over, so a scan of ports or a flood with forged sources
//! would fill any table. When there is no place, the host with most flows loses the one
//! that has been idle for longest, found as a second-chance queue finds it (Corbató 1968).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::flow::udp::Activity;

/// A bounded number of places. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    taken: BTreeMap<u64, Taken>,
    /// Flows of each host, those first that were looked at or began longest ago.
    hosts: BTreeMap<u32, VecDeque<u64>>,
    /// Hosts by their number of flows.
    by_size: BTreeSet<(usize, u32)>,
}

#[derive(Debug)]
struct Taken {
    activity: Arc<Activity>,
    /// Its datagrams when it was last looked at.
    seen: u32,
    /// Dropping it is the message.
    _evict: oneshot::Sender<()>,
}

/// A flow's place until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    all: Places,
    number: u64,
    host: u32,
    /// Resolves when the place is given to another.
    pub(super) evicted: oneshot::Receiver<()>,
}

impl Places {
    /// `most` free places.
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Shared {
            most: AtomicUsize::new(most),
            state: Mutex::default(),
        }))
    }

    /// There are `most` from now on; flows that have a place keep it.
    pub(super) fn limit(&self, most: usize) {
        self.0.most.store(most, Ordering::Relaxed);
    }

    /// A place for a flow of `host`, at the cost of another flow if there is none.
    pub(super) fn take(&self, host: u32, activity: Arc<Activity>) -> Place {
        let (evict, evicted) = oneshot::channel();
        let mut state = self.lock();
        if state.taken.len() >= self.0.most.load(Ordering::Relaxed) {
            state.evict();
        }
        let number = state.next;
        state.next += 1;
        let taken = Taken {
            activity,
            seen: 0,
            _evict: evict,
        };
        state.taken.insert(number, taken);
        state.change(host, |flows| flows.push_back(number));
        Place {
            all: self.clone(),
            number,
            host,
            evicted,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends the flow of the host with most that has been idle for longest.
    fn evict(&mut self) {
        let Some(&(size, host)) = self.by_size.last() else {
            return;
        };
        for _ in 0..=size {
            let Some(number) = self.hosts.get_mut(&host).and_then(VecDeque::pop_front) else {
                break;
            };
            let Some(flow) = self.taken.get_mut(&number) else {
                continue;
            };
            let datagrams = flow.activity.datagrams();
            // The first datagram opens a flow; only more of them say that it lives.
            if datagrams != flow.seen && datagrams > 1 {
                flow.seen = datagrams;
                if let Some(flows) = self.hosts.get_mut(&host) {
                    flows.push_back(number);
                }
                continue;
            }
            self.taken.remove(&number);
            break;
        }
        self.resize(size, host);
    }

    fn change(&mut self, host: u32, change: impl FnOnce(&mut VecDeque<u64>)) {
        let flows = self.hosts.entry(host).or_default();
        let before = flows.len();
        change(flows);
        self.resize(before, host);
    }

    /// Enters the number of flows that `host` has now, which was `before`.
    fn resize(&mut self, before: usize, host: u32) {
        self.by_size.remove(&(before, host));
        match self.hosts.get(&host).map_or(0, VecDeque::len) {
            0 => drop(self.hosts.remove(&host)),
            size => drop(self.by_size.insert((size, host))),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        if state.taken.remove(&self.number).is_some() {
            let number = self.number;
            state.change(self.host, |flows| flows.retain(|other| *other != number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(place: &mut Place) -> bool {
        place.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_flood_of_one_host_costs_only_its_own_idle_flows() {
        let places = Places::new(100);
        let mut others: Vec<_> = (0..10).map(|_| places.take(2, Arc::default())).collect();
        let call = Arc::<Activity>::default();
        let mut of_call = places.take(1, call.clone());
        let mut flood = VecDeque::new();
        for _ in 0..10_000 {
            call.note();
            flood.push_back(places.take(1, Arc::default()));
            if flood.len() > 200 {
                assert!(is_evicted(&mut flood[0]));
                flood.pop_front();
            }
        }
        assert!(!is_evicted(&mut of_call));
        assert!(!others.iter_mut().any(is_evicted));
        drop((flood, of_call, others));
        let state = places.lock();
        assert!(state.taken.is_empty() && state.hosts.is_empty() && state.by_size.is_empty());
    }
}
