//! The routing rule and table by which the kernel delivers marked packets to this machine
//! (rtnetlink(7)).

use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::{Netlink, mark_rule};

/// Before the operator's own rules: it matches nothing but our mark. A fixed number lets
/// the kernel see that the rule is there already.
const PRIORITY: u32 = 98;

/// The metric of a route that is taken when there is no other.
const LAST_RESORT: u32 = u32::MAX - 1;

/// An address family.
#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    V4,
    V6,
}

/// Delivers packets with `mark` to this machine; no error if that is so already.
pub(super) fn add(family: Family, mark: u32) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let loopback = netlink.device("lo")?.header.index;
    for request in [
        RouteNetlinkMessage::NewRoute(route(family, mark, loopback)),
        RouteNetlinkMessage::NewRule(mark_rule(family.number(), mark, PRIORITY)),
    ] {
        match netlink.tell(request, NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done?,
        }
    }
    Ok(())
}

/// Sends packets with `mark` out by `device`; no error if that is so already. `closed`: they are
/// answered as unreachable when the device is not there, and do not take another way.
pub(super) fn add_through(family: Family, mark: u32, device: &str, closed: bool) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let device = netlink.device(device)?.header.index;
    let mut requests = Vec::new();
    if closed {
        requests.push(RouteNetlinkMessage::NewRoute(unreachable(family, mark)));
    }
    requests.push(RouteNetlinkMessage::NewRoute(through(family, mark, device)));
    requests.push(RouteNetlinkMessage::NewRule(mark_rule(
        family.number(),
        mark,
        PRIORITY,
    )));
    for request in requests {
        match netlink.tell(request, NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done?,
        }
    }
    Ok(())
}

/// Undoes [`add`] and [`add_through`] for both families; what is not there is no error.
pub(super) fn remove(mark: u32) {
    let Ok(mut netlink) = Netlink::open() else {
        return;
    };
    let loopback = netlink.device("lo").map_or(1, |lo| lo.header.index);
    for family in [Family::V4, Family::V6] {
        let _ = netlink.tell(
            RouteNetlinkMessage::DelRule(mark_rule(family.number(), mark, PRIORITY)),
            0,
        );
        // A route by a device goes with the device.
        for route in [route(family, mark, loopback), unreachable(family, mark)] {
            let _ = netlink.tell(RouteNetlinkMessage::DelRoute(route), 0);
        }
    }
}

impl Family {
    pub(super) fn number(self) -> AddressFamily {
        match self {
            Self::V4 => AddressFamily::Inet,
            Self::V6 => AddressFamily::Inet6,
        }
    }
}

/// All destinations, by a device.
pub(super) fn through(family: Family, mark: u32, device: u32) -> RouteMessage {
    let mut message = route(family, mark, device);
    message.header.scope = RouteScope::Link;
    message.header.kind = RouteType::Unicast;
    message
}

/// No destination, where there is no other route.
pub(super) fn unreachable(family: Family, mark: u32) -> RouteMessage {
    let mut message = route(family, mark, 0);
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unreachable;
    message.attributes = vec![
        RouteAttribute::Table(mark),
        RouteAttribute::Priority(LAST_RESORT),
    ];
    message
}

/// All destinations, local.
fn route(family: Family, mark: u32, loopback: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family.number(),
        protocol: RouteProtocol::Static,
        scope: RouteScope::Host,
        kind: RouteType::Local,
        ..RouteHeader::default()
    };
    message.attributes = vec![RouteAttribute::Table(mark), RouteAttribute::Oif(loopback)];
    message
}
