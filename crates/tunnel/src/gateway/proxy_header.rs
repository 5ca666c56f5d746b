//! PROXY protocol version 2 (the HAProxy specification of 2020, section 2.2): the header by
//! which a server behind a proxy is told who its client is.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, command PROXY.
const PROXY: u8 = 0x21;
/// Address family and transport: TCP over IPv4, TCP over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// The header of a TCP connection of `client`, which it made to `server`. Addresses of
/// different families are both written as IPv6.
pub fn header(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    let (from, to) = (client.ip().to_canonical(), server.ip().to_canonical());
    let (family, addresses) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (TCP4, [from.octets(), to.octets()].concat()),
        _ => (TCP6, [ipv6(from).octets(), ipv6(to).octets()].concat()),
    };
    let length = u16::try_from(addresses.len() + 4).expect("at most 36 bytes");
    header.extend([PROXY, family]);
    header.extend(length.to_be_bytes());
    header.extend(addresses);
    header.extend(client.port().to_be_bytes());
    header.extend(server.port().to_be_bytes());
    header
}

fn ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_and_a_mixture() {
        let header_of = |a: &str, b: &str| header(a.parse().unwrap(), b.parse().unwrap());
        let ipv4 = header_of("192.0.2.1:1234", "198.51.100.2:80");
        assert_eq!(
            ipv4[12..],
            [
                0x21, 0x11, 0, 12, 192, 0, 2, 1, 198, 51, 100, 2, 4, 210, 0, 80
            ]
        );
        assert_eq!(
            &ipv4[..12],
            b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a"
        );
        let mixed = header_of("192.0.2.1:1234", "[2001:db8::2]:80");
        assert_eq!(
            (mixed.len(), &mixed[12..16]),
            (52, &[0x21, 0x21, 0, 36][..])
        );
    }
}
