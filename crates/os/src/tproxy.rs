//! Taking TCP connections that pass through, at their original destination.
//!
//! An nftables table of the terminal's own hands TCP that comes in through the given
//! interfaces to a listener (TPROXY); a routing rule of its own makes the kernel
//! deliver it here. All three carry the listener's port in their name or number, so
//! that they are found again, and nobody else's are touched.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Stdio;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;

/// Distinguishes our marks and routing tables from others' ("bp" in ASCII).
const TAG: u32 = 0x6270_0000;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Why transparent ingress cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TransparentError {
    /// The listener could not be opened.
    #[error("cannot listen transparently on {address}: {source}{}", remedy(.source))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A tool is not there or failed.
    #[error("`{command}` failed: {why}")]
    Tool {
        /// What was run.
        command: String,
        /// What it said.
        why: String,
    },
    /// No such interface.
    #[error("there is no network interface {0:?} here; `ip link` lists them")]
    Interface(String),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; transparent ingress needs root or the capability CAP_NET_ADMIN"
        }
        io::ErrorKind::AddrInUse => "; choose another ingress.transparent.port",
        _ => "",
    }
}

/// Installed rules. [`Self::remove`] takes them away.
#[derive(Debug)]
pub struct Rules {
    port: u16,
    /// IPv6 is there as well.
    ipv6: bool,
}

/// Listeners for redirected connections; the local address of each connection that
/// they accept is where its sender wanted to go.
#[derive(Debug)]
pub struct Transparent {
    /// For IPv4.
    pub ipv4: TcpListener,
    /// For IPv6, where the machine has it.
    pub ipv6: Option<TcpListener>,
    /// The rules that lead there.
    pub rules: Rules,
}

/// Opens the listeners on `port` and redirects to them the TCP that comes in through
/// `interfaces`.
pub async fn install(interfaces: &[String], port: u16) -> Result<Transparent, TransparentError> {
    for interface in interfaces {
        // Not /sys/class/net: that shows the namespace in which /sys was mounted.
        if !std::path::Path::new("/proc/sys/net/ipv4/conf")
            .join(interface)
            .exists()
        {
            return Err(TransparentError::Interface(interface.clone()));
        }
    }
    // Whoever holds the listener's port owns the rules of that port. What an earlier
    // terminal left behind when it was killed is therefore ours to remove.
    let ipv4 = listen((Ipv4Addr::LOCALHOST, port).into())?;
    let ipv6 = match listen((Ipv6Addr::LOCALHOST, port).into()) {
        Ok(listener) => Some(listener),
        Err(TransparentError::Listen { source, .. })
            if matches!(
                source.kind(),
                io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported
            ) =>
        {
            tracing::warn!("this machine has no IPv6; only IPv4 connections are taken");
            None
        }
        Err(error) => return Err(error),
    };
    let rules = Rules {
        port,
        ipv6: ipv6.is_some(),
    };
    rules.remove().await;
    let installed = async {
        rules.add_routes().await?;
        nft(&rules.ruleset(interfaces)).await
    };
    if let Err(error) = installed.await {
        rules.remove().await;
        return Err(error);
    }
    Ok(Transparent { ipv4, ipv6, rules })
}

fn listen(address: SocketAddr) -> Result<TcpListener, TransparentError> {
    let open = || -> io::Result<TcpListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
            socket.set_ip_transparent_v6(true)?;
        } else {
            socket.set_ip_transparent_v4(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|source| TransparentError::Listen { address, source })
}

impl Rules {
    fn table(&self) -> String {
        format!("bentpipe_{}", self.port)
    }

    /// Mark of redirected packets, and number of the routing table that they use.
    fn mark(&self) -> u32 {
        TAG + u32::from(self.port)
    }

    fn ruleset(&self, interfaces: &[String]) -> String {
        let (table, port, mark) = (self.table(), self.port, self.mark());
        let names = interfaces
            .iter()
            .map(|name| format!("{name:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        let mut rules = format!(
            "table inet {table} {{\n\
             chain ingress {{\n\
             type filter hook prerouting priority mangle; policy accept;\n\
             iifname != {{ {names} }} return\n\
             fib daddr type {{ local, broadcast, anycast, multicast }} return\n\
             meta nfproto ipv4 meta l4proto tcp tproxy ip to {}:{port} meta mark set {mark:#x} accept\n",
            Ipv4Addr::LOCALHOST
        );
        if self.ipv6 {
            let _ = writeln!(
                rules,
                "meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [{}]:{port} meta mark set {mark:#x} accept",
                Ipv6Addr::LOCALHOST
            );
        }
        rules.push_str("}\n}\n");
        rules
    }

    fn families(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        [("-4", "0.0.0.0/0"), ("-6", "::/0")]
            .into_iter()
            .take(1 + usize::from(self.ipv6))
    }

    async fn add_routes(&self) -> Result<(), TransparentError> {
        let mark = self.mark().to_string();
        for (family, all) in self.families() {
            ip(&[
                family, "route", "add", "local", all, "dev", "lo", "table", &mark,
            ])
            .await?;
            ip(&[family, "rule", "add", "fwmark", &mark, "lookup", &mark]).await?;
        }
        Ok(())
    }

    /// Removes the rules; what is not there is no error.
    pub async fn remove(&self) {
        let mark = self.mark().to_string();
        let _ = nft(&format!("delete table inet {}\n", self.table())).await;
        for (family, all) in [("-4", "0.0.0.0/0"), ("-6", "::/0")] {
            let _ = ip(&[family, "rule", "del", "fwmark", &mark, "lookup", &mark]).await;
            let _ = ip(&[
                family, "route", "del", "local", all, "dev", "lo", "table", &mark,
            ])
            .await;
        }
    }
}

async fn nft(ruleset: &str) -> Result<(), TransparentError> {
    run("nft", &["-f", "-"], ruleset).await
}

async fn ip(arguments: &[&str]) -> Result<(), TransparentError> {
    run("ip", arguments, "").await
}

async fn run(program: &str, arguments: &[&str], input: &str) -> Result<(), TransparentError> {
    let error = |why: String| TransparentError::Tool {
        command: format!("{program} {}", arguments.join(" ")),
        why,
    };
    let missing = |failure: io::Error| match failure.kind() {
        io::ErrorKind::NotFound => error(format!(
            "it is not installed; Debian has it in the package {}",
            if program == "nft" {
                "nftables"
            } else {
                "iproute2"
            }
        )),
        _ => error(failure.to_string()),
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(missing)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that ends without reading says why itself.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(missing)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(error(
        said.trim()
            .lines()
            .next()
            .unwrap_or("it did not say why")
            .to_owned(),
    ))
}
