//! IPv4 peers by their IPv6-mapped addresses (RFC 4291, section 2.5.5.2), for endpoints to which
//! peers migrate.
//!
//! The QUIC library takes a new port of the same IPv4 address for the same path behind a NAT: it
//! keeps its round-trip time, and gives up validating the path after three of its timeouts. Where the
//! path is another one, a satellite's after one over land, no answer comes in that time, and the
//! path stays good for three times what comes in by it: the connection never recovers. Of IPv6
//! addresses it takes every change for another path, whose round trip it does not know.

use std::io::IoSliceMut;
use std::net::IpAddr;

use noq::AsyncUdpSocket;
use noq::udp::{RecvMeta, Transmit};

use crate::layer::{Layer, Sending};

/// `socket` with mapped addresses of its peers; one of IPv6 has them already.
pub fn mapped(socket: Box<dyn AsyncUdpSocket>) -> Box<dyn AsyncUdpSocket> {
    match socket.local_addr() {
        Ok(own) if own.is_ipv4() => Mapped.over(socket),
        _ => socket,
    }
}

#[derive(Debug)]
struct Mapped;

impl Layer for Mapped {
    fn on_received(&mut self, _buffers: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) {
        for meta in meta {
            if let IpAddr::V4(address) = meta.addr.ip() {
                meta.addr.set_ip(address.to_ipv6_mapped().into());
            }
        }
    }

    fn sending(&self) -> Option<Box<dyn Sending>> {
        Some(Box::new(Self))
    }
}

impl Sending for Mapped {
    fn outgoing<'a>(&self, transmit: &Transmit<'a>) -> Transmit<'a> {
        let mut outgoing = transmit.clone();
        let own = outgoing.destination.ip().to_canonical();
        outgoing.destination.set_ip(own);
        outgoing
    }
}
