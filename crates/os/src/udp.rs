//! The local side of a flow of datagrams on a UDP socket of the machine.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use bentpipe_tunnel::sockets::DatagramSocket;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{Interest, ReadBuf};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// What the kernel holds of a flow that is not read, bytes: 80 ms at 20 Mbit/s.
const RECEIVE_BUFFER: usize = 208 * 1024;

/// A UDP socket that is connected to one peer.
#[derive(Debug)]
pub struct UdpFlow {
    socket: UdpSocket,
    /// What came before the socket was there.
    earlier: std::sync::Mutex<Option<mpsc::Receiver<Vec<u8>>>>,
}

impl UdpFlow {
    /// A socket of any local address that is connected to `peer`.
    pub fn to(peer: SocketAddr) -> io::Result<Self> {
        let socket = open(peer)?;
        socket.connect(&peer.into())?;
        Self::new(socket, None)
    }

    /// A socket that is connected to the application at `client` and answers from
    /// `destination`, which is another machine's address (ip(7), IP_TRANSPARENT). Datagrams
    /// that the kernel has delivered elsewhere before are in `earlier`.
    pub fn transparent(
        client: SocketAddr,
        destination: SocketAddr,
        earlier: mpsc::Receiver<Vec<u8>>,
    ) -> io::Result<Self> {
        let socket = open(destination)?;
        match destination {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
            SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
        }
        // Other clients have flows to the same destination.
        socket.set_reuse_address(true)?;
        socket.bind(&destination.into())?;
        socket.connect(&client.into())?;
        Self::new(socket, Some(earlier))
    }

    fn new(socket: Socket, earlier: Option<mpsc::Receiver<Vec<u8>>>) -> io::Result<Self> {
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
            earlier: earlier.into(),
        })
    }
}

fn open(towards: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(towards);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if towards.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    // The kernel grants what net.core.rmem_max allows; that is never an error.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    Ok(socket)
}

impl DatagramSocket for UdpFlow {
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(datagram) = self.poll_earlier(context) {
            let length = datagram.len().min(buffer.remaining());
            buffer.put_slice(&datagram[..length]);
            return Poll::Ready(Ok(()));
        }
        loop {
            match ready!(self.socket.poll_recv(context, buffer)) {
                Err(error) if is_of_one_datagram(&error) => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn poll_send(&self, context: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        match ready!(self.socket.poll_send(context, datagram)) {
            Err(error) if is_of_one_datagram(&error) => {
                tracing::debug!("datagram of {} bytes dropped: {error}", datagram.len());
                Poll::Ready(Ok(()))
            }
            sent => Poll::Ready(sent.map(drop)),
        }
    }

    async fn failure(&self) -> io::Error {
        loop {
            // An ICMP error makes a socket neither readable nor writable.
            if let Err(error) = self.socket.ready(Interest::ERROR).await {
                return error;
            }
            match self.socket.take_error() {
                Ok(Some(error)) if !is_of_one_datagram(&error) => return error,
                Err(error) => return error,
                // Somebody else has it, or it says nothing of the next datagram.
                Ok(_) => {
                    let _ = self.socket.try_io(Interest::ERROR, || {
                        Err::<(), _>(io::ErrorKind::WouldBlock.into())
                    });
                }
            }
        }
    }
}

/// Whether an error says nothing of the datagrams that follow: too long for the path or for
/// the device, no room in its queue, or forbidden by a local rule. Any router would drop it.
fn is_of_one_datagram(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMSGSIZE | libc::ENOBUFS | libc::EPERM)
    )
}

impl UdpFlow {
    fn poll_earlier(&self, context: &mut Context<'_>) -> Option<Vec<u8>> {
        let mut earlier = self.earlier.lock().unwrap_or_else(|e| e.into_inner());
        match earlier.as_mut()?.poll_recv(context) {
            Poll::Ready(Some(datagram)) => Some(datagram),
            Poll::Ready(None) => {
                *earlier = None;
                None
            }
            Poll::Pending => None,
        }
    }
}
