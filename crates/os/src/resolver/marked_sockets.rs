//! Sockets for questions of DNS that carry a mark, by which routing rules know them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use hickory_resolver::net::runtime::{RuntimeProvider, TokioRuntimeProvider};
use socket2::SockRef;
use tokio::net::{TcpSocket, UdpSocket};

/// What the resolver's library opens sockets by.
#[derive(Clone)]
pub(super) struct MarkedSockets {
    pub(super) mark: Option<u32>,
    plain: TokioRuntimeProvider,
}

impl std::fmt::Debug for MarkedSockets {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "MarkedSockets({:?})", self.mark)
    }
}

impl MarkedSockets {
    pub(super) fn new(mark: Option<u32>) -> Self {
        Self {
            mark,
            plain: TokioRuntimeProvider::default(),
        }
    }
}

/// Marks a socket. Without CAP_NET_ADMIN it goes without.
pub(super) fn set_mark<'a>(socket: impl Into<SockRef<'a>>, mark: Option<u32>) {
    if let Some(mark) = mark
        && let Err(error) = socket.into().set_mark(mark)
    {
        tracing::warn!("a question of DNS cannot be marked: {error}");
    }
}

type Opening<T> = Pin<Box<dyn Send + Future<Output = io::Result<T>>>>;

impl RuntimeProvider for MarkedSockets {
    type Handle = <TokioRuntimeProvider as RuntimeProvider>::Handle;
    type Timer = <TokioRuntimeProvider as RuntimeProvider>::Timer;
    type Udp = <TokioRuntimeProvider as RuntimeProvider>::Udp;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> Self::Handle {
        self.plain.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        bind: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let Some(_) = self.mark else {
            return self.plain.connect_tcp(server, bind, patience);
        };
        let mark = self.mark;
        Box::pin(async move {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            }?;
            set_mark(&socket, mark);
            if let Some(bind) = bind {
                socket.bind(bind)?;
            }
            let connecting =
                tokio::time::timeout(patience.unwrap_or(super::TIMEOUT), socket.connect(server));
            let stream = connecting.await.map_err(io::Error::from)??;
            Ok(hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd(
                stream,
            ))
        })
    }

    fn bind_udp(&self, local: SocketAddr, server: SocketAddr) -> Opening<Self::Udp> {
        let mark = self.mark;
        let binding = self.plain.bind_udp(local, server);
        Box::pin(async move {
            let socket: UdpSocket = binding.await?;
            set_mark(&socket, mark);
            Ok(socket)
        })
    }
}
