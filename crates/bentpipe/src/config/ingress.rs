//! `[ingress]` of `terminal.toml`: how applications' connections come in.

use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_os::tproxy::{self, ApplicationQuic, Capture, Fail, OtherProtocols, Protocols};
use bentpipe_tunnel::terminal::EARLY_UDP_PORTS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tun::Tun;
use super::{check_clients, networks, socket_address};

/// How applications' connections come in.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ingress {
    /// TCP connections and UDP datagrams that pass through this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transparent: Option<Transparent>,
    /// All traffic of this machine's own programs, by a network interface and a default route.
    /// What `[ingress.transparent]` says holds for it too; that table may then be without
    /// interfaces, or left out. `bentpipe terminal --tun` is the same as an empty table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tun: Option<Tun>,
    /// A SOCKS5 proxy (RFC 1928).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socks5: Option<Proxy>,
    /// An HTTP proxy that carries CONNECT alone (RFC 9110, section 9.3.6), and serves a PAC file at
    /// `/proxy.pac`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Proxy>,
    /// Ports of UDP whose first datagrams go out with the first packets of a session that is opened
    /// again, a round trip sooner. A gateway of ours takes these packets once; whoever has recorded
    /// them may send them again to one that is less careful. So only ports of protocols that take no harm
    /// from a datagram that comes twice: QUIC is one.
    pub early_udp_ports: Vec<u16>,
}

impl Default for Ingress {
    fn default() -> Self {
        Self {
            transparent: None,
            tun: None,
            socks5: None,
            http: None,
            early_udp_ports: EARLY_UDP_PORTS.into(),
        }
    }
}

impl Ingress {
    /// What is taken of what the kernel routes, if anything is.
    pub fn capture(&self) -> Option<Capture> {
        let transparent = self.transparent.as_ref()?;
        Some(transparent.capture(self.tun.as_ref()))
    }

    /// The mark of the terminal's own sockets, where this machine's own traffic is taken.
    pub fn mark(&self) -> Option<u32> {
        let capture = self.capture()?;
        capture.tun.map(|_| tproxy::tun::past(capture.port))
    }

    /// Checks what cannot be seen in one field alone.
    pub fn check(&self) -> Result<(), String> {
        for (name, proxy) in [
            ("ingress.socks5", &self.socks5),
            ("ingress.http", &self.http),
        ] {
            if let Some(proxy) = proxy {
                check_clients(name, &[proxy.listen], &proxy.clients)?;
            }
        }
        let proxies = self.socks5.is_some() || self.http.is_some();
        if self.transparent.is_none() && self.tun.is_none() && !proxies {
            return Err("ingress is empty: nothing could reach the tunnel; add [ingress.socks5] with listen = \"127.0.0.1:1080\", [ingress.http] with listen = \"127.0.0.1:3128\", or [ingress.transparent] with interfaces = [\"lan0\"]".into());
        }
        if let Some(tun) = &self.tun {
            tun.check(self.transparent.as_ref())?;
        }
        if let Some(transparent) = &self.transparent {
            let named_well = |name: &String| {
                (1..=15).contains(&name.len())
                    && name
                        .chars()
                        .all(|c| c.is_ascii_graphic() && !"\"/\\".contains(c))
            };
            if transparent.interfaces.is_empty() && self.tun.is_none() {
                return Err("ingress.transparent.interfaces = []: name at least one network interface, like [\"lan0\"]".into());
            }
            if let Some(name) = transparent.interfaces.iter().find(|name| !named_well(name)) {
                return Err(format!(
                    "ingress.transparent.interfaces: {name:?} is not a name of a network interface; `ip link` lists them"
                ));
            }
            if transparent.after_origin.contains(&0) {
                return Err(
                    "ingress.transparent.after_origin: give ports from 1 to 65535".to_owned(),
                );
            }
            if transparent.dns && transparent.after_origin.contains(&53) {
                return Err("ingress.transparent.after_origin has no effect on port 53, which the terminal's resolver answers; remove it, or set dns = false".into());
            }
            if transparent.port == 0 {
                return Err("ingress.transparent.port = 0: give a port from 1 to 65535".into());
            }
        }
        if self.early_udp_ports.contains(&0) {
            return Err("ingress.early_udp_ports: give ports from 1 to 65535".into());
        }
        Ok(())
    }
}

/// TCP connections and UDP datagrams that pass through this machine. Needs root or
/// CAP_NET_ADMIN.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transparent {
    /// New TCP connections, and UDP datagrams, that come in through these are taken. At least one,
    /// unless there is `[ingress.tun]`.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// Where the kernel delivers it, on loopback.
    #[serde(default = "transparent_port")]
    pub port: u16,
    /// Private and link-local destinations are left alone (RFC 1918, RFC 6598, RFC 4193),
    /// as the networks always are that this machine is connected to, but for public ones where a router leads on to the
    /// internet: there another could say which network that is.
    #[serde(default = "yes")]
    pub leave_private: bool,
    /// Destinations that are left alone as well. Changes at SIGHUP, like `leave_private` and
    /// `fail`.
    #[serde(default, deserialize_with = "networks")]
    #[schemars(with = "Vec<String>")]
    pub leave: Vec<ipnet::IpNet>,
    /// Questions of DNS to any name server (port 53) are answered by the terminal's resolver, as
    /// `[dns]` says.
    #[serde(default = "yes")]
    pub dns: bool,
    /// By what the gateway is asked for a connection whose client asked the terminal's resolver
    /// for the name.
    #[serde(default)]
    pub ask: AskFor,
    /// Ports to which an application's connection stands only when the origin has accepted it, and
    /// is refused or unreachable when the origin is: those of protocols in which the server speaks
    /// first, so that waiting costs nothing. To destinations that have refused within the last ten
    /// minutes the same holds at all ports. `[]`: no connection waits.
    #[serde(default = "server_speaks_first")]
    pub after_origin: Vec<u16>,
    /// What becomes of connections when the terminal was killed: held back (closed), or
    /// outside the tunnel (open).
    #[serde(default)]
    pub fail: Fail,
    /// QUIC of applications, which is UDP to port 443: carried like other datagrams
    /// (tunnel), or answered with ICMP port unreachable (refuse), upon which they use TCP,
    /// which the tunnel can speed up; or one of the two, by how long transfers of both kinds
    /// take here, as `bentpipe status` tells (auto). Changes at SIGHUP.
    #[serde(default)]
    pub quic: ApplicationQuic,
    /// What is neither TCP nor UDP and would pass, such as pings: answered with ICMP
    /// prohibited (refuse), through the tunnel as packets (tunnel), or outside the tunnel
    /// (pass). Without this line: refuse, and tunnel where there is `[ingress.tun]`, which has no
    /// pass. Changes at SIGHUP, but not from or to tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_protocols: Option<OtherProtocols>,
    /// What becomes of them when the terminal is stopped in order.
    #[serde(default)]
    pub after_stop: AfterStop,
}

/// By what the gateway is asked for a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AskFor {
    /// By the address that the application chose.
    #[default]
    Address,
    /// By the name, which the gateway resolves anew: what it allows by name counts, and the
    /// application's choice among the addresses does not.
    Name,
}

/// What becomes of connections that would be taken, once the terminal was stopped in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterStop {
    /// They are held back, until the terminal is started again or `bentpipe terminal
    /// release` is run.
    #[default]
    Hold,
    /// They go their own way, outside the tunnel: the rules are removed.
    Release,
}

impl Default for Transparent {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            port: transparent_port(),
            leave_private: yes(),
            leave: Vec::new(),
            dns: yes(),
            ask: AskFor::default(),
            after_origin: server_speaks_first(),
            fail: Fail::default(),
            quic: ApplicationQuic::default(),
            other_protocols: None,
            after_stop: AfterStop::default(),
        }
    }
}

impl Transparent {
    /// The destinations that are left alone, beside connected networks.
    pub fn left_alone(&self) -> Vec<ipnet::IpNet> {
        let private = tproxy::private().filter(|_| self.leave_private);
        self.leave.iter().copied().chain(private).collect()
    }

    /// What of the connections is taken; with `tun`, of this machine's own too.
    fn capture(&self, tun: Option<&Tun>) -> Capture {
        let other = match tun {
            Some(_) => OtherProtocols::Tunnel,
            None => OtherProtocols::Refuse,
        };
        Capture {
            interfaces: self.interfaces.clone(),
            port: self.port,
            leave: self.left_alone(),
            fail: self.fail,
            after_origin: self.after_origin.clone(),
            protocols: Protocols::TcpAndUdp {
                quic: self.quic,
                other: self.other_protocols.unwrap_or(other),
            },
            tun: tun.map(|tun| tproxy::Tun {
                interface: tun.interface.clone(),
                dns: self.dns,
                leave: self.leave.clone(),
            }),
        }
    }
}

pub fn transparent_port() -> u16 {
    4480
}

fn yes() -> bool {
    true
}

/// FTP, SSH, Telnet, SMTP, POP3, NNTP, IMAP, submission, MySQL and VNC.
fn server_speaks_first() -> Vec<u16> {
    vec![21, 22, 23, 25, 110, 119, 143, 587, 3306, 5900]
}

/// A proxy that applications are told of.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Address and port, TCP.
    #[serde(deserialize_with = "socket_address")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Networks whose hosts may use it, beside this machine itself.
    #[serde(default, deserialize_with = "networks")]
    #[schemars(with = "Vec<String>")]
    pub clients: Vec<ipnet::IpNet>,
    /// A file with a line `NAME:PASSWORD` for each who may use it, its owner's alone to read, beside
    /// the configuration or by its whole path; without, nobody is asked. Names and passwords pass
    /// the local network in clear text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<PathBuf>,
    /// When an application is told that its connection stands.
    #[serde(default)]
    pub answer: Answer,
}

/// When an application is told that its connection stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Before the origin has answered: its first bytes are on their way a round trip sooner, and
    /// an origin that refuses is a reset.
    #[default]
    AtOnce,
    /// When the origin has answered, a round trip later: one that refuses, cannot be reached, is
    /// denied, has no address or does not answer is told as such. By HTTP that is 502, 403 or 504
    /// with Proxy-Status, by SOCKS5 reply 5, 3, 2, 4 and 6.
    AfterOrigin,
}
