//! The network interface that this machine's own traffic is routed to, and the routes that lead
//! there.
//!
//! A routing table of the terminal's own has the interface as its default route; networks that
//! are left alone have routes there that lead on to the machine's other tables (`throw`). A second
//! table is for questions of DNS, which are taken in these networks too. Routing rules ask both
//! before the machine's main table. The terminal's own sockets carry a mark, for which a rule
//! steps over the two.
//!
//! What is routed to the interface never gets to it, but for other protocols than TCP and UDP: the
//! terminal's nftables table ([`super::ruleset`]) sees where it is going, and hands it to the
//! listeners by way of loopback.
//!
//! Routes by the interface go with it. When the terminal was killed, the last route of both tables
//! says "unreachable".

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{IpProtocol, RouteNetlinkMessage};

use super::routes::{self, Family};
use super::{Capture, Fail};
use crate::dns;
use crate::netlink::{Netlink, mark_rule};

/// Distinguish the marks, and the routing tables, of different ports and from others'.
const TAKEN: u32 = 0x6272_0000;
const PAST: u32 = 0x6273_0000;
const ALL: u32 = 0x6274_0000;
const QUESTIONS: u32 = 0x6275_0000;

/// The order of the rules, about those of [`routes`] for marks.
const PRIORITY_PAST: u32 = 97;
const PRIORITY_QUESTIONS: u32 = 99;
const PRIORITY_ALL: u32 = 100;
const PRIORITY_END: u32 = 101;

/// The addresses that this machine's programs have connections from. They never leave the machine,
/// and stay while the gateway assigns others: those of RFC 7335 for interfaces of a host's own,
/// and of RFC 4193.
const SOURCES: [&str; 2] = ["192.0.0.2", "fd62:7065:6e74::1"];

/// What is sent to these has no route to speak of: a program names the interface.
const OF_A_LINK: [&str; 4] = ["224.0.0.0/4", "169.254.0.0/16", "fe80::/10", "ff00::/8"];

/// An interface that this machine's own traffic is routed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tun {
    /// Its name.
    pub interface: String,
    /// Questions of DNS are taken also where they go to networks that are left alone.
    pub dns: bool,
    /// Networks where they are not.
    pub leave: Vec<IpNet>,
}

/// The mark of packets of this machine that are taken, on their way through loopback.
pub(super) fn taken(port: u16) -> u32 {
    TAKEN + u32::from(port)
}

/// The mark of the sockets of a terminal with `port` that are not routed to its interface.
pub fn past(port: u16) -> u32 {
    PAST + u32::from(port)
}

fn families(ipv6: bool) -> impl Iterator<Item = Family> {
    [Family::V4, Family::V6]
        .into_iter()
        .take(1 + usize::from(ipv6))
}

/// Gives the interface the addresses that this machine's programs have, and routes their traffic to
/// it, but for `left_alone`; no error if that is so already.
pub(super) fn route(
    capture: &Capture,
    tun: &Tun,
    left_alone: &[IpNet],
    ipv6: bool,
) -> io::Result<()> {
    let port = capture.port;
    let mut netlink = Netlink::open()?;
    let device = netlink.device(&tun.interface)?.header.index;
    let closed = capture.fail == Fail::Closed;
    for family in families(ipv6) {
        match netlink.add_source(device, family.source()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done?,
        }
        routes::add(family, taken(port))?;
        let tables = [(ALL, left_alone), (QUESTIONS, &tun.leave[..])];
        for (tag, networks) in tables {
            let table = tag + u32::from(port);
            let mut wanted = throws(family, table, networks);
            if closed {
                wanted.push(routes::unreachable(family, table));
            }
            let mut through = routes::through(family, table, device);
            let source = RouteAddress::from(family.source());
            through.attributes.push(RouteAttribute::PrefSource(source));
            wanted.push(through);
            fill(&mut netlink, family, table, wanted)?;
        }
        for rule in rules(family, port, tun.dns) {
            match netlink.tell(
                RouteNetlinkMessage::NewRule(rule),
                NLM_F_CREATE | NLM_F_EXCL,
            ) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => done?,
            }
        }
        if !tun.dns {
            for rule in questions(family, port) {
                let _ = netlink.tell(RouteNetlinkMessage::DelRule(rule), 0);
            }
        }
    }
    Ok(())
}

/// Undoes [`route`] for both families; what is not there is no error.
pub(super) fn remove(port: u16) {
    routes::remove(taken(port));
    let Ok(mut netlink) = Netlink::open() else {
        return;
    };
    for family in families(true) {
        for rule in rules(family, port, true) {
            let _ = netlink.tell(RouteNetlinkMessage::DelRule(rule), 0);
        }
        for tag in [ALL, QUESTIONS] {
            let _ = fill(&mut netlink, family, tag + u32::from(port), Vec::new());
        }
    }
}

/// Makes `wanted` the routes of `table`.
fn fill(
    netlink: &mut Netlink,
    family: Family,
    table: u32,
    wanted: Vec<RouteMessage>,
) -> io::Result<()> {
    let there = netlink.routes(family.number(), table)?;
    let key = |route: &RouteMessage| {
        let destination = route
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::Destination(address) => Some(address.clone()),
                _ => None,
            });
        (
            route.header.kind,
            route.header.destination_prefix_length,
            destination,
        )
    };
    for route in &wanted {
        let request = RouteNetlinkMessage::NewRoute(route.clone());
        match netlink.tell(request, NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done?,
        }
    }
    for old in there {
        if !wanted.iter().any(|route| key(route) == key(&old)) {
            let _ = netlink.tell(RouteNetlinkMessage::DelRoute(old), 0);
        }
    }
    Ok(())
}

/// Routes for `networks`, and for what has no route, that lead on to the machine's other tables.
fn throws(family: Family, table: u32, networks: &[IpNet]) -> Vec<RouteMessage> {
    let of_a_link = OF_A_LINK.map(|text| text.parse::<IpNet>().expect("networks"));
    let all: Vec<_> = networks.iter().copied().chain(of_a_link).collect();
    IpNet::aggregate(&all)
        .into_iter()
        .filter(|network| network.addr().is_ipv4() == matches!(family, Family::V4))
        .map(|network| {
            let mut message = routes::unreachable(family, table);
            message.header.kind = RouteType::Throw;
            message.header.destination_prefix_length = network.prefix_len();
            message.attributes = vec![
                RouteAttribute::Table(table),
                RouteAttribute::Destination(network.network().into()),
            ];
            message
        })
        .collect()
}

/// The rules of a terminal with `port`, in the order in which they are added.
fn rules(family: Family, port: u16, dns: bool) -> Vec<RuleMessage> {
    let rule = |priority, action| {
        let mut message = RuleMessage::default();
        message.header.family = family.number();
        message.header.action = action;
        message.attributes = vec![RuleAttribute::Priority(priority)];
        message
    };
    let mut past = mark_rule(family.number(), self::past(port), PRIORITY_PAST);
    past.header.action = RuleAction::Goto;
    past.attributes
        .retain(|attribute| !matches!(attribute, RuleAttribute::Table(_)));
    past.attributes.push(RuleAttribute::Goto(PRIORITY_END));
    let mut all = rule(PRIORITY_ALL, RuleAction::ToTable);
    let table = ALL + u32::from(port);
    all.attributes.push(RuleAttribute::Table(table));
    let mut rules = vec![rule(PRIORITY_END, RuleAction::Nop), past];
    if dns {
        rules.extend(questions(family, port));
    }
    rules.push(all);
    rules
}

/// The rules for questions of DNS.
fn questions(family: Family, port: u16) -> [RuleMessage; 2] {
    [IpProtocol::Udp, IpProtocol::Tcp].map(|protocol| {
        let mut message = RuleMessage::default();
        message.header.family = family.number();
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Priority(PRIORITY_QUESTIONS),
            RuleAttribute::IpProtocol(protocol),
            RuleAttribute::DestinationPortRange(RulePortRange {
                start: dns::PORT,
                end: dns::PORT,
            }),
            RuleAttribute::Table(QUESTIONS + u32::from(port)),
        ];
        message
    })
}

impl Family {
    /// The address that this machine's programs have.
    fn source(self) -> IpAddr {
        let [ipv4, ipv6] = SOURCES;
        let text = match self {
            Self::V4 => ipv4,
            Self::V6 => ipv6,
        };
        text.parse().expect("addresses")
    }
}
