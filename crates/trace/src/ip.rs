//! IPv4 and IPv6 packets under the link types that captures have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::capture::LinkType;

/// A UDP datagram or TCP segment in its IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport<'a> {
    /// From where.
    pub from: SocketAddr,
    /// To where.
    pub to: SocketAddr,
    /// The ECN field of the IP header (RFC 3168): 0 to 3.
    pub ecn: u8,
    /// The IP packet's length, bytes, by its header.
    pub ip_len: u32,
    /// What it carries.
    pub body: Body<'a>,
}

/// What an IP packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// The payload of a UDP datagram.
    Udp(&'a [u8]),
    /// A TCP segment, from its header on, and its length by the IP header: a capture that
    /// cuts packets has fewer bytes.
    Tcp(&'a [u8], u32),
}

const UDP: u8 = 17;
const TCP: u8 = 6;

/// What lies below IP, of the link types that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// NULL and LOOP: a protocol family in four bytes, in the order of some machine.
    Loopback,
    /// Ethernet, with VLAN tags (802.1Q, 802.1ad) or without.
    Ethernet,
    /// Nothing: RAW in its several numbers, IPv4 and IPv6.
    Nothing,
    /// A head of Linux's "cooked" captures of so many bytes.
    Cooked(usize),
}

impl Link {
    /// `None`: a link type that is not read.
    pub const fn of(link_type: LinkType) -> Option<Self> {
        Some(match link_type.0 {
            0 | 108 => Self::Loopback,
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Nothing,
            113 => Self::Cooked(16),
            276 => Self::Cooked(20),
            _ => return None,
        })
    }
}

/// The datagram or segment in `packet`; `None` for everything else, fragments among it.
pub fn decode(link_type: LinkType, packet: &[u8]) -> Option<Transport<'_>> {
    let ip = match Link::of(link_type)? {
        Link::Loopback => packet.get(4..)?,
        Link::Ethernet => {
            let mut at = 12;
            while let 0x8100 | 0x88a8 | 0x9100 = u16_at(packet, at)? {
                at += 4;
            }
            match u16_at(packet, at)? {
                0x0800 | 0x86dd => packet.get(at + 2..)?,
                _ => return None,
            }
        }
        Link::Nothing => packet,
        Link::Cooked(head) => packet.get(head..)?,
    };
    match ip.first()? >> 4 {
        4 => v4(ip),
        6 => v6(ip),
        _ => None,
    }
}

fn v4(ip: &[u8]) -> Option<Transport<'_>> {
    let head = usize::from(ip[0] & 0xf) * 4;
    let total = usize::from(u16_at(ip, 2)?);
    // More fragments, or not the first.
    if head < 20 || u16_at(ip, 6)? & 0x3fff != 0 {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        let four: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(four).into())
    };
    let (from, to) = (address(12)?, address(16)?);
    // With segmentation offload the kernel may leave the length out.
    let total = if total == 0 { ip.len() } else { total };
    let payload = ip.get(head..ip.len().min(total))?;
    transport(
        ip[9],
        payload,
        total.checked_sub(head)?,
        (from, to),
        (ip[1] & 3, total),
    )
}

fn v6(ip: &[u8]) -> Option<Transport<'_>> {
    const HEAD: usize = 40;
    let payload_len = usize::from(u16_at(ip, 4)?);
    let total = if payload_len == 0 {
        ip.len()
    } else {
        HEAD + payload_len
    };
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(bytes).into())
    };
    let (from, to) = (address(8)?, address(24)?);
    let ecn = ip[1] >> 4 & 3;
    let (mut next, mut at) = (ip[6], HEAD);
    // Hop-by-hop, routing and destination options come before what is carried.
    while let 0 | 43 | 60 = next {
        next = *ip.get(at)?;
        at += (usize::from(*ip.get(at + 1)?) + 1) * 8;
    }
    let payload = ip.get(at..ip.len().min(total))?;
    transport(
        next,
        payload,
        total.checked_sub(at)?,
        (from, to),
        (ecn, total),
    )
}

fn transport(
    protocol: u8,
    payload: &[u8],
    len: usize,
    (from, to): (IpAddr, IpAddr),
    (ecn, ip_len): (u8, usize),
) -> Option<Transport<'_>> {
    let (source, destination) = (u16_at(payload, 0)?, u16_at(payload, 2)?);
    let body = match protocol {
        UDP => {
            let udp_len = usize::from(u16_at(payload, 4)?);
            let end = if udp_len == 0 { payload.len() } else { udp_len };
            Body::Udp(payload.get(8..end.min(payload.len()))?)
        }
        TCP => Body::Tcp(payload, u32::try_from(len).ok()?),
        _ => return None,
    };
    Some(Transport {
        from: SocketAddr::new(from, source),
        to: SocketAddr::new(to, destination),
        ecn,
        ip_len: u32::try_from(ip_len).ok()?,
        body,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_be_bytes(two))
}
