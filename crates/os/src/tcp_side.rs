//! One side of a splitting TCP proxy: congestion control and initial window of its
//! connections, by the kernel's own means.
//!
//! The congestion controller is a socket option (TCP_CONGESTION in tcp(7)). The initial
//! window is an attribute of routes (`initcwnd` in ip-route(8)), so a side with one has a mark
//! on its sockets, a routing rule for that mark, and a routing table with copies of the
//! machine's routes that differ in nothing else.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Before the main table, behind what transparent ingress has.
const PRIORITY: &str = "99";
/// Words in the kernel's list of routes that tell of a state and are no part of the route.
const STATES: &[&str] = &["linkdown", "dead", "offload", "trap", "rt_trap"];

/// How connections of one side are set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSide {
    /// The kernel's name of a congestion controller; without it, the system's default.
    pub controller: Option<String>,
    /// Initial window, packets; without it, that of the routes.
    pub initial_window: Option<u32>,
    /// Mark of its sockets, and number of its routing table.
    pub mark: u32,
}

/// Why a side cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TcpSideError {
    /// The kernel does not have it.
    #[error(
        "this kernel has no congestion controller {name:?}; there are: {there}(`modprobe tcp_{name}` may load it)"
    )]
    Controller {
        /// Which.
        name: String,
        /// Those that there are.
        there: String,
    },
    /// Routes or the rule.
    #[error("the routes with an initial window of {packets} packets cannot be made: {why}")]
    Routes {
        /// The window.
        packets: u32,
        /// What `ip` said.
        why: String,
    },
}

impl TcpSide {
    /// Checks the controller, and makes the routes with its initial window.
    pub fn install(&self) -> Result<(), TcpSideError> {
        if let Some(name) = &self.controller {
            let probe = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
            if probe.is_ok_and(|probe| probe.set_tcp_congestion(name.as_bytes()).is_err()) {
                let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
                let there = std::fs::read_to_string(file).unwrap_or_default();
                return Err(TcpSideError::Controller {
                    name: name.clone(),
                    there: there.replace('\n', " "),
                });
            }
        }
        let Some(packets) = self.initial_window else {
            return Ok(());
        };
        self.remove();
        let failed = |why| TcpSideError::Routes { packets, why };
        let (table, window) = (self.mark.to_string(), packets.to_string());
        for family in ["-4", "-6"] {
            let Ok(routes) = ip(&[family, "route", "show", "table", "main"]) else {
                continue;
            };
            for route in routes.lines() {
                // Of IPv6, several devices have a route to the same link-local network.
                let mut words = vec![family, "route", "append"];
                words.extend(
                    route
                        .split_whitespace()
                        .filter(|word| !STATES.contains(word)),
                );
                words.extend(["table", &table, "initcwnd", &window]);
                ip(&words).map_err(failed)?;
            }
            let rule = ["rule", "add", "fwmark", &table, "lookup", &table];
            ip(&[&[family], &rule[..], &["priority", PRIORITY]].concat()).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes the routes; what is not there is no error.
    pub fn remove(&self) {
        let table = self.mark.to_string();
        if self.initial_window.is_some() {
            for family in ["-4", "-6"] {
                let _ = ip(&[family, "rule", "del", "fwmark", &table, "lookup", &table]);
                let _ = ip(&[family, "route", "flush", "table", &table]);
            }
        }
    }

    /// Sets up what `listener` will accept.
    pub fn listen(&self, listener: &TcpListener) -> io::Result<()> {
        self.apply(&SockRef::from(listener))
    }

    /// Connects to `address`.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        self.apply(&SockRef::from(&socket))?;
        socket.connect(address).await
    }

    fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        if let Some(name) = &self.controller {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        if self.initial_window.is_some() {
            socket.set_mark(self.mark)?;
        }
        Ok(())
    }
}

fn ip(words: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(words).output();
    let output = output.map_err(|error| format!("`ip`: {error}; is iproute2 installed?"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`ip {}`: {}", words.join(" "), said.trim()))
}
