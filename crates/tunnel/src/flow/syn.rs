//! The first packet of a TCP connection (SYN), held back until the origin has answered, and the
//! packets that tell its sender.

use std::net::SocketAddr;

use etherparse::{IpSlice, PacketBuilder, TcpSlice, ip_number};

use super::packet::{self, Header, Why};

const HOP_LIMIT: u8 = 64;
/// Where the checksum is in a TCP header (RFC 9293, section 3.1).
const CHECKSUM: usize = 16;

/// A packet that begins a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syn {
    /// Who connects.
    pub client: SocketAddr,
    /// To what.
    pub destination: SocketAddr,
    packet: Vec<u8>,
    acknowledged: u32,
}

impl Syn {
    /// Reads a packet; `None` if it is not the beginning of a TCP connection, or not whole.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let header = Header::read(packet)?;
        let ip = IpSlice::from_slice(packet).ok()?;
        if ip.payload().ip_number != ip_number::TCP || header.fragment {
            return None;
        }
        let bytes = ip.payload().payload;
        let tcp = TcpSlice::from_slice(bytes).ok()?;
        if !tcp.syn() || tcp.ack() || tcp.rst() || tcp.fin() {
            return None;
        }
        let (source, destination) = (header.source, header.destination);
        let checksum = match &ip {
            IpSlice::Ipv4(ip) => {
                let ip = ip.header();
                tcp.calc_checksum_ipv4(ip.source(), ip.destination())
            }
            IpSlice::Ipv6(ip) => {
                let ip = ip.header();
                tcp.calc_checksum_ipv6(ip.source(), ip.destination())
            }
        };
        // A sender on the same machine, or a virtual one's, leaves it to a network card.
        let mut packet = packet.to_vec();
        let at = packet.len() - bytes.len() + CHECKSUM;
        packet[at..at + 2].copy_from_slice(&checksum.ok()?.to_be_bytes());
        let sent = u32::try_from(tcp.payload().len()).ok()?;
        Some(Self {
            client: SocketAddr::new(source, tcp.source_port()),
            destination: SocketAddr::new(destination, tcp.destination_port()),
            packet,
            acknowledged: tcp.sequence_number().wrapping_add(1).wrapping_add(sent),
        })
    }

    /// The packet, with a checksum.
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// The packet that says that nobody listens there (RFC 9293, section 3.10.7.1).
    pub fn refused(&self) -> Option<Vec<u8>> {
        let (from, to) = (self.destination, self.client);
        let ip = match (from, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), HOP_LIMIT)
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                PacketBuilder::ipv6(from.ip().octets(), to.ip().octets(), HOP_LIMIT)
            }
            _ => return None,
        };
        let mut reset = Vec::new();
        ip.tcp(from.port(), to.port(), 0, 0)
            .rst()
            .ack(self.acknowledged)
            .write(&mut reset, &[])
            .ok()?;
        Some(reset)
    }

    /// The packet that says why there is no way there, in the destination's name.
    pub fn unreachable(&self, why: Why) -> Option<Vec<u8>> {
        let header = Header::read(&self.packet)?;
        packet::error(&header, &self.packet, header.destination, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: u16 = 40_000;
    const PORT: u16 = 22;

    fn packet(ipv6: bool, change: impl FnOnce(&mut etherparse::TcpHeader)) -> Vec<u8> {
        let mut header = etherparse::TcpHeader::new(CLIENT, PORT, u32::MAX, 64_000);
        header.syn = true;
        change(&mut header);
        let mut packet = Vec::new();
        let written = match ipv6 {
            false => PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 1], 64)
                .tcp_header(header)
                .write(&mut packet, &[]),
            true => PacketBuilder::ipv6([0x20; 16], [0x30; 16], 64)
                .tcp_header(header)
                .write(&mut packet, &[]),
        };
        written.unwrap();
        packet
    }

    #[test]
    fn a_refusal_acknowledges_the_first_packet_and_goes_back() {
        for ipv6 in [false, true] {
            let syn = Syn::read(&packet(ipv6, |_| {})).unwrap();
            assert_eq!((syn.client.port(), syn.destination.port()), (CLIENT, PORT));
            let reset = syn.refused().unwrap();
            let header = Header::read(&reset).unwrap();
            assert_eq!(header.source, syn.destination.ip());
            assert_eq!(header.destination, syn.client.ip());
            let ip = IpSlice::from_slice(&reset).unwrap();
            let tcp = TcpSlice::from_slice(ip.payload().payload).unwrap();
            assert!(tcp.rst() && tcp.ack() && !tcp.syn());
            assert_eq!(tcp.acknowledgment_number(), 0, "one behind the last number");
            assert_eq!((tcp.source_port(), tcp.destination_port()), (PORT, CLIENT));
        }
    }

    #[test]
    fn a_checksum_that_was_left_to_the_card_is_filled_in() {
        for ipv6 in [false, true] {
            let whole = packet(ipv6, |_| {});
            let mut open = whole.clone();
            let at = open.len() - 4;
            open[at..at + 2].copy_from_slice(&[0xab, 0xcd]);
            assert_eq!(Syn::read(&open).unwrap().packet(), whole);
        }
    }

    #[test]
    fn what_begins_no_connection_is_none() {
        for ipv6 in [false, true] {
            assert!(Syn::read(&packet(ipv6, |tcp| tcp.syn = false)).is_none());
            assert!(Syn::read(&packet(ipv6, |tcp| tcp.ack = true)).is_none());
            assert!(Syn::read(&packet(ipv6, |tcp| tcp.rst = true)).is_none());
            let whole = packet(ipv6, |_| {});
            for length in 0..whole.len() {
                assert!(Syn::read(&whole[..length]).is_none(), "{length}");
            }
        }
    }

    #[test]
    fn unreachable_quotes_the_packet() {
        let syn = Syn::read(&packet(false, |_| {})).unwrap();
        let told = syn.unreachable(Why::Unreachable).unwrap();
        assert!(told.ends_with(syn.packet()));
    }
}
