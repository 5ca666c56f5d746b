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

/// Undoes [`add`] for both families; what is not there is no error.
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
        let route = route(family, mark, loopback);
        let _ = netlink.tell(RouteNetlinkMessage::DelRoute(route), 0);
    }
}

impl Family {
    fn number(self) -> AddressFamily {
        match self {
            Self::V4 => AddressFamily::Inet,
            Self::V6 => AddressFamily::Inet6,
        }
    }
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
