//! A UDP socket that sends without ECN (RFC 3168), for measurements of what ECN does.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll};

use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};

/// Sends everything as not ECN-capable. The QUIC library has no switch for it.
#[derive(Debug)]
pub struct WithoutEcn(pub Box<dyn AsyncUdpSocket>);

impl AsyncUdpSocket for WithoutEcn {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(SenderWithoutEcn(self.0.create_sender()))
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(context, buffers, meta)
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

#[derive(Debug)]
struct SenderWithoutEcn(Pin<Box<dyn UdpSender>>);

impl UdpSender for SenderWithoutEcn {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let plain = Transmit {
            destination: transmit.destination,
            ecn: None,
            contents: transmit.contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        self.0.as_mut().poll_send(&plain, context)
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.0.max_transmit_segments()
    }
}
