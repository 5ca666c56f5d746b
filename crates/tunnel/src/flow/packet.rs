//! IP packets, as far as they are looked at, and the ICMP errors that tell of them.

use std::net::IpAddr;

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::icmpv6::DestUnreachableCode;
use etherparse::{Icmpv4Type, Icmpv6Type, IpSlice, PacketBuilder, ip_number};

use crate::wire::datagram::UDP_PAYLOAD;

/// Bytes of a packet that an error quotes, at most (RFC 1812, section 4.3.2.3; RFC 4443,
/// section 2.4): the error is then no longer than every link carries.
const QUOTED_V4: usize = 576 - 28;
const QUOTED_V6: usize = 1280 - 48;
const HOP_LIMIT: u8 = 64;

/// What a packet says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Who sends it.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// The protocol above IP and its extension headers.
    pub protocol: u8,
    /// The port that it goes to; `None` for protocols without ports, and for fragments.
    pub port: Option<u16>,
    /// It is a fragment, the first or another.
    pub fragment: bool,
    /// The type of ICMP that it is, if it is ICMP whole.
    pub icmp: Option<u8>,
}

impl Header {
    /// Reads the headers of `packet`; `None` if it is no IP packet, or not as long as it says.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let ip = IpSlice::from_slice(packet).ok()?;
        let length = match &ip {
            IpSlice::Ipv4(ip) => usize::from(ip.header().total_len()),
            IpSlice::Ipv6(ip) => 40 + usize::from(ip.header().payload_length()),
        };
        let payload = ip.payload();
        if length != packet.len() {
            return None;
        }
        let protocol = payload.ip_number;
        let bytes = payload.payload;
        let whole = !payload.fragmented;
        let has_ports = matches!(
            protocol,
            ip_number::TCP
                | ip_number::UDP
                | ip_number::SCTP
                | ip_number::DCCP
                | ip_number::UDP_LITE
        );
        Some(Self {
            source: ip.source_addr(),
            destination: ip.destination_addr(),
            protocol: protocol.0,
            port: match bytes {
                [_, _, high, low, ..] if whole && has_ports => {
                    Some(u16::from_be_bytes([*high, *low]))
                }
                _ => None,
            },
            fragment: payload.fragmented,
            icmp: match protocol {
                ip_number::ICMP | ip_number::IPV6_ICMP if whole => bytes.first().copied(),
                _ => None,
            },
        })
    }

    /// Whether it is of ICMP, of either family.
    pub fn is_icmp(&self) -> bool {
        [ip_number::ICMP.0, ip_number::IPV6_ICMP.0].contains(&self.protocol)
    }
}

/// Why a packet goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// There is no way.
    Unreachable,
    /// It is forbidden.
    Prohibited,
}

/// An ICMP error about `packet`, with `header`, from `from`; `None` where none may be sent
/// (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
pub fn error(header: &Header, packet: &[u8], from: IpAddr, why: Why) -> Option<Vec<u8>> {
    let about_error = match (header.is_icmp(), header.icmp) {
        (false, _) => false,
        (true, None) => true,
        (true, Some(kind)) => match header.source {
            IpAddr::V4(_) => matches!(kind, 3..=5 | 11..=12),
            IpAddr::V6(_) => kind < 128,
        },
    };
    let nobody = header.source.is_unspecified() || header.source.is_multicast();
    if about_error || nobody || header.fragment || header.destination.is_multicast() {
        return None;
    }
    let mut error = Vec::new();
    match (from, header.source) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let what = match why {
                Why::Unreachable => DestUnreachableHeader::Host,
                Why::Prohibited => DestUnreachableHeader::FilterProhibited,
            };
            let quoted = &packet[..packet.len().min(QUOTED_V4)];
            PacketBuilder::ipv4(from.octets(), to.octets(), HOP_LIMIT)
                .icmpv4(Icmpv4Type::DestinationUnreachable(what))
                .write(&mut error, quoted)
                .ok()?;
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let what = match why {
                Why::Unreachable => DestUnreachableCode::Address,
                Why::Prohibited => DestUnreachableCode::Prohibited,
            };
            let quoted = &packet[..packet.len().min(QUOTED_V6)];
            PacketBuilder::ipv6(from.octets(), to.octets(), HOP_LIMIT)
                .icmpv6(Icmpv6Type::DestinationUnreachable(what))
                .write(&mut error, quoted)
                .ok()?;
        }
        _ => return None,
    }
    Some(error)
}

/// Lets the packet in the content of a datagram say that it has met congestion (CE; RFC 3168, section 5); `false` if its
/// ends do not speak ECN.
pub fn mark_congested(content: &mut [u8]) -> bool {
    let [UDP_PAYLOAD, packet @ ..] = content else {
        return false;
    };
    match packet {
        [0x40..=0x4f, class, rest @ ..] if *class & 3 != 0 && rest.len() >= 18 => {
            // RFC 1624, equation 3: what is added to the header is taken from its checksum.
            let [high, low] = [rest[8], rest[9]];
            let checksum =
                u32::from(!u16::from_be_bytes([high, low])) + u32::from(3 - (*class & 3));
            let folded = (checksum & 0xffff) + (checksum >> 16);
            let checksum = !u16::try_from(folded).unwrap_or(u16::MAX);
            rest[8..10].copy_from_slice(&checksum.to_be_bytes());
            *class |= 3;
            true
        }
        // Here it lies before the flow label.
        [0x60..=0x6f, class, rest @ ..] if *class & 0x30 != 0 && rest.len() >= 38 => {
            *class |= 0x30;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{IpEcn, Ipv4Header, Ipv6Header};

    use super::*;

    /// An echo request of 40 bytes.
    fn echo(ipv6: bool) -> Vec<u8> {
        let mut packet = Vec::new();
        match ipv6 {
            false => PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 1], 64)
                .icmpv4_echo_request(1, 1)
                .write(&mut packet, &[7; 40])
                .unwrap(),
            true => PacketBuilder::ipv6([0x20; 16], [0x30; 16], 64)
                .icmpv6_echo_request(1, 1)
                .write(&mut packet, &[7; 40])
                .unwrap(),
        }
        packet
    }

    #[test]
    fn errors_quote_the_packet_and_none_is_about_an_error() {
        for ipv6 in [false, true] {
            let packet = echo(ipv6);
            let header = Header::read(&packet).unwrap();
            assert!(header.is_icmp() && header.icmp == Some(if ipv6 { 128 } else { 8 }));
            let told = error(&header, &packet, header.destination, Why::Prohibited).unwrap();
            assert!(told.ends_with(&packet));
            let about = Header::read(&told).unwrap();
            assert_eq!(
                (about.source, about.destination),
                (header.destination, header.source)
            );
            assert_eq!(error(&about, &told, header.source, Why::Prohibited), None);
        }
    }

    #[test]
    fn packets_that_speak_ecn_are_marked_and_stay_whole() {
        for (ecn, can) in [(0, false), (1, true), (2, true), (3, true)] {
            let ecn = IpEcn::try_new(ecn).unwrap();
            for identification in [0, 0x1234, 0xfffd, 0xfffe, 0xffff] {
                let packet = echo(false);
                let (mut header, payload) = Ipv4Header::from_slice(&packet).unwrap();
                (header.ecn, header.identification) = (ecn, identification);
                let mut content = vec![UDP_PAYLOAD];
                header.write(&mut content).unwrap();
                content.extend_from_slice(payload);
                assert_eq!(mark_congested(&mut content), can);
                let (marked, rest) = Ipv4Header::from_slice(&content[1..]).unwrap();
                assert_eq!(marked.ecn.value(), if can { 3 } else { 0 });
                assert_eq!(marked.header_checksum, marked.calc_header_checksum());
                assert_eq!(rest, payload);
            }
            let packet = echo(true);
            let (mut header, payload) = Ipv6Header::from_slice(&packet).unwrap();
            header.traffic_class = 0xb8 | ecn.value();
            header.flow_label = 0xf_5678.try_into().unwrap();
            let mut content = vec![UDP_PAYLOAD];
            header.write(&mut content).unwrap();
            content.extend_from_slice(payload);
            assert_eq!(mark_congested(&mut content), can);
            let (marked, rest) = Ipv6Header::from_slice(&content[1..]).unwrap();
            assert_eq!(marked.traffic_class, 0xb8 | if can { 3 } else { 0 });
            assert_eq!((marked.flow_label, rest), (header.flow_label, payload));
        }
    }

    #[test]
    fn what_is_no_packet_is_not_marked() {
        for packet in [echo(false), echo(true)] {
            let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
            let mut content = [&[UDP_PAYLOAD][..], &packet].concat();
            content[2] |= 0x33;
            for length in 0..=header {
                assert!(!mark_congested(&mut content[..length].to_vec()), "{length}");
            }
            content[0] = 1;
            assert!(!mark_congested(&mut content));
        }
    }

    #[test]
    fn what_is_cut_or_longer_than_it_says_is_no_packet() {
        for packet in [echo(false), echo(true)] {
            for length in 0..packet.len() {
                assert_eq!(Header::read(&packet[..length]), None, "{length}");
            }
            let longer = [&packet[..], &[0]].concat();
            assert_eq!(Header::read(&longer), None);
        }
    }
}
