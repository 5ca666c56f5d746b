//! How TCP connections are set up, by the kernel's own means.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::initial_window::InitialWindow;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;
/// Where the kernel lists its controllers.
const CONTROLLERS: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// How an end's connections are set up; what is not given is the kernel's to choose.
#[derive(Debug, Clone, Default)]
pub struct TcpOptions {
    /// Congestion controller (TCP_CONGESTION).
    pub controller: Option<String>,
    /// Initial window, by routes that have it.
    pub initial_window: Option<Arc<InitialWindow>>,
    /// Largest segment (TCP_MAXSEG).
    pub segment: Option<u32>,
    /// Receive buffer (SO_RCVBUF); given, the kernel does not tune it any more.
    pub receive_buffer: Option<usize>,
    /// Send buffer (SO_SNDBUF), likewise.
    pub send_buffer: Option<usize>,
}

impl TcpOptions {
    /// Sets up `socket` before it is connected; what a socket accepts that listens is set up
    /// like it.
    pub fn apply(&self, socket: &Socket) -> io::Result<()> {
        if let Some(name) = &self.controller {
            socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
                let known = std::fs::read_to_string(CONTROLLERS).unwrap_or_default();
                io::Error::new(
                    error.kind(),
                    format!(
                        "this kernel has no congestion controller {name:?}, or lets only root use it ({error}); it has {}",
                        known.trim().replace(' ', ", ")
                    ),
                )
            })?;
        }
        if let Some(window) = &self.initial_window {
            socket.set_mark(window.mark())?;
        }
        if let Some(segment) = self.segment {
            socket.set_tcp_mss(segment)?;
        }
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        Ok(())
    }

    fn socket(&self, address: SocketAddr) -> io::Result<TcpSocket> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        self.apply(&socket)?;
        socket.set_nonblocking(true)?;
        Ok(TcpSocket::from_std_stream(socket.into()))
    }

    /// Connects to `address`.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = self.socket(address)?.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Listens at `address`.
    pub fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.socket(address)?;
        socket.set_reuseaddr(true)?;
        if address.is_ipv6() {
            // IPv4 peers reach a wildcard IPv6 socket too, where the system has both.
            let _ = SockRef::from(&socket).set_only_v6(false);
        }
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_controller_is_told_with_those_that_there_are() {
        let options = TcpOptions {
            controller: Some("nosuch".into()),
            ..TcpOptions::default()
        };
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let error = options
            .apply(&socket)
            .expect_err("there is none")
            .to_string();
        assert!(error.contains("\"nosuch\""), "{error}");
        assert!(error.contains("cubic") || error.contains("reno"), "{error}");
    }
}
