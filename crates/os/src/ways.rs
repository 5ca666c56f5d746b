//! This machine's ways to its peers, by its routing table: a change of addresses or routes
//! matters to a session when the way to its peer is another after it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::Netlink;

/// Peers whose ways are remembered; one more, and all are forgotten.
const MOST: usize = 64;

/// How packets to a peer leave the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The device's index.
    pub device: u32,
    /// The router, where the peer is not on the device's own network.
    pub router: Option<IpAddr>,
    /// The address that they come from.
    pub source: Option<IpAddr>,
}

/// The ways to peers as they were last seen.
#[derive(Debug, Default)]
pub struct Ways {
    seen: Mutex<BTreeMap<IpAddr, Option<Way>>>,
    /// Of the packets that take them.
    mark: Option<u32>,
}

impl Ways {
    /// The ways of packets with `mark`.
    pub fn of(mark: Option<u32>) -> Self {
        Self {
            mark,
            ..Self::default()
        }
    }

    /// A session with `peer` has begun.
    pub fn note(&self, peer: SocketAddr) {
        let mut ways = self.lock();
        if ways.len() >= MOST {
            ways.clear();
        }
        let peer = peer.ip().to_canonical();
        ways.insert(peer, way_to(peer, self.mark).ok());
    }

    /// Whether a way is another than it was.
    pub fn have_changed(&self) -> bool {
        let mut ways = self.lock();
        let mut changed = false;
        for (peer, way) in ways.iter_mut() {
            let now = way_to(*peer, self.mark).ok();
            changed |= now != *way;
            *way = now;
        }
        changed
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Option<Way>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to `peer` of packets with `mark` from the calling thread's namespace; an error if there
/// is none.
pub fn way_to(peer: IpAddr, mark: Option<u32>) -> io::Result<Way> {
    let mut question = RouteMessage::default();
    let (family, length, address) = match peer {
        IpAddr::V4(address) => (AddressFamily::Inet, 32, RouteAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(address)),
    };
    question.header.address_family = family;
    question.header.destination_prefix_length = length;
    question.attributes = vec![RouteAttribute::Destination(address)];
    question.attributes.extend(mark.map(RouteAttribute::Mark));
    let question = RouteNetlinkMessage::GetRoute(question);
    let Some(RouteNetlinkMessage::NewRoute(route)) = Netlink::open()?.question(question)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut way = Way {
        device: 0,
        router: None,
        source: None,
    };
    for attribute in route.attributes {
        match attribute {
            RouteAttribute::Oif(device) => way.device = device,
            RouteAttribute::Gateway(router) => way.router = ip(&router),
            RouteAttribute::PrefSource(source) => way.source = ip(&source),
            _ => {}
        }
    }
    Ok(way)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_machine_is_its_loopback() {
        let way = way_to("127.0.0.1".parse().unwrap(), None).unwrap();
        assert_eq!(way.source, Some("127.0.0.1".parse().unwrap()));
        assert_eq!(way.router, None);
        assert_ne!(way.device, 0);
    }

    #[test]
    fn the_same_way_is_no_change() {
        let ways = Ways::default();
        assert!(!ways.have_changed());
        ways.note("127.0.0.1:4433".parse().unwrap());
        assert!(!ways.have_changed());
    }
}
