//! TCP as the tunnel wants it: [`bentpipe_tunnel::sockets`] on the machine's sockets.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bentpipe_tunnel::sockets::{Dial, Resolve, Socket};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A peer that has vanished without a word is noticed after about ten minutes; RFC
/// 5382 lets NATs forget a silent connection after two hours at the earliest.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(300), Duration::from_secs(60), 5);

/// What an origin may send before the gateway has read any of it: 100 Mbit/s at 80 ms.
const ORIGIN_WINDOW: libc::c_int = 1 << 20;

/// A connection that is reset when it is dropped, also when the process is killed.
#[derive(Debug)]
pub struct TcpFlow(Arc<TcpStream>);

impl TcpFlow {
    /// Makes `stream` a flow's local side.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        let (idle, interval, probes) = KEEPALIVE;
        let socket = SockRef::from(&stream);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(idle)
                .with_interval(interval)
                .with_retries(probes),
        )?;
        // Whoever closes the socket, and be it the kernel after a crash, sends RST:
        // nobody may take half a transfer for a whole one.
        socket.set_linger(Some(Duration::ZERO))?;
        Ok(Self(Arc::new(stream)))
    }
}

impl Socket for TcpFlow {
    fn close(self) {
        // What is still to be sent is the kernel's to deliver. Should this fail, the
        // connection is reset instead, which is the safe side.
        let _ = SockRef::from(&*self.0).set_linger(None);
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        let stream = self.0.clone();
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
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
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
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

/// Dials with the machine's TCP and asks the machine's resolver.
#[derive(Debug, Clone, Copy)]
pub struct Machine;

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
        let stream = TcpStream::connect(address).await?;
        open_window(&stream);
        TcpFlow::new(stream)
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        match if_addrs::get_if_addrs() {
            Ok(interfaces) => interfaces.iter().map(if_addrs::Interface::ip).collect(),
            Err(error) => {
                tracing::warn!("the machine's own addresses cannot be read: {error}");
                Vec::new()
            }
        }
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
