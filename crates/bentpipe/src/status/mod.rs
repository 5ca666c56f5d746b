//! How a running end stands: for people, for programs, for Prometheus.
//!
//! The daemon answers on a Unix socket beside its configuration, or in RUNTIME_DIRECTORY:
//! whoever connects is told everything at once, as JSON, in one line.

mod command;
mod metrics;
mod socket;

pub use command::{Command, run};
pub use metrics::serve as serve_metrics;
pub use socket::StatusSocket;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_tunnel::flow::by_name::NameSnapshot;
use bentpipe_tunnel::flow::tally::TallySnapshot;
use bentpipe_tunnel::identity::Fingerprint;
use bentpipe_tunnel::terminal::GatewayState;
use bentpipe_tunnel::terminal::dns::ResolverSnapshot;
use bentpipe_tunnel::terminal::quic_choice::QuicChoiceSnapshot;
use serde::{Deserialize, Serialize};

/// How an end stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// "terminal" or "gateway".
    pub role: String,
    /// Of the program.
    pub version: String,
    /// Of the process.
    pub pid: u32,
    /// Since the start.
    pub uptime_s: u64,
    /// What the kernel counts as this process's memory.
    pub resident_bytes: u64,
    /// What the configuration lets sessions hold.
    pub memory_limit_bytes: u64,
    /// Sessions that fit.
    pub max_sessions: u64,
    /// Open sessions.
    pub sessions: Vec<SessionStatus>,
    /// A terminal's gateways, where it has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayStatus>,
    /// Flows.
    pub flows: FlowStatus,
    /// Questions of DNS, of a terminal with a resolver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<ResolverSnapshot>,
    /// The interface that this machine's own traffic is routed to, of a terminal that takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tun: Option<TunStatus>,
    /// The servers' names whose flows have carried most, of a terminal, as far as they are known:
    /// from its resolver, from proxies' clients, from TLS handshakes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameSnapshot>,
    /// Whether applications' own QUIC is tunnelled, of a terminal where measurements decide that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<QuicChoiceSnapshot>,
}

/// The interface that a terminal's machine routes its own traffic to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunStatus {
    /// Its name.
    pub interface: String,
    /// Its addresses: the gateway's for packets, and those that programs have.
    pub addresses: Vec<IpAddr>,
}

/// A gateway of a terminal that has several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Host and port.
    pub gateway: String,
    /// How long it takes to answer; without, it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// New flows go there.
    pub in_use: bool,
}

impl From<GatewayState> for GatewayStatus {
    fn from(state: GatewayState) -> Self {
        Self {
            gateway: state.gateway.to_string(),
            delay_ms: state.delay.map(|delay| delay.as_secs_f64() * 1e3),
            in_use: state.in_use,
        }
    }
}

/// A session and its path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// What the other end is called: a terminal's name, the gateway's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The other end's key.
    pub key: String,
    /// Where it is.
    pub address: String,
    /// It waits for an answer, in vain so far: the link is out, or the gateway is dead.
    #[serde(default)]
    pub silent: bool,
    /// Smoothed round trip.
    pub rtt_ms: f64,
    /// Congestion window.
    pub window_bytes: u64,
    /// UDP payload that the path is known to carry.
    pub mtu_bytes: u64,
    /// UDP payload.
    pub sent_bytes: u64,
    /// UDP payload.
    pub received_bytes: u64,
    /// Datagrams.
    pub sent_packets: u64,
    /// Packets that were declared lost.
    pub lost_packets: u64,
    /// Times that the controller was told of congestion.
    pub congestion_events: u64,
}

/// The flows of all sessions since the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Open now.
    pub open: u64,
    /// Ended well.
    pub ended: u64,
    /// Refused or reset, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Datagrams of UDP and IP that this end has dropped, by cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped_datagrams: BTreeMap<String, u64>,
    /// From local sockets into the tunnel, of flows that are over.
    pub up_bytes: u64,
    /// From the tunnel to local sockets, of flows that are over.
    pub down_bytes: u64,
}

/// Asks a daemon how it stands.
pub type Ask = Arc<dyn Fn() -> Status + Send + Sync>;

impl Status {
    /// What every end knows of itself.
    pub fn of(
        role: &str,
        started: Instant,
        transport: &bentpipe_tunnel::transport::Transport,
        sessions: Vec<SessionStatus>,
        flows: TallySnapshot,
    ) -> Self {
        Self {
            role: role.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: started.elapsed().as_secs(),
            resident_bytes: bentpipe_os::limits::resident_bytes(),
            memory_limit_bytes: transport.memory.as_u64(),
            max_sessions: transport.max_sessions(),
            sessions,
            gateways: Vec::new(),
            dns: None,
            tun: None,
            names: Vec::new(),
            quic: None,
            flows: FlowStatus {
                open: flows.open,
                ended: flows.ended,
                failed: by_cause(flows.failed),
                dropped_datagrams: by_cause(flows.dropped),
                up_bytes: flows.up_bytes,
                down_bytes: flows.down_bytes,
            },
        }
    }
}

fn by_cause(counts: BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    let counts = counts.into_iter();
    counts
        .map(|(cause, count)| (cause.to_owned(), count))
        .collect()
}

impl SessionStatus {
    /// The session on `connection` with the end that has `key`.
    pub fn of(name: Option<String>, key: Fingerprint, connection: &noq::Connection) -> Self {
        let path = connection.path_stats(noq::PathId::ZERO);
        let path = path.as_ref();
        Self {
            name,
            silent: false,
            key: key.to_string(),
            address: bentpipe_tunnel::session::remote_address(connection)
                .map_or_else(|| "unknown".to_owned(), |address| address.to_string()),
            rtt_ms: path.map_or(0.0, |path| path.rtt.as_secs_f64() * 1e3),
            window_bytes: path.map_or(0, |path| path.cwnd),
            mtu_bytes: path.map_or(0, |path| path.current_mtu.into()),
            sent_bytes: path.map_or(0, |path| path.udp_tx.bytes),
            received_bytes: path.map_or(0, |path| path.udp_rx.bytes),
            sent_packets: path.map_or(0, |path| path.udp_tx.datagrams),
            lost_packets: path.map_or(0, |path| path.lost_packets),
            congestion_events: path.map_or(0, |path| path.congestion_events),
        }
    }
}
