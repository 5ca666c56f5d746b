//! IPv4 peers by their IPv6-mapped addresses (RFC 4291, section 2.5.5.2), for endpoints to which
//! peers migrate.
//!
//! The QUIC library takes a new port of the same IPv4 address for the same path behind a NAT: it
//! keeps its round-trip time, and gives up validating the path after three of its timeouts. Where the
//! path is another one, a satellite's after one over land, no answer comes in that time, and the
//! path stays good for three times what comes in by it: the connection never recovers. Of IPv6
//! addresses it takes every change for another path, whose round trip it does not know.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};

/// `socket` with mapped addresses of its peers; one of IPv6 has them already.
pub fn mapped(socket: Box<dyn AsyncUdpSocket>) -> Box<dyn AsyncUdpSocket> {
    match socket.local_addr() {
        Ok(own) if own.is_ipv4() => Box::new(Mapped(socket)),
        _ => socket,
    }
}

#[derive(Debug)]
struct Mapped(Box<dyn AsyncUdpSocket>);

#[derive(Debug)]
struct Sender(Pin<Box<dyn UdpSender>>);

impl AsyncUdpSocket for Mapped {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(Sender(self.0.create_sender()))
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.0.poll_recv(context, buffers, meta))?;
        for meta in &mut meta[..count] {
            if let IpAddr::V4(address) = meta.addr.ip() {
                meta.addr.set_ip(address.to_ipv6_mapped().into());
            }
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_receive_segments(&self) -> NonZeroUsize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}

impl UdpSender for Sender {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut destination = transmit.destination;
        destination.set_ip(destination.ip().to_canonical());
        let transmit = Transmit {
            destination,
            ..transmit.clone()
        };
        self.0.as_mut().poll_send(&transmit, context)
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.0.max_transmit_segments()
    }
}
