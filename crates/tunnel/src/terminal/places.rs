//! The places of flows: a bounded table that no number of hosts can fill for another.
//!
//! A host's connection that finds no place in its [`Room`] is refused, or takes the newest of the host with most.
//! UDP does not say when a flow is over, so a scan of ports or a flood with forged sources would fill any table: when
//! there is no place, the host with most UDP flows loses the one that has been idle for longest, found as a
//! second-chance queue finds it (Corbató 1968). Connections and UDP flows leave each other a part.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::room::{Room, Seat};
use crate::flow::FlowError;
use crate::flow::udp::Activity;
use crate::transport::{MAX_FLOWS, MAX_UDP_FLOWS};
use crate::wire::dns::MAX_UNDER_WAY;

/// Of all flows of a session, those that are left to questions of DNS.
const MOST: usize = MAX_FLOWS as usize - MAX_UNDER_WAY;

/// A bounded number of places. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Of both together.
    most: usize,
    /// By the host's number.
    tcp: Room<u32>,
    udp: Room<u32>,
    /// Flows of UDP by their place's number.
    flows: BTreeMap<u64, Flow>,
    /// Those of each host, those first that were looked at or began longest ago.
    hosts: BTreeMap<u32, VecDeque<u64>>,
}

#[derive(Debug)]
struct Flow {
    activity: Arc<Activity>,
    /// Its datagrams when it was last looked at.
    seen: u32,
}

/// A connection's place until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    all: Places,
    host: u32,
    seat: Seat,
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
    host: u32,
    seat: Seat,
}

impl Places {
    /// As many as a session has, all free.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            most: MOST,
            tcp: Room::new(MOST),
            udp: Room::new(MOST),
            flows: BTreeMap::new(),
            hosts: BTreeMap::new(),
        })))
    }

    /// There are no more than `most` from now on; flows that have a place keep it.
    pub(super) fn limit(&self, most: usize) {
        self.lock().most = most.min(MOST);
    }

    /// A place for a connection of `host`, at the cost of a host with more if there is none.
    pub(super) fn take(&self, host: u32) -> Result<Place, NoPlace> {
        let mut state = self.lock();
        let state = &mut *state;
        let left = state.most.saturating_sub(state.udp.taken());
        let most = left.min(most_tcp(state.most));
        state.tcp.limit(most, left - most);
        match state.tcp.enter(host) {
            Some(seat) => Ok(Place {
                all: self.clone(),
                host,
                seat,
            }),
            None => Err(NoPlace {
                of_host: state.tcp.held(host),
                of_all: state.tcp.taken() + state.udp.taken(),
            }),
        }
    }

    /// A place for a UDP flow of `host`, at the cost of another if there is none.
    pub(super) fn take_udp(&self, host: u32, activity: Arc<Activity>) -> UdpPlace {
        let mut state = self.lock();
        let left = state.most.saturating_sub(state.tcp.taken());
        let most = left.min(most_udp(state.most));
        state.udp.limit(most, left - most);
        if !state.udp.is_there_for(host) {
            let own = (state.udp.held(host) > 0).then_some(host);
            let beside = state.udp.largest_beside(host);
            if let Some(host) = beside.or(own).or_else(|| state.udp.largest()) {
                state.end_idle(host);
            }
        }
        let seat = state.udp.take(host);
        let flow = Flow { activity, seen: 0 };
        state.flows.insert(seat.number, flow);
        state.hosts.entry(host).or_default().push_back(seat.number);
        UdpPlace {
            all: self.clone(),
            host,
            seat,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of `most` places those that connections may have: the rest is left to UDP.
fn most_tcp(most: usize) -> usize {
    most - most / 8
}

/// And those that flows of UDP may have.
fn most_udp(most: usize) -> usize {
    (most / 4 * 3).min(MAX_UDP_FLOWS)
}

impl Place {
    /// Resolves when the place is given to another.
    pub(super) async fn lost(&mut self) {
        self.seat.lost().await;
    }

    /// What `done` comes to, unless the place is given to another before.
    pub(super) async fn keeps<T>(
        &mut self,
        done: impl Future<Output = Result<T, FlowError>>,
    ) -> Result<T, FlowError> {
        tokio::select! {
            biased;
            done = done => done,
            () = self.lost() => Err(FlowError::GivenWay),
        }
    }
}

impl UdpPlace {
    /// Resolves when the place is given to another.
    pub(super) async fn lost(&mut self) {
        self.seat.lost().await;
    }
}

impl State {
    /// Ends the UDP flow of `host` that has been idle for longest, if it has any.
    fn end_idle(&mut self, host: u32) {
        for _ in 0..=self.udp.held(host) {
            let Some(number) = self.hosts.get_mut(&host).and_then(VecDeque::pop_front) else {
                return;
            };
            let Some(flow) = self.flows.get_mut(&number) else {
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
            self.end(host, number);
            return;
        }
    }

    /// The UDP flow of `host` with this `number`, which is not looked at any more, has its place no longer.
    fn end(&mut self, host: u32, number: u64) {
        self.udp.leave(host, number);
        self.flows.remove(&number);
        if self.hosts.get(&host).is_some_and(VecDeque::is_empty) {
            self.hosts.remove(&host);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.lock().tcp.leave(self.host, self.seat.number);
    }
}

impl Drop for UdpPlace {
    fn drop(&mut self) {
        let (host, number) = (self.host, self.seat.number);
        let mut state = self.all.lock();
        if state.flows.contains_key(&number) {
            if let Some(flows) = state.hosts.get_mut(&host) {
                flows.retain(|other| *other != number);
            }
            state.end(host, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(place: &mut UdpPlace) -> bool {
        place.seat.is_lost()
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
        assert!(state.flows.is_empty() && state.hosts.is_empty());
        assert_eq!(state.udp.taken(), 0);
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
        assert!(others.len().abs_diff(places.lock().tcp.held(1)) <= 1);
        flood.extend((0..2 * MOST).map(|_| places.take_udp(1, Arc::default())));
        assert!(!is_evicted(&mut other));
        drop((connections, others, flood, other));
        let state = places.lock();
        assert_eq!((state.tcp.taken(), state.udp.taken()), (0, 0));
    }

    #[test]
    fn a_machine_with_few_descriptors_has_few_places() {
        let places = Places::new();
        places.limit(100);
        assert_eq!(all_of(&places, 1).len(), 75);
        let mut connections: Vec<_> = (1..200).flat_map(|host| all_of(&places, host)).collect();
        let kept = connections
            .iter_mut()
            .filter_map(|place| (!place.seat.is_lost()).then_some(()));
        assert_eq!(kept.count(), 88);
        let mut datagrams: Vec<_> = (1..200)
            .map(|host| places.take_udp(host, Arc::default()))
            .collect();
        let lost = datagrams
            .iter_mut()
            .filter_map(|place| is_evicted(place).then_some(()));
        assert_eq!(lost.count(), 199 - 12);
    }
}
