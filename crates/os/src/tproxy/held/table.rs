//! The connections that are held back: a bounded table that one host cannot fill for the others.
//!
//! First packets cost their sender nothing, and may have forged sources. When the table is full, the
//! host with most connections loses the one that has waited for longest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Connections that wait for their origin, of all hosts and of one; what is over gets no answer,
/// and is begun again by its sender.
const MOST: usize = 1024;
const MOST_OF_ONE: usize = 256;

/// An application, and where it connects to.
pub(super) type Key = (SocketAddr, SocketAddr);

/// What is known of each connection.
#[derive(Debug)]
pub(super) struct Table<T> {
    open: BTreeMap<Key, (u64, T)>,
    /// Connections in the order in which they began, by host.
    hosts: BTreeMap<IpAddr, BTreeSet<(u64, Key)>>,
    /// Hosts by their number of connections.
    by_size: BTreeSet<(usize, IpAddr)>,
    begun: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            hosts: BTreeMap::new(),
            by_size: BTreeSet::new(),
            begun: 0,
        }
    }
}

impl<T> Table<T> {
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut T> {
        self.open.get_mut(key).map(|(_, value)| value)
    }

    /// Whether `host` may have one more.
    pub(super) fn has_room_for(&self, host: IpAddr) -> bool {
        self.hosts.get(&host).map_or(0, BTreeSet::len) < MOST_OF_ONE
    }

    /// Takes up a connection, which is new; the one that had to go for it.
    pub(super) fn insert(&mut self, key: Key, value: T) -> Option<(Key, T)> {
        let gone = (self.open.len() >= MOST)
            .then(|| self.longest_of_largest())
            .flatten()
            .and_then(|oldest| Some((oldest, self.remove(&oldest)?)));
        let number = self.begun;
        self.begun += 1;
        self.open.insert(key, (number, value));
        self.change(key.0.ip(), |connections| connections.insert((number, key)));
        gone
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<T> {
        let (number, value) = self.open.remove(key)?;
        self.change(key.0.ip(), |connections| {
            connections.remove(&(number, *key))
        });
        Some(value)
    }

    /// Removes the connection if `is_over` says so of it: another may have the same ports by now.
    pub(super) fn remove_if(&mut self, key: &Key, is_over: impl FnOnce(&T) -> bool) {
        if self.open.get(key).is_some_and(|(_, value)| is_over(value)) {
            self.remove(key);
        }
    }

    fn longest_of_largest(&self) -> Option<Key> {
        let (_, host) = self.by_size.last()?;
        self.hosts.get(host)?.first().map(|(_, key)| *key)
    }

    fn change(&mut self, host: IpAddr, change: impl FnOnce(&mut BTreeSet<(u64, Key)>) -> bool) {
        let connections = self.hosts.entry(host).or_default();
        self.by_size.remove(&(connections.len(), host));
        change(connections);
        match connections.len() {
            0 => drop(self.hosts.remove(&host)),
            size => drop(self.by_size.insert((size, host))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: u32, port: u16) -> Key {
        let host = IpAddr::from((0x0a00_0000 + host).to_be_bytes());
        ((host, port).into(), "93.184.216.34:25".parse().unwrap())
    }

    /// A first packet, as `Held::begin` takes it.
    fn begin(table: &mut Table<()>, key: Key) -> bool {
        let has_room = table.get_mut(&key).is_none() && table.has_room_for(key.0.ip());
        if has_room {
            table.insert(key, ());
        }
        has_room
    }

    fn check(table: &Table<()>) {
        assert!(table.open.len() <= MOST);
        let of_hosts: usize = table.hosts.values().map(BTreeSet::len).sum();
        assert_eq!(
            (of_hosts, table.by_size.len()),
            (table.open.len(), table.hosts.len())
        );
        assert!(
            table
                .hosts
                .values()
                .all(|all| (1..=MOST_OF_ONE).contains(&all.len()))
        );
    }

    #[test]
    fn a_flood_from_some_hosts_leaves_others_their_place() {
        let mut table = Table::default();
        let mine = key(99, 1);
        for port in 0..10_000 {
            for host in 0..8 {
                begin(&mut table, key(host, port));
            }
            if port == 5_000 {
                assert!(
                    begin(&mut table, mine),
                    "a full table has room for a new host"
                );
            }
        }
        check(&table);
        assert_eq!(table.open.len(), MOST);
        assert!(table.remove(&mine).is_some());
        check(&table);
    }

    #[test]
    fn a_host_has_its_own_bound() {
        let mut table = Table::default();
        let taken = (0..10_000).filter(|port| begin(&mut table, key(0, *port)));
        assert_eq!(taken.count(), MOST_OF_ONE);
        assert!(begin(&mut table, key(1, 0)));
        check(&table);
    }

    /// Each from another source: the table stays as large as it may be, and whoever is in it has
    /// as many packets' time as it has places.
    #[test]
    fn a_flood_of_forged_sources_is_bounded() {
        let mut table = Table::default();
        for host in 0..5_000 {
            assert!(begin(&mut table, key(host, 1)));
        }
        check(&table);
        assert_eq!(table.open.len(), MOST);
    }

    /// Scanners answer no connection that is let in: their places are had again.
    #[test]
    fn a_connection_that_is_over_is_removed_and_its_successor_is_not() {
        let mut table = Table::default();
        table.insert(key(0, 1), "over");
        table.remove_if(&key(0, 1), |state| *state == "over");
        table.insert(key(0, 1), "waits");
        table.remove_if(&key(0, 1), |state| *state == "over");
        assert_eq!(table.remove(&key(0, 1)), Some("waits"));
        table.remove_if(&key(0, 1), |_| true);
    }

    #[test]
    fn what_has_ended_leaves_nothing() {
        let mut table = Table::default();
        for host in 0..5 {
            for port in 0..100 {
                begin(&mut table, key(host, port));
            }
        }
        for host in 0..5 {
            for port in 0..100 {
                assert!(table.remove(&key(host, port)).is_some());
            }
        }
        assert!(table.hosts.is_empty() && table.by_size.is_empty() && table.open.is_empty());
        assert!(table.remove(&key(0, 0)).is_none());
    }
}
