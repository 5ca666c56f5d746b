//! ICMP errors about datagrams, told to an application in the name of its peer.
//!
//! The kernel of the application's machine finds the socket by the headers that an error
//! quotes (RFC 792, RFC 4443), and the application is told as if there were no tunnel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bentpipe_tunnel::terminal::Unreachable;
use socket2::{Domain, Protocol, Socket, Type};

/// The protocol number of UDP, and a lifetime that any sender may have chosen.
const UDP: u8 = 17;
const TTL: u8 = 64;

/// What an application is told.
#[derive(Debug, Clone, Copy)]
enum What {
    Unreachable(Unreachable),
    /// With how long packets may be, bytes.
    TooBig(u16),
}

/// Tells the application at `client` that its `peer` cannot be reached, from the peer's
/// address. Needs CAP_NET_RAW.
pub fn tell(client: SocketAddr, peer: SocketAddr, what: Unreachable) -> io::Result<()> {
    send(client, peer, What::Unreachable(what))
}

/// Tells it that a datagram was too long, and that packets of up to `mtu` bytes reach the peer.
pub fn tell_too_big(client: SocketAddr, peer: SocketAddr, mtu: u16) -> io::Result<()> {
    send(client, peer, What::TooBig(mtu))
}

fn send(client: SocketAddr, peer: SocketAddr, what: What) -> io::Result<()> {
    let (message, domain, protocol) = match (client.ip(), peer.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (
            about_v4((from, client.port()), (to, peer.port()), what),
            Domain::IPV4,
            Protocol::ICMPV4,
        ),
        (IpAddr::V6(from), IpAddr::V6(to)) => (
            about_v6((from, client.port()), (to, peer.port()), what),
            Domain::IPV6,
            Protocol::ICMPV6,
        ),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    match peer {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
    }
    socket.bind(&SocketAddr::new(peer.ip(), 0).into())?;
    socket.send_to(&message, &SocketAddr::new(client.ip(), 0).into())?;
    Ok(())
}

/// Destination Unreachable (RFC 792; code 13 is of RFC 1812, section 5.2.7.1, and the MTU of
/// RFC 1191, section 4).
fn about_v4(
    (from, source): (Ipv4Addr, u16),
    (to, destination): (Ipv4Addr, u16),
    what: What,
) -> Vec<u8> {
    let (code, [high, low]) = match what {
        What::Unreachable(Unreachable::Host) => (1, [0; 2]),
        What::Unreachable(Unreachable::Port) => (3, [0; 2]),
        What::TooBig(mtu) => (4, mtu.to_be_bytes()),
        What::Unreachable(Unreachable::Prohibited) => (13, [0; 2]),
    };
    let mut message = vec![3, code, 0, 0, 0, 0, high, low];
    let mut header = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, TTL, UDP, 0, 0];
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    message.extend(header);
    message.extend(udp_header(source, destination));
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

/// Destination Unreachable or Packet Too Big (RFC 4443, sections 3.1 and 3.2); the kernel enters its
/// checksum.
fn about_v6(
    (from, source): (Ipv6Addr, u16),
    (to, destination): (Ipv6Addr, u16),
    what: What,
) -> Vec<u8> {
    let (kind, code, [high, low]) = match what {
        What::Unreachable(Unreachable::Prohibited) => (1, 1, [0; 2]),
        What::Unreachable(Unreachable::Host) => (1, 3, [0; 2]),
        What::Unreachable(Unreachable::Port) => (1, 4, [0; 2]),
        What::TooBig(mtu) => (2, 0, mtu.to_be_bytes()),
    };
    let mut message = vec![kind, code, 0, 0, 0, 0, high, low];
    message.extend([0x60, 0, 0, 0, 0, 8, UDP, TTL]);
    message.extend(from.octets());
    message.extend(to.octets());
    message.extend(udp_header(source, destination));
    message
}

/// The header of a datagram without payload.
fn udp_header(source: u16, destination: u16) -> [u8; 8] {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    [a, b, c, d, 0, 8, 0, 0]
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum = 0u16;
    for pair in bytes.chunks_exact(2) {
        let (added, carry) = sum.overflowing_add(u16::from_be_bytes([pair[0], pair[1]]));
        sum = added + u16::from(carry);
    }
    (!sum).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_sums_up_to_nothing() {
        let of = |last: u8| Ipv4Addr::new(192, 0, 2, last);
        for what in [What::Unreachable(Unreachable::Port), What::TooBig(1400)] {
            let message = about_v4((of(1), 5000), (of(2), 53), what);
            assert_eq!(message.len(), 36);
            assert_eq!(checksum(&message), [0, 0]);
            assert_eq!(checksum(&message[8..28]), [0, 0], "the quoted header");
        }
    }
}
