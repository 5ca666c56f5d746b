//! Sockets, dialler and resolver that terminal and gateway are handed.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use hickory_proto::op::Message;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::marking::{Marked, Marking};

/// A connected byte stream: the local side of a flow.
///
/// Dropping it aborts the connection (RST for TCP), so that whatever goes wrong,
/// the peer never mistakes a torn flow for a finished one. Only [`Self::close`]
/// ends it well.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Lets the connection go after both directions have ended.
    fn close(self);

    /// Resolves when the peer has reset the connection, also while nothing is read or
    /// written: behind a half-close, or with an upload that cannot go on.
    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static;
}

/// A UDP socket that is connected to one peer: the local side of a flow of datagrams.
///
/// What others than the peer send does not arrive. Errors are those that ICMP tells of the
/// peer; what concerns one datagram alone, such as its length, is none.
pub trait DatagramSocket: Send + Sync + 'static {
    /// Receives one datagram, marked as far as the machine tells.
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<Marking>>;

    /// Sends one datagram.
    fn poll_send(
        &self,
        context: &mut Context<'_>,
        datagram: &[u8],
        marking: Marking,
    ) -> Poll<io::Result<()>>;

    /// Sends the first of `datagrams`, and with it as many of those that follow as leave in one step; how many.
    fn poll_send_several(
        &self,
        context: &mut Context<'_>,
        datagrams: &[Marked],
    ) -> Poll<io::Result<usize>> {
        let Some((marking, payload)) = datagrams.first() else {
            return Poll::Ready(Ok(0));
        };
        (self.poll_send(context, payload, *marking)).map_ok(|()| 1)
    }

    /// Resolves when a datagram that must not be cut did not go out because it was too long: IP
    /// packets of how many bytes would have reached the peer.
    fn poll_too_long(&self, context: &mut Context<'_>) -> Poll<u16> {
        let _ = context;
        Poll::Pending
    }

    /// Tells the peer that what it sends reaches the other end in IP packets of up to `mtu` bytes,
    /// where there is a way to tell it.
    fn tell_path_mtu(&self, mtu: u16) {
        let _ = mtu;
    }

    /// Resolves when an error is known, also while nothing is sent or received.
    fn failure(&self) -> impl Future<Output = io::Error> + Send;
}

/// A network interface whose packets go into the tunnel, and come from there.
pub trait PacketDevice: Send + Sync + 'static {
    /// Takes the next IP packet that the machine sends by the interface.
    fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>>;

    /// Gives the machine an IP packet, as if it came in by the interface. One that it does not
    /// take is lost.
    fn send(&self, packet: &[u8]);

    /// Gives the interface `addresses` in place of those it has.
    fn set_addresses(&self, addresses: &[IpAddr]) -> io::Result<()>;
}

/// Asks DNS.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of `host`, the preferred first.
    fn resolve(&self, host: &str) -> impl Future<Output = io::Result<Vec<IpAddr>>> + Send;

    /// What the name servers answer to `question`, whatever that is. The error says that none
    /// has answered; where there are none, that is all that is ever said.
    fn query(&self, question: Message) -> impl Future<Output = io::Result<Message>> + Send {
        drop(question);
        async { Err(io::Error::other("there is no name server")) }
    }
}

/// Connects to origins on behalf of the gateway.
pub trait Dial: Resolve {
    /// What a connection is.
    type Socket: Socket;
    /// What exchanges datagrams with a peer.
    type Datagrams: DatagramSocket;

    /// Connects to `address`.
    fn dial(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Socket>> + Send;

    /// The same from `source`, an address of the machine's own.
    fn dial_from(
        &self,
        source: IpAddr,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::Socket>> + Send {
        let _ = (source, address);
        async { Err(io::ErrorKind::Unsupported.into()) }
    }
    /// Opens a UDP socket that is connected to `address`.
    fn dial_udp(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::Datagrams>> + Send;

    /// The addresses of the machine itself, now. Without them nothing may be dialled.
    fn own_addresses(&self) -> io::Result<Arc<[IpAddr]>>;
}
