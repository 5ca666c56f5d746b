//! Requests to the kernel about network devices (rtnetlink(7)).

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope, CacheInfo,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, Stats64};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A conversation with the kernel about the namespace in which it was opened.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens the conversation in the calling thread's namespace.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// The device of that name.
    pub fn device(&mut self, name: &str) -> io::Result<LinkMessage> {
        let mut query = LinkMessage::default();
        query
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        match self.ask(RouteNetlinkMessage::GetLink(query), NLM_F_REQUEST)? {
            Some(RouteNetlinkMessage::NewLink(device)) => Ok(device),
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    /// The name of the device of that index.
    pub fn device_at(&mut self, index: u32) -> io::Result<String> {
        let mut query = LinkMessage::default();
        query.header.index = index;
        let device = match self.ask(RouteNetlinkMessage::GetLink(query), NLM_F_REQUEST)? {
            Some(RouteNetlinkMessage::NewLink(device)) => device,
            _ => return Err(io::Error::from(io::ErrorKind::InvalidData)),
        };
        let mut attributes = device.attributes.into_iter();
        attributes
            .find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            })
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// What has passed through the device since it was made.
    pub fn statistics(&mut self, name: &str) -> io::Result<Stats64> {
        self.device(name)?
            .attributes
            .into_iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(statistics) => Some(statistics),
                _ => None,
            })
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Sets the device's largest packet and the length of its queue to us.
    pub fn set_sizes(&mut self, index: u32, mtu: u32, queue: u32) -> io::Result<()> {
        let mut change = LinkMessage::default();
        change.header.index = index;
        change.attributes = vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue)];
        self.tell(RouteNetlinkMessage::SetLink(change), 0)
    }

    /// Takes the device up.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut change = LinkMessage::default();
        change.header.index = index;
        change.header.flags = LinkFlags::Up;
        change.header.change_mask = LinkFlags::Up;
        self.tell(RouteNetlinkMessage::SetLink(change), 0)
    }

    /// Adds an address, usable at once: on a point-to-point device nobody else can have it.
    pub fn add_address(&mut self, index: u32, address: IpNet) -> io::Result<()> {
        let mut change = address_of(index, address);
        change.header.flags = AddressHeaderFlags::Nodad;
        self.tell(
            RouteNetlinkMessage::NewAddress(change),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Adds an address that nothing uses but routes which name it as their source.
    pub(crate) fn add_source(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let mut change = address_of(index, address.into());
        change.header.flags = AddressHeaderFlags::Nodad;
        match address {
            // Connections that are translated get one of global scope (inet_select_addr).
            IpAddr::V4(_) => change.header.scope = AddressScope::Link,
            IpAddr::V6(_) => {
                // Deprecated (RFC 4862, section 5.5.4).
                let mut lifetime = CacheInfo::default();
                lifetime.ifa_valid = u32::MAX;
                change
                    .attributes
                    .push(AddressAttribute::CacheInfo(lifetime));
            }
        }
        self.tell(
            RouteNetlinkMessage::NewAddress(change),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Every address of the namespace, with the index of its device.
    pub fn addresses(&mut self) -> io::Result<Vec<(u32, IpNet)>> {
        let query = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let found = self.list(query)?.into_iter();
        Ok(found
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewAddress(address) => {
                    Some((address.header.index, address_in(&address)?))
                }
                _ => None,
            })
            .collect())
    }

    /// The routes of `table`, of one family.
    pub(crate) fn routes(
        &mut self,
        family: AddressFamily,
        table: u32,
    ) -> io::Result<Vec<RouteMessage>> {
        let mut query = RouteMessage::default();
        query.header.address_family = family;
        let found = self.list(RouteNetlinkMessage::GetRoute(query))?.into_iter();
        Ok(found
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewRoute(route) => Some(route),
                _ => None,
            })
            .filter(|route| route.attributes.contains(&RouteAttribute::Table(table)))
            .collect())
    }

    /// All that the kernel has of what `query` asks for.
    fn list(&mut self, query: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.send(query, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut found = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let message = parse(rest)?;
                let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(found),
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    NetlinkPayload::InnerMessage(message) => found.push(message),
                    _ => {}
                }
            }
        }
    }

    /// Removes an address.
    pub fn remove_address(&mut self, index: u32, address: IpNet) -> io::Result<()> {
        self.tell(
            RouteNetlinkMessage::DelAddress(address_of(index, address)),
            0,
        )
    }

    /// Asks for one thing, with one answer.
    pub(crate) fn question(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.ask(question, NLM_F_REQUEST)
    }

    pub(crate) fn tell(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(request, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map(|_| ())
    }

    fn send(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// Sends one request and takes its one answer; `None` is an acknowledgement.
    fn ask(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.send(request, flags)?;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let answer = parse(&answer)?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(inner) => Ok(Some(inner)),
                NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
                _ => Ok(None),
            };
        }
    }
}

fn parse(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    NetlinkMessage::deserialize(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

/// The address that a message of rtnetlink(7) is about.
fn address_in(message: &AddressMessage) -> Option<IpNet> {
    let address = |own: bool| {
        message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Local(address) if own => Some(*address),
                AddressAttribute::Address(address) if !own => Some(*address),
                _ => None,
            })
    };
    // IPv6 has no peer, and only the second kind.
    let address = address(true).or_else(|| address(false))?;
    IpNet::new(address, message.header.prefix_len).ok()
}

/// What rtnetlink(7) calls an address of a device.
fn address_of(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = address.prefix_len();
    message.header.family = match address.addr() {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.attributes = vec![
        AddressAttribute::Local(address.addr()),
        AddressAttribute::Address(address.addr()),
    ];
    message
}

/// The routing rule that leads packets with `mark` to the table of that number.
pub(crate) fn mark_rule(family: AddressFamily, mark: u32, priority: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Priority(priority),
        RuleAttribute::FwMark(mark),
        RuleAttribute::FwMask(u32::MAX),
        RuleAttribute::Table(mark),
    ];
    message
}
