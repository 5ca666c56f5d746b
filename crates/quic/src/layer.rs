//! Layers over a UDP socket: what happens to datagrams between the QUIC library and the system.

use std::fmt::Debug;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};

/// What is done to a socket's datagrams. Without a method of its own a layer changes nothing.
pub trait Layer: Debug + Send + Sync + Sized + 'static {
    /// Takes datagrams from `socket`, which may be held back for a later call.
    fn receive(
        &mut self,
        socket: &mut dyn AsyncUdpSocket,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        socket.poll_recv(context, buffers, meta)
    }

    /// Datagrams have come in: one or, of equal length, several in each buffer (GRO).
    fn on_received(&mut self, _buffers: &mut [IoSliceMut<'_>], _meta: &mut [RecvMeta]) {}

    /// What is done to the datagrams of one connection as they leave.
    fn sending(&self) -> Option<Box<dyn Sending>> {
        None
    }

    /// `socket` with this layer over it.
    fn over(self, socket: Box<dyn AsyncUdpSocket>) -> Box<dyn AsyncUdpSocket> {
        Box::new(Layered {
            socket,
            layer: self,
        })
    }
}

/// What is done to the datagrams of one connection as they leave.
pub trait Sending: Debug + Send + Sync {
    /// `transmit` as it leaves.
    fn outgoing<'a>(&self, transmit: &Transmit<'a>) -> Transmit<'a> {
        transmit.clone()
    }

    /// It has left.
    fn on_sent(&mut self, _transmit: &Transmit<'_>) {}

    /// Of `most` datagrams that could leave at once, those that may.
    fn batch(&self, most: NonZeroUsize) -> NonZeroUsize {
        most
    }
}

/// The datagrams of what the system gave or takes as one, of equal length but for the last (GRO, GSO).
pub fn datagrams(contents: &[u8], segment: Option<usize>) -> impl Iterator<Item = &[u8]> {
    contents.chunks(segment.unwrap_or(contents.len()).max(1))
}

#[derive(Debug)]
struct Layered<L> {
    socket: Box<dyn AsyncUdpSocket>,
    layer: L,
}

impl<L: Layer> AsyncUdpSocket for Layered<L> {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        let sender = self.socket.create_sender();
        match self.layer.sending() {
            Some(layer) => Box::pin(LayeredSender { sender, layer }),
            None => sender,
        }
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = ready!((self.layer).receive(&mut *self.socket, context, buffers, meta))?;
        (self.layer).on_received(&mut buffers[..count], &mut meta[..count]);
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_receive_segments(&self) -> NonZeroUsize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

#[derive(Debug)]
struct LayeredSender {
    sender: Pin<Box<dyn UdpSender>>,
    layer: Box<dyn Sending>,
}

impl UdpSender for LayeredSender {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let outgoing = self.layer.outgoing(transmit);
        ready!(self.sender.as_mut().poll_send(&outgoing, context))?;
        self.layer.on_sent(&outgoing);
        Poll::Ready(Ok(()))
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.layer.batch(self.sender.max_transmit_segments())
    }
}
