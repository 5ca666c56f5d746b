//! A UDP socket that gives packets of version 2 the types of version 1 when they arrive.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use noq::udp::RecvMeta;
use noq::{AsyncUdpSocket, UdpSender};

use super::header;

/// A socket of an endpoint that speaks version 2.
#[derive(Debug)]
pub struct Version2Socket(pub Box<dyn AsyncUdpSocket>);

impl AsyncUdpSocket for Version2Socket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        self.0.create_sender()
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.0.poll_recv(context, buffers, meta))?;
        for (buffer, meta) in buffers.iter_mut().zip(&*meta).take(count) {
            let length = meta.len.min(buffer.len());
            for datagram in buffer[..length].chunks_mut(meta.stride.max(1)) {
                header::translate(datagram);
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
