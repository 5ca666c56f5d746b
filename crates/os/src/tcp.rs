//! TCP as the tunnel wants it: [`bentpipe_tunnel::sockets`] on the machine's sockets.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bentpipe_tunnel::sockets::{Dial, Resolve, Socket};
use bentpipe_units::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use crate::receive_memory::{Lent, ReceiveMemory};

/// A peer that has vanished without a word is noticed after about ten minutes; RFC
/// 5382 lets NATs forget a silent connection after two hours at the earliest.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(300), Duration::from_secs(60), 5);

/// What an origin may send before the gateway has read any of it: 100 Mbit/s at 80 ms.
const ORIGIN_WINDOW: libc::c_int = 1 << 20;

/// What the kernel takes of a flow before it can send it, bytes.
const UNSENT: u32 = 128 * 1024;

/// A connection that is reset when it is dropped, also when the process is killed.
#[derive(Debug)]
pub struct TcpFlow {
    stream: Arc<TcpStream>,
    /// What the kernel may hold for it, if that is counted.
    lent: Option<Lent>,
}

impl TcpFlow {
    /// Makes `stream` a flow's local side.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        let (idle, interval, probes) = KEEPALIVE;
        let socket = SockRef::from(&stream);
        socket.set_tcp_nodelay(true)?;
        // What is not sent yet waits here, where it is counted, not in the kernel.
        socket.set_tcp_notsent_lowat(UNSENT)?;
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(idle)
                .with_interval(interval)
                .with_retries(probes),
        )?;
        // Whoever closes the socket, and be it the kernel after a crash, sends RST:
        // nobody may take half a transfer for a whole one.
        socket.set_linger(Some(Duration::ZERO))?;
        Ok(Self {
            stream: Arc::new(stream),
            lent: None,
        })
    }
}

impl Socket for TcpFlow {
    fn close(self) {
        // What is still to be sent is the kernel's to deliver. Should this fail, the
        // connection is reset instead, which is the safe side.
        let _ = SockRef::from(&*self.stream).set_linger(None);
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        let stream = self.stream.clone();
        async move {
            if let Err(error) = stream.ready(Interest::ERROR).await {
                return error;
            }
            match stream.take_error() {
                Ok(Some(error)) | Err(error) => error,
                Ok(None) => io::ErrorKind::ConnectionReset.into(),
            }
        }
    }
}

impl AsyncRead for TcpFlow {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TcpFlow {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(Shutdown::Write))
    }
}

/// Dials with the machine's TCP and asks the machine's resolver. Clones share memory.
#[derive(Debug, Clone)]
pub struct Machine {
    receive: ReceiveMemory,
}

impl Machine {
    /// A dialler whose connections may hold half of `memory` unread in the kernel.
    pub fn new(memory: Bytes) -> Self {
        Self {
            receive: ReceiveMemory::new(memory.as_u64() / 2),
        }
    }
}

impl Resolve for Machine {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0))
            .await?
            .map(|address| address.ip())
            .collect())
    }
}

impl Dial for Machine {
    type Socket = TcpFlow;

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpFlow> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        let lent = self.receive.lend();
        if let Some(bytes) = lent.fixed() {
            socket.set_recv_buffer_size(bytes)?;
        }
        let stream = socket.connect(address).await?;
        if lent.fixed().is_none() {
            open_window(&stream);
        }
        let mut flow = TcpFlow::new(stream)?;
        flow.lent = Some(lent);
        Ok(flow)
    }

    fn own_addresses(&self) -> io::Result<Vec<IpAddr>> {
        let interfaces = if_addrs::get_if_addrs()?;
        Ok(interfaces.iter().map(if_addrs::Interface::ip).collect())
    }
}

/// Starts the receive window at [`ORIGIN_WINDOW`] instead of 64 KiB.
///
/// Linux grows it while the reader keeps up, and judges that when the first packet of a
/// burst is read: the rest of the burst then counts as not kept up with. On a path of
/// tens of milliseconds, where packets come in bursts, the window can stay at 64 KiB for
/// a whole download. Raising the low-water mark makes the kernel raise the buffer
/// (tcp_set_rcvlowat in net/ipv4/tcp.c), without privileges, without the ceiling of
/// net.core.rmem_max, and without ending its own growth as SO_RCVBUF would.
fn open_window(stream: &TcpStream) {
    let size = size_of::<libc::c_int>()
        .try_into()
        .expect("the size of an int fits");
    for mark in [ORIGIN_WINDOW, 1] {
        // SAFETY: the descriptor is open for the length of the call, and the option's
        // value is the one C int that SO_RCVLOWAT takes.
        #[expect(unsafe_code, reason = "no library offers SO_RCVLOWAT")]
        let result = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const mark).cast(),
                size,
            )
        };
        if result != 0 {
            // It goes without, only slower.
            tracing::debug!("SO_RCVLOWAT: {}", io::Error::last_os_error());
        }
    }
}
