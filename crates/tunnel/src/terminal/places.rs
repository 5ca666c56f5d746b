//! The places of flows: a bounded table that one host cannot fill for the others.
//!
//! A host's connections that find no [`Room`] are refused. UDP does not say when a flow is over, so a
//! scan of ports or a flood with forged sources would fill any table: when there is no place, the
//! host with most UDP flows loses the one that has been idle for longest, found as a second-chance
//! queue finds it (Corbató 1968).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::room::Room;
use crate::flow::udp::Activity;
use crate::transport::{MAX_FLOWS, MAX_UDP_FLOWS};
use crate::wire::dns::MAX_UNDER_WAY;

/// Of all flows of a session, those that are left to questions of DNS.
const MOST: usize = MAX_FLOWS as usize - MAX_UNDER_WAY;

/// A bounded number of places. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Mutex<State>>);

/// Those of one host share what it may have of each; the host by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Tcp(u32),
    Udp(u32),
}

#[derive(Debug)]
struct State {
    room: Room<Holder>,
    most_udp: usize,
    next: u64,
    /// Flows of UDP.
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

/// A connection's place until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    all: Places,
    host: u32,
}

/// Why a connection has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoPlace {
    /// Connections that its host has open.
    pub(super) of_host: usize,
    /// Flows that are open, of all hosts.
    pub(super) of_all: usize,
}

/// A UDP flow's place until it is dropped.
#[derive(Debug)]
pub(super) struct UdpPlace {
    all: Places,
    number: u64,
    host: u32,
    /// Resolves when the place is given to another.
    pub(super) evicted: oneshot::Receiver<()>,
}

impl Places {
    /// As many as a session has, all free.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            room: Room::new(MOST),
            most_udp: MAX_UDP_FLOWS,
            next: 0,
            taken: BTreeMap::new(),
            hosts: BTreeMap::new(),
            by_size: BTreeSet::new(),
        })))
    }

    /// There are no more than `most` from now on, three quarters of them for UDP; flows that have a
    /// place keep it.
    pub(super) fn limit(&self, most: usize) {
        let mut state = self.lock();
        state.room.limit(most.min(MOST));
        state.most_udp = (most / 4 * 3).min(MAX_UDP_FLOWS);
    }

    /// A place for a connection of `host`.
    pub(super) fn take(&self, host: u32) -> Result<Place, NoPlace> {
        let room = &mut self.lock().room;
        match room.try_enter(Holder::Tcp(host)) {
            true => Ok(Place {
                all: self.clone(),
                host,
            }),
            false => Err(NoPlace {
                of_host: room.held(Holder::Tcp(host)),
                of_all: room.taken(),
            }),
        }
    }

    /// A place for a UDP flow of `host`, at the cost of another if there is none.
    pub(super) fn take_udp(&self, host: u32, activity: Arc<Activity>) -> UdpPlace {
        let (evict, evicted) = oneshot::channel();
        let mut state = self.lock();
        let is_full = state.taken.len() >= state.most_udp;
        // Where another host has more, that one has too many.
        if is_full || !state.room.is_there_for(Holder::Udp(host)) {
            state.evict();
        }
        state.room.enter(Holder::Udp(host));
        let number = state.next;
        state.next += 1;
        let taken = Taken {
            activity,
            seen: 0,
            _evict: evict,
        };
        state.taken.insert(number, taken);
        state.change(host, |flows| flows.push_back(number));
        UdpPlace {
            all: self.clone(),
            number,
            host,
            evicted,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            self.room.leave(Holder::Udp(host));
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
        self.all.lock().room.leave(Holder::Tcp(self.host));
    }
}

impl Drop for UdpPlace {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        if state.taken.remove(&self.number).is_some() {
            let number = self.number;
            state.room.leave(Holder::Udp(self.host));
            state.change(self.host, |flows| flows.retain(|other| *other != number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(place: &mut UdpPlace) -> bool {
        place.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_flood_of_one_host_costs_only_its_own_idle_flows() {
        let places = Places::new();
        places.limit(133);
        let mut others: Vec<_> = (0..10)
            .map(|_| places.take_udp(2, Arc::default()))
            .collect();
        let call = Arc::<Activity>::default();
        let mut of_call = places.take_udp(1, call.clone());
        let mut flood = VecDeque::new();
        for _ in 0..10_000 {
            call.note();
            flood.push_back(places.take_udp(1, Arc::default()));
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
        assert_eq!(state.room.taken(), 0);
    }

    fn all_of(places: &Places, host: u32) -> Vec<Place> {
        std::iter::from_fn(|| places.take(host).ok()).collect()
    }

    #[test]
    fn connections_and_datagrams_of_one_host_leave_room_for_both_of_others() {
        let places = Places::new();
        let connections = all_of(&places, 1);
        assert_eq!(connections.len(), MOST / 4 * 3);
        let mut flood: Vec<_> = (0..2 * MOST)
            .map(|_| places.take_udp(1, Arc::default()))
            .collect();
        let lost = flood
            .iter_mut()
            .filter_map(|place| is_evicted(place).then_some(()))
            .count();
        assert_eq!(flood.len() - lost, MOST / 16 * 3);
        assert!(places.take(1).is_err());
        let mut other = places.take_udp(2, Arc::default());
        let others = all_of(&places, 2);
        assert!(others.len() > 700, "{}", others.len());
        flood.extend((0..2 * MOST).map(|_| places.take_udp(1, Arc::default())));
        assert!(!is_evicted(&mut other));
        drop((connections, others, flood, other));
        assert_eq!(places.lock().room.taken(), 0);
    }

    #[test]
    fn a_machine_with_few_descriptors_has_few_places() {
        let places = Places::new();
        places.limit(100);
        assert_eq!(all_of(&places, 1).len(), 75);
        let connections = (1..1000).flat_map(|host| all_of(&places, host));
        assert_eq!(connections.collect::<Vec<_>>().len(), 100);
    }
}
