//! Transparent ingress: TCP connections and UDP datagrams that pass through, taken at their
//! original destination.
//!
//! An nftables table of the terminal's own ([`ruleset`]) hands new connections that come
//! in through the given interfaces to a listener, of [`tcp`] or [`udp`] (TPROXY); a routing rule of its own
//! ([`routes`]) makes the kernel deliver them here. All three carry the listener's port in
//! their name or number, so that they are found again, and nobody else's are touched.
//!
//! The rules outlive a terminal that is killed: with [`Fail::Closed`] they then hold back
//! what they would have handed over, until the next terminal takes them over.

pub(crate) mod nft;
mod routes;
pub mod tun;
mod connected;
mod ruleset;
mod untracked;
mod packets;
pub mod held;
mod firewall;
pub mod tcp;
pub mod udp;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Notify;

pub use connected::private;
pub use firewall::{Firewall, Obstacle};
use held::{Held, Source};
use ruleset::Ruleset;
pub use tun::Tun;

use crate::ip::{Interface, IpError};
use crate::listener::once_free;
use crate::network_changes;
use crate::tcp::prepare;

/// Distinguishes our marks and routing tables from others' ("bp" in ASCII).
const TAG: u32 = 0x6270_0000;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Connections from before the first start that have said nothing for so long are not known then.
const SETTLING: Duration = Duration::from_secs(300);
/// Between two repairs, so that two programs which undo each other do so at leisure.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// Between two attempts at a repair that fails.
const LONGEST_REPAIR_PAUSE: Duration = Duration::from_secs(10);

/// What becomes of connections that would be taken when no terminal runs, because it was
/// killed or has crashed.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    serde::Deserialize,
    schemars::JsonSchema,
    serde::Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Fail {
    /// They are held back.
    #[default]
    Closed,
    /// They go their own way, outside the tunnel.
    Open,
}

/// What becomes of QUIC that applications speak: UDP to port 443.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    serde::Deserialize,
    schemars::JsonSchema,
    serde::Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ApplicationQuic {
    /// It is carried like other datagrams.
    #[default]
    Tunnel,
    /// It is answered with ICMP port unreachable, and applications fall back to TCP at once.
    Refuse,
    /// One or the other, by how long transfers of both kinds have taken here.
    Auto,
}

/// What becomes of packets that would pass and are neither TCP nor UDP, such as pings.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    serde::Deserialize,
    schemars::JsonSchema,
    serde::Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum OtherProtocols {
    /// They are answered with ICMP: prohibited.
    #[default]
    Refuse,
    /// They go their own way, outside the tunnel.
    Pass,
    /// They go through the tunnel as packets (CONNECT-IP), as far as the gateway lets them.
    Tunnel,
}

/// Which connections are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// Those that come in through these.
    pub interfaces: Vec<String>,
    /// Where the kernel delivers them, on loopback.
    pub port: u16,
    /// Destinations that are left alone, beside the networks that this machine is
    /// connected to.
    pub leave: Vec<IpNet>,
    /// What becomes of them when no terminal runs.
    pub fail: Fail,
    /// Ports to which connections are held back until the origin has answered. None: no connection
    /// is.
    pub after_origin: Vec<u16>,
    /// What is taken.
    pub protocols: Protocols,
    /// This machine's own traffic is taken too.
    pub tun: Option<Tun>,
}

impl Capture {
    /// Whether packets of other protocols leave for the tunnel.
    pub fn tunnels_packets(&self) -> bool {
        matches!(
            self.protocols,
            Protocols::TcpAndUdp {
                other: OtherProtocols::Tunnel,
                ..
            }
        )
    }
}

/// What is taken, and what becomes of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocols {
    /// TCP connections; all else goes its own way.
    Tcp,
    /// TCP connections and UDP datagrams.
    TcpAndUdp {
        /// What becomes of UDP to port 443.
        quic: ApplicationQuic,
        /// What becomes of what is neither TCP nor UDP.
        other: OtherProtocols,
    },
}

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
    /// nftables is not there or refused.
    #[error("nftables: {0}")]
    Nftables(String),
    /// The routing rule or its route.
    #[error("the routing rule of transparent ingress cannot be set: {source}{}", remedy(.source))]
    Routes {
        /// Why.
        source: io::Error,
    },
    /// What cannot change while rules are installed.
    #[error(
        "ingress.transparent.other_protocols cannot change from or to \"tunnel\" while the terminal runs; restart it"
    )]
    Restart,
    /// Packets of other protocols cannot be carried.
    #[error("ingress.transparent.other_protocols = \"tunnel\": {0}")]
    Ip(#[source] Box<IpError>),
    /// The networks that this machine is connected to are not known.
    #[error("this machine's addresses and routes cannot be read: {0}")]
    Addresses(io::Error),
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

/// Installed rules. They stay when this is dropped; [`Self::remove`] takes them away.
#[derive(Debug)]
pub struct Rules {
    capture: Mutex<Capture>,
    /// IPv6 is there as well.
    ipv6: bool,
    /// Connections are held back until their origin has answered.
    holds: bool,
    /// When connections from before the start are known; none if rules stood before.
    settled_at: Option<Instant>,
    /// They, or what they depend on, may have changed.
    changed: Arc<Notify>,
    standing: tokio::sync::Mutex<Standing>,
}

/// The table as it should stand.
#[derive(Debug, Default)]
struct Standing {
    /// As it was loaded last.
    loaded: Option<String>,
    /// As it was listed then.
    listed: Option<String>,
}

/// What is found of the table.
enum State {
    /// It stands as it was loaded, and as it should.
    Good,
    /// It stands as it was loaded, and should be another now.
    OutOfDate,
    /// Another program has done this to it.
    Meddled(&'static str),
}

/// Listeners for redirected connections; the local address of each connection that
/// they accept is where its sender wanted to go.
#[derive(Debug)]
pub struct Transparent {
    /// For IPv4.
    pub ipv4: TcpListener,
    /// For IPv6, where the machine has it.
    pub ipv6: Option<TcpListener>,
    /// Of UDP, for each of the two, if it is taken; [`udp::carry`] takes them.
    pub udp: Vec<UdpSocket>,
    /// By which packets of other protocols leave for the tunnel, and to which this machine's own
    /// traffic is routed.
    pub interface: Option<Interface>,
    /// Connections that are held back until their origin has answered.
    pub held: Option<(Held, Source)>,
    /// The rules that lead there.
    pub rules: Rules,
}

/// Opens the listeners and redirects to them what `capture` says. Rules that an earlier
/// terminal of the same port has left are replaced in one step: nothing passes meanwhile.
pub async fn install(capture: Capture) -> Result<Transparent, TransparentError> {
    for interface in &capture.interfaces {
        // Not /sys/class/net: that shows the namespace in which /sys was mounted.
        if !std::path::Path::new("/proc/sys/net/ipv4/conf")
            .join(interface)
            .exists()
        {
            return Err(TransparentError::Interface(interface.clone()));
        }
    }
    let port = capture.port;
    let existed = nft::table_exists(&table(port))
        .await
        .map_err(TransparentError::Nftables)?;
    // Whoever holds the listener's port owns the rules of that port.
    let ipv4 = listen((Ipv4Addr::LOCALHOST, port).into()).await?;
    let ipv6 = match listen((Ipv6Addr::LOCALHOST, port).into()).await {
        Ok(listener) => Some(listener),
        Err(TransparentError::Listen { source, .. })
            if matches!(
                source.kind(),
                io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported
            ) =>
        {
            None
        }
        Err(error) => return Err(error),
    };
    let mark = mark(port);
    routes::add(routes::Family::V4, mark).map_err(|source| TransparentError::Routes { source })?;
    // The sysctl disable_ipv6 leaves sockets but no routes.
    let has_ipv6 = ipv6.is_some() && can_route_ipv6(mark);
    if !has_ipv6 {
        tracing::warn!(
            "this machine has no IPv6, or it is switched off (sysctl net.ipv6.conf.all.disable_ipv6); only IPv4 connections are taken until it is switched on"
        );
    }
    let mut udp = Vec::new();
    if capture.protocols != Protocols::Tcp {
        udp.push(udp::listen((Ipv4Addr::LOCALHOST, port).into())?);
        if ipv6.is_some() {
            udp.push(udp::listen((Ipv6Addr::LOCALHOST, port).into())?);
        }
    }
    let interface = match capture.tunnels_packets() || capture.tun.is_some() {
        true => Some(packets::interface(&capture, has_ipv6)?),
        false => None,
    };
    let mut held = None;
    if !capture.after_origin.is_empty() {
        match held::open(port, mark) {
            Ok(opened) => held = Some(opened),
            Err(error) => tracing::warn!(
                "no connection waits for its origin's answer (ingress.transparent.after_origin): {error}"
            ),
        }
    }
    let rules = Rules {
        capture: Mutex::new(capture),
        ipv6: ipv6.is_some(),
        holds: held.is_some(),
        settled_at: (!existed).then(|| Instant::now() + SETTLING),
        changed: Arc::new(Notify::new()),
        standing: Default::default(),
    };
    // Before anybody hears that they stand: what is changed from then on is noticed.
    rules.watch();
    if let Err(error) = rules.load().await {
        // Rules that were there before go on holding back.
        if !existed {
            routes::remove(mark);
        }
        return Err(error);
    }
    // Last: nothing is routed to an interface from which nobody takes it.
    if let Err(source) = rules.route() {
        if !existed {
            let _ = release(port).await;
        }
        return Err(TransparentError::Routes { source });
    }
    if existed {
        tracing::info!("the rules of an earlier terminal have been taken over");
    }
    rules.tell_obstacles().await;
    Ok(Transparent {
        ipv4,
        ipv6,
        udp,
        interface,
        held,
        rules,
    })
}

async fn listen(address: SocketAddr) -> Result<TcpListener, TransparentError> {
    let open = async || -> io::Result<TcpListener> {
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
        prepare(SockRef::from(&socket))?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    once_free(open)
        .await
        .map_err(|source| TransparentError::Listen { address, source })
}

/// Whether somebody listens at `port` of loopback.
pub fn listens(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    std::net::TcpStream::connect(address).is_ok()
}

fn table(port: u16) -> String {
    format!("bentpipe_{port}")
}

/// Mark of redirected packets and of their connections, and number of the routing table
/// that they use.
pub fn mark(port: u16) -> u32 {
    TAG + u32::from(port)
}

/// Removes the rules that a terminal with `port` has left, running or not; what is not
/// there is no error. Says whether there were any.
pub async fn release(port: u16) -> Result<bool, TransparentError> {
    let existed = nft::table_exists(&table(port))
        .await
        .map_err(TransparentError::Nftables)?;
    if existed {
        nft::load(format!("delete table inet {}\n", table(port))).await?;
    }
    routes::remove(mark(port));
    routes::remove(packets::mark(port));
    tun::remove(port);
    Ok(existed)
}

/// What of this machine's firewall stands in the way of connections that come in through
/// `interfaces` and are handed to `port`.
/// Blocks.
pub fn firewall(interfaces: &[String], port: u16) -> Firewall {
    match nft::list() {
        Ok(listing) => Firewall::read(&listing, interfaces, &table(port), mark(port)),
        Err(why) => Firewall::unknown(why),
    }
}

/// Runs `nft` with the capability that it needs, for doctor. Blocks.
pub(crate) fn nft(arguments: &[&str], input: &str) -> Result<String, String> {
    let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
    nft::run_blocking(&arguments, input)
}

/// The ports of tables of terminals that do not run, but for `own`. Blocks.
fn stale(own: u16) -> Vec<u16> {
    let tables = tables().unwrap_or_default();
    let ports = tables
        .iter()
        .filter_map(|name| name.strip_prefix("bentpipe_")?.parse().ok());
    ports
        .filter(|&port| port != own && !listens(port))
        .collect()
}

/// The names of the tables of terminals, running or not. Blocks.
pub fn tables() -> Result<Vec<String>, String> {
    let listed = nft(&["list", "tables"], "")?;
    Ok(listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("table inet "))
        .filter(|name| name.starts_with("bentpipe_"))
        .map(str::to_owned)
        .collect())
}

impl Rules {
    fn ruleset(&self) -> Result<String, TransparentError> {
        let capture = self.capture();
        let ruleset = Ruleset {
            connected: connected::connected(capture.tun.as_ref())
                .map_err(TransparentError::Addresses)?,
            table: table(capture.port),
            mark: mark(capture.port),
            ip_mark: packets::mark(capture.port),
            device: packets::device(&capture),
            ipv6: self.ipv6,
            holds: self.holds,
            settled: self.settles_in().is_none(),
            capture: &capture,
        };
        Ok(ruleset.text())
    }

    /// How long it takes until connections from before the start are known; none if they are.
    fn settles_in(&self) -> Option<Duration> {
        let left = (self.settled_at?).saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Puts the routes of this machine's own traffic in force.
    fn route(&self) -> io::Result<()> {
        let capture = self.capture();
        let Some(tun) = &capture.tun else {
            return Ok(());
        };
        let mut left_alone = connected::connected(Some(tun))?;
        left_alone.extend(&capture.leave);
        let ipv6 = self.ipv6 && can_route_ipv6(mark(capture.port));
        tun::route(&capture, tun, &left_alone, ipv6)
    }

    async fn tell_obstacles(&self) {
        let Capture {
            interfaces, port, ..
        } = self.capture();
        let asked = tokio::task::spawn_blocking(move || firewall(&interfaces, port)).await;
        for obstacle in asked.into_iter().flat_map(|firewall| firewall.obstacles) {
            tracing::warn!("{obstacle}");
        }
        let stale = tokio::task::spawn_blocking(move || stale(port)).await;
        for other in stale.into_iter().flatten() {
            tracing::warn!(
                "a terminal with ingress.transparent.port = {other} does not run, and its rules hold back what it took; `nft delete table inet {}` lets it go",
                table(other)
            );
        }
    }

    /// Changes what is captured, without letting anything pass meanwhile. Interfaces, port and
    /// the ports of `after_origin` stay.
    pub async fn change(&self, new: Capture) -> Result<(), TransparentError> {
        let before = self.capture();
        if before.tunnels_packets() != new.tunnels_packets() {
            return Err(TransparentError::Restart);
        }
        let interface = before.tun.as_ref().map(|tun| tun.interface.clone());
        let tun = interface.map(|interface| Tun {
            interface,
            ..new
                .tun
                .or_else(|| before.tun.clone())
                .expect("one of the two")
        });
        *self.lock() = Capture {
            interfaces: before.interfaces.clone(),
            port: before.port,
            after_origin: before.after_origin.clone(),
            tun,
            ..new
        };
        let changed = match self.load().await {
            Ok(()) => self
                .route()
                .map_err(|source| TransparentError::Routes { source }),
            failed => failed,
        };
        if changed.is_err() {
            *self.lock() = before;
        }
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Capture> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn capture(&self) -> Capture {
        self.lock().clone()
    }

    /// Loads the table as it should stand now.
    async fn load(&self) -> Result<(), TransparentError> {
        let wanted = self.ruleset()?;
        let mut standing = self.standing.lock().await;
        nft::load(wanted.clone()).await?;
        *standing = Standing {
            loaded: Some(wanted),
            listed: nft::listing(&table(self.capture().port))
                .await
                .ok()
                .flatten(),
        };
        Ok(())
    }

    /// Hears from now on when another program changes nftables, or the networks that this machine
    /// is connected to change.
    fn watch(&self) {
        for (what, watched) in [
            ("nftables", network_changes::Watched::Nftables),
            ("routes", network_changes::Watched::Network),
        ] {
            let changed = self.changed.clone();
            if let Err(error) = network_changes::watch(watched, move || changed.notify_one()) {
                tracing::warn!("changes of {what} will not be noticed: {error}");
            }
        }
    }

    /// Keeps the rules as they are, for ever: puts them back when another program's
    /// reload has swept them away, and follows the networks that this machine is
    /// connected to.
    pub async fn keep(&self) -> std::convert::Infallible {
        // What cannot be done now, without descriptors say, is tried again.
        let mut retry = None;
        loop {
            let settling = self.settles_in();
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {}
                () = tokio::time::sleep(settling.unwrap_or_default()), if settling.is_some() => {}
            }
            let whole = self.repair().await;
            retry = match retry {
                _ if whole => None,
                None => Some(REPAIR_PAUSE),
                Some(pause) => Some((pause * 2).min(LONGEST_REPAIR_PAUSE)),
            };
            tokio::time::sleep(REPAIR_PAUSE).await;
        }
    }

    async fn state(&self) -> Result<State, String> {
        let wanted = self.ruleset().map_err(|error| error.to_string())?;
        let mut standing = self.standing.lock().await;
        let there = nft::listing(&table(self.capture().port)).await?;
        Ok(if standing.loaded.as_ref() != Some(&wanted) {
            State::OutOfDate
        } else if there.is_none() {
            State::Meddled("removed")
        } else if standing.listed.is_some() && standing.listed != there {
            State::Meddled("changed")
        } else {
            standing.listed = there;
            State::Good
        })
    }

    /// Puts back what is missing of rules and routes; false if that has failed.
    async fn repair(&self) -> bool {
        let capture = self.capture();
        let mut whole = true;
        match self.state().await {
            Ok(State::Good) => {}
            Ok(state) => match self.load().await {
                Ok(()) => {
                    if let State::Meddled(change) = state {
                        tracing::warn!(
                            "another program has {change} the rules of transparent ingress; they are put back"
                        );
                    }
                }
                Err(error) => {
                    tracing::error!("{error}");
                    whole = false;
                }
            },
            Err(why) => {
                tracing::error!(
                    "whether the rules of transparent ingress stand is not known: {why}"
                );
                whole = false;
            }
        }
        if capture.tunnels_packets()
            && let Err(error) = packets::route(&capture)
        {
            tracing::debug!("routes of packets: {error}");
            whole = false;
        }
        if let Err(error) = routes::add(routes::Family::V4, mark(capture.port)) {
            tracing::debug!("routing rule: {error}");
            whole = false;
        }
        if self.ipv6 {
            can_route_ipv6(mark(capture.port));
        }
        if let Err(error) = self.route() {
            tracing::error!("routes of this machine's own traffic: {error}");
            whole = false;
        }
        whole
    }

    /// Removes the rules; what is not there is no error.
    pub async fn remove(&self) -> Result<(), TransparentError> {
        release(self.capture().port).await.map(drop)
    }
}

/// Delivers IPv6 packets with `mark` to this machine, if it has IPv6.
fn can_route_ipv6(mark: u32) -> bool {
    let added = routes::add(routes::Family::V6, mark);
    if let Err(error) = &added {
        tracing::debug!("IPv6: {error}");
    }
    added.is_ok()
}
