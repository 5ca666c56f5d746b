//! Whose packet it is: by its connection ID, and by addresses where that is empty, short, or given out twice.
//!
//! An ID is its receiver's own choice (RFC 9000, section 5.1): the client, the server and other connections may
//! choose the same one. Of those that have, the one whose latest addresses the packet has is meant.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use super::connection::Side;
use super::header::Id;

/// IDs that are remembered.
const MOST_IDS: usize = 1 << 18;
/// IDs of one connection that are remembered.
const MOST_IDS_OF_ONE: u32 = 10_000;
/// Receivers of one ID that are remembered.
const MOST_RECEIVERS: usize = 16;
/// Pairs of addresses that are remembered.
const MOST_PATHS: usize = 1 << 18;
/// Shorter IDs are met by chance in other packets: one of the addresses has to be known too.
const TELLING: usize = 4;

/// From where a packet came, and to where.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// A connection, and one of its sides.
pub(super) type Owner = (usize, Side);

/// The connections by what can be seen of their packets.
#[derive(Default)]
pub(super) struct Owners {
    /// Who is reached by an ID.
    receivers: HashMap<Id, Vec<Owner>>,
    /// Lengths of the IDs there are, without zero.
    lengths: BTreeSet<usize>,
    /// The latest connection between two addresses, client's first.
    by_path: HashMap<Ends, usize>,
    connections: Vec<Known>,
}

struct Known {
    /// Where client and server were last.
    path: Ends,
    /// Length of the IDs by which client and server are reached.
    id_len: [usize; 2],
    ids: u32,
}

impl Owners {
    /// A connection has begun, the next in number; `path`: client and server.
    pub fn begin(&mut self, path: Ends) {
        let number = self.connections.len();
        self.connections.push(Known {
            path,
            id_len: [0; 2],
            ids: 0,
        });
        self.remember(path, number);
    }

    /// `receiver` is reached by `id`.
    pub fn give(&mut self, id: Id, receiver: Owner) {
        let known = &mut self.connections[receiver.0];
        let len = id.as_bytes().len();
        if len == 0 {
            known.id_len[receiver.1 as usize] = 0;
            return;
        }
        if known.ids >= MOST_IDS_OF_ONE {
            return;
        }
        if self.receivers.len() >= MOST_IDS && !self.receivers.contains_key(&id) {
            return;
        }
        let receivers = self.receivers.entry(id).or_default();
        if receivers.contains(&receiver) {
            return;
        }
        if receivers.len() == MOST_RECEIVERS {
            receivers.remove(0);
        }
        receivers.reserve_exact(1);
        receivers.push(receiver);
        known.ids += 1;
        known.id_len[receiver.1 as usize] = len;
        self.lengths.insert(len);
    }

    /// The connection and sender of a packet to `id`.
    pub fn sender(&self, id: &Id, ends: Ends) -> Option<Owner> {
        let (owner, near) = self.nearest(id, ends)?;
        (near > 0 || id.as_bytes().len() >= TELLING).then_some(owner)
    }

    /// Connection, sender and length of the ID of a packet with a short header, of which `bytes` come after the
    /// first. `before`: those of the packet before it in its datagram.
    pub fn short_sender(
        &self,
        bytes: &[u8],
        ends: Ends,
        before: Option<Owner>,
    ) -> Option<(Owner, usize)> {
        let mut by_chance = None;
        for &len in self.lengths.iter().rev() {
            let id = bytes.get(..len).and_then(Id::new);
            match id.and_then(|id| self.nearest(&id, ends)) {
                Some((owner, near)) if near == 2 || len >= TELLING => return Some((owner, len)),
                Some((owner, 1)) => by_chance = by_chance.or(Some((owner, len))),
                _ => {}
            }
        }
        let known = before.or_else(|| self.by_addresses(ends));
        let with_len = |(number, side): Owner| {
            let len = self.connections[number].id_len[side.peer() as usize];
            ((number, side), len)
        };
        known.map(with_len).or(by_chance)
    }

    /// Connection and sender between these addresses.
    pub fn by_addresses(&self, (from, to): Ends) -> Option<Owner> {
        if let Some(&number) = self.by_path.get(&(from, to)) {
            return Some((number, Side::Client));
        }
        Some((*self.by_path.get(&(to, from))?, Side::Server))
    }

    /// A packet of a connection's side was sent between these addresses.
    pub fn sent(&mut self, (number, side): Owner, (from, to): Ends) {
        let path = match side {
            Side::Client => (from, to),
            Side::Server => (to, from),
        };
        if self.connections[number].path != path {
            self.connections[number].path = path;
            self.remember(path, number);
        }
    }

    fn remember(&mut self, path: Ends, number: usize) {
        if self.by_path.len() < MOST_PATHS || self.by_path.contains_key(&path) {
            self.by_path.insert(path, number);
        }
    }

    /// Of those who are reached by `id` the one whose addresses these are most, and how many; of equals the latest.
    fn nearest(&self, id: &Id, (from, to): Ends) -> Option<(Owner, u8)> {
        let near = |&(number, receiver): &Owner| {
            let (client, server) = self.connections[number].path;
            let (sender_at, receiver_at) = match receiver {
                Side::Client => (server, client),
                Side::Server => (client, server),
            };
            u8::from(from == sender_at) + u8::from(to == receiver_at)
        };
        let receivers = self.receivers.get(id)?.iter();
        let best = receivers.max_by_key(|receiver| (near(receiver), receiver.0))?;
        Some(((best.0, best.1.peer()), near(best)))
    }
}
