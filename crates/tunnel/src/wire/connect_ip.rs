//! CONNECT-IP (RFC 9484): the request for IP packets, and the capsules that say with which
//! addresses and to where.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bentpipe_quic::connect_headers::CONNECT_IP;
use bentpipe_quic::varint;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, Request, Uri};

use super::capsule::{self, MalformedCapsule};
use super::proxy_status::{ErrorKind, Refusal};
use super::{connect, connect_udp};
use crate::target::Target;

/// Where target and protocol stand in the path: the default template (section 3).
const PREFIX: &str = "/.well-known/masque/ip/";
/// The type of capsules that assign addresses (section 4.7.1).
pub const ADDRESS_ASSIGN: u64 = 1;
/// Of those that ask for addresses (section 4.7.2).
pub const ADDRESS_REQUEST: u64 = 2;
/// Of those that say where packets may go (section 4.7.3).
pub const ROUTE_ADVERTISEMENT: u64 = 3;
/// Addresses in one capsule that are looked at; more are a malformed capsule.
const MOST_ADDRESSES: usize = 64;

/// Asks `gateway` for packets to and from anywhere, of any protocol that it permits, for the
/// host with number `host`; 0 for nobody in particular.
pub fn request(gateway: &Target, host: u32) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::builder()
        .scheme("https")
        .authority(gateway.to_string())
        .path_and_query(format!("{PREFIX}*/*/"))
        .build()
        .expect("a checked gateway is a part of a URI");
    request.extensions_mut().insert(CONNECT_IP);
    let headers = request.headers_mut();
    connect_udp::set_capsule_protocol(headers);
    connect::set_host(headers, host);
    request
}

/// Checks that a request is for packets to and from anywhere. The error is the answer to one
/// that is not.
pub fn check(request: &Request<()>) -> Result<(), Refusal> {
    let path = request.uri().path();
    let parts = path.strip_prefix(PREFIX).and_then(|rest| {
        let (target, protocol) = rest.strip_suffix('/').unwrap_or(rest).split_once('/')?;
        Some([target, protocol])
    });
    let refusal = |kind, detail: &str| Refusal {
        kind,
        detail: detail.into(),
    };
    let Some(parts) = parts else {
        return Err(refusal(
            ErrorKind::HttpRequestError,
            "the path of CONNECT-IP is /.well-known/masque/ip/*/*/",
        ));
    };
    match parts
        .iter()
        .all(|part| matches!(*part, "*" | "%2A" | "%2a"))
    {
        true => Ok(()),
        false => Err(refusal(
            ErrorKind::Unsupported,
            "of CONNECT-IP, any target and any protocol only: /.well-known/masque/ip/*/*/",
        )),
    }
}

/// An address that is assigned, or asked for (sections 4.7.1 and 4.7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The request that it answers; 0 for none.
    pub request: u64,
    /// The address; unspecified for any, and for none.
    pub address: IpAddr,
    /// Leading bits that count.
    pub prefix: u8,
}

impl Address {
    /// A whole address.
    pub fn whole(request: u64, address: IpAddr) -> Self {
        Self {
            request,
            address,
            prefix: bits(address),
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// ADDRESS_ASSIGN or ADDRESS_REQUEST with `addresses`.
pub fn addresses(kind: u64, addresses: &[Address]) -> Bytes {
    let mut content = BytesMut::new();
    for address in addresses {
        varint::put(address.request, &mut content);
        put(address.address, &mut content);
        content.put_u8(address.prefix);
    }
    capsule::write(kind, &content)
}

/// The addresses of such a capsule's content.
pub fn read_addresses(mut content: &[u8]) -> Result<Vec<Address>, MalformedCapsule> {
    let mut addresses = Vec::new();
    while !content.is_empty() {
        let (request, length) = varint::read(content).ok_or(MalformedCapsule)?;
        let (address, rest) = read(&content[length..]).ok_or(MalformedCapsule)?;
        let (&prefix, rest) = rest.split_first().ok_or(MalformedCapsule)?;
        if prefix > bits(address) || addresses.len() == MOST_ADDRESSES {
            return Err(MalformedCapsule);
        }
        addresses.push(Address {
            request,
            address,
            prefix,
        });
        content = rest;
    }
    Ok(addresses)
}

/// ROUTE_ADVERTISEMENT (section 4.7.3) of everything: for each family that `ipv4` and `ipv6`
/// say, and of each by `protocols`, which are in ascending order; 0 is any.
pub fn routes(families: [Option<&[u8]>; 2]) -> Bytes {
    let mut content = BytesMut::new();
    let ranges: [[IpAddr; 2]; 2] = [
        [Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()],
        [
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::from(u128::MAX).into(),
        ],
    ];
    for (protocols, [first, last]) in families.into_iter().zip(ranges) {
        for protocol in protocols.unwrap_or_default() {
            put(first, &mut content);
            // Without the version, which stands before the first.
            match last {
                IpAddr::V4(last) => content.put_slice(&last.octets()),
                IpAddr::V6(last) => content.put_slice(&last.octets()),
            }
            content.put_u8(*protocol);
        }
    }
    capsule::write(ROUTE_ADVERTISEMENT, &content)
}

/// Version and address.
fn put(address: IpAddr, out: &mut BytesMut) {
    match address {
        IpAddr::V4(address) => {
            out.put_u8(4);
            out.put_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.put_u8(6);
            out.put_slice(&address.octets());
        }
    }
}

fn read(content: &[u8]) -> Option<(IpAddr, &[u8])> {
    match content.split_first()? {
        (4, rest) => {
            let (address, rest) = rest.split_first_chunk::<4>()?;
            Some((Ipv4Addr::from(*address).into(), rest))
        }
        (6, rest) => {
            let (address, rest) = rest.split_first_chunk::<16>()?;
            Some((Ipv6Addr::from(*address).into(), rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_and_nothing_malformed_does() {
        let both = [
            Address::whole(1, "192.0.2.7".parse().unwrap()),
            Address::whole(2, "2001:db8::7".parse().unwrap()),
        ];
        let capsule = addresses(ADDRESS_ASSIGN, &both);
        // Type and length are one byte each.
        assert_eq!(capsule[..2], [1, 26]);
        let content = &capsule[2..];
        assert_eq!(read_addresses(content), Ok(both.to_vec()));
        for length in (1..content.len()).filter(|length| *length != 7) {
            assert!(read_addresses(&content[..length]).is_err(), "{length}");
        }
        let wrong: [&[u8]; 3] = [
            &[0, 5, 1, 2, 3, 4, 32],
            &[0, 4, 1, 2, 3, 4, 33],
            &[0, 6, 1, 2, 3, 4, 32],
        ];
        for content in wrong {
            assert!(read_addresses(content).is_err());
        }
    }

    #[test]
    fn a_request_is_for_everything() {
        let gateway = "192.0.2.1:4433".parse().unwrap();
        let mut asked = request(&gateway, 0);
        assert_eq!(check(&asked), Ok(()));
        for (path, kind) in [
            (
                "/.well-known/masque/ip/192.0.2.0%2F24/1/",
                ErrorKind::Unsupported,
            ),
            ("/.well-known/masque/ip/", ErrorKind::HttpRequestError),
            ("/.well-known/masque/udp/a/53/", ErrorKind::HttpRequestError),
        ] {
            *asked.uri_mut() = format!("https://192.0.2.1:4433{path}").parse().unwrap();
            assert_eq!(check(&asked).unwrap_err().kind, kind, "{path}");
        }
    }
}
