//! Splitting proxies between terminals and gateways, as `bentpipe quic-pep` has them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_quicpep::hello::Hellos;
use bentpipe_quicpep::memory::Memory;
use bentpipe_quicpep::next_hop::{NextHops, Resolve};
use bentpipe_quicpep::proxy::{Configuration, Mode, Proxy};
use bentpipe_quicpep::routes::{Kind, Route, Routes};
use bentpipe_quicpep::tls;
use bentpipe_quicpep::transport::Side;
use bentpipe_units::Bytes;
use bentpipe_vnet::clock::Clock;
use bentpipe_vnet::network::Network;
use noq::{AsyncUdpSocket, ServerConfig};

use super::addresses::{gateway_address, proxy_address};
use crate::identity;
use crate::plan::Plan;

/// Connections that are split on their way.
#[derive(Debug, Clone)]
pub struct SplitPlan {
    /// Each from a terminal to a gateway of its own. Their paths lead from the last proxy to the
    /// terminals.
    pub flows: Vec<super::FlowPlan>,
    /// In a row, from the gateways on; at least one.
    pub proxies: Vec<ProxyPlan>,
}

/// One proxy.
#[derive(Debug, Clone)]
pub struct ProxyPlan {
    /// Links on the way to it from its next hop: the proxy before it, or for the first the
    /// gateways.
    pub path: Vec<usize>,
    /// Who is waited for.
    pub mode: Mode,
    /// Connections that it keeps ready to the proxy before it.
    pub ready: usize,
    /// What all its connections may hold together.
    pub memory: Bytes,
    /// Towards terminals, or the proxy behind it.
    pub towards_clients: Side,
    /// Towards its next hop.
    pub towards_next: Side,
}

/// The server name by which proxies tell the gateway of a flow.
pub(super) fn server_name(flow: usize) -> String {
    format!("{flow}.{}", identity::NAME)
}

/// Starts `proxies` for so many flows; where terminals connect to.
pub(super) fn start(
    plan: &Plan,
    flows: usize,
    proxies: &[ProxyPlan],
    clock: &Clock,
    network: &Network,
) -> Option<SocketAddr> {
    let mut before = None;
    for (number, proxy) in proxies.iter().enumerate() {
        let routes = match before {
            None => gateways(flows),
            Some(address) => another(address),
        };
        run(plan, number, proxy, routes, clock, network);
        before = Some(proxy_address(number, 0));
    }
    before
}

/// The way to the gateway of each flow.
fn gateways(flows: usize) -> Routes {
    let route = |flow| Route::server(gateway_address(flow).to_string());
    let by_name: BTreeMap<_, _> = (0..flows)
        .map(|flow| (server_name(flow), route(flow)))
        .collect();
    Routes {
        by_name,
        otherwise: None,
    }
}

/// The way to another proxy.
fn another(address: SocketAddr) -> Routes {
    Routes::fixed(Route {
        kind: Kind::Pep,
        name: Some(identity::NAME.to_owned()),
        ..Route::server(address.to_string())
    })
}

fn run(
    plan: &Plan,
    number: usize,
    proxy: &ProxyPlan,
    routes: Routes,
    clock: &Clock,
    network: &Network,
) {
    let certificates = Arc::new(identity::certificates());
    let crypto = tls::server_with(&tls::server(certificates.clone()), Vec::new());
    let hellos = Hellos::new(crypto.clone());
    let mut server = ServerConfig::new(crypto, Arc::new(identity::Keyless));
    server.time_source(Arc::new(identity::Epoch));
    let first = (1 << 30) + 2 * number as u64;
    let endpoint = |socket: Box<dyn AsyncUdpSocket>, number, server| {
        let config = identity::endpoint(plan.seed, number);
        noq::Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(clock.clone()))
            .expect("a socket in memory has an address")
    };
    let listener = hellos.tap(Box::new(network.gateway(proxy_address(number, 0))));
    let onwards = Box::new(network.terminal(proxy_address(number, 1), &proxy.path));
    let seeded = |side: &Side, number| Side {
        seed: crate::seed_of(plan.seed, (2 << 32) + number),
        ..side.clone()
    };
    let proxy = Proxy::new(Configuration {
        mode: proxy.mode,
        listener: endpoint(listener, first, Some(server.clone())),
        hellos,
        server,
        certificates,
        clients: seeded(&proxy.towards_clients, first),
        next: NextHops::new(
            endpoint(onwards, first + 1, None),
            identity::client_config(),
            seeded(&proxy.towards_next, first + 1),
            Numbers,
            &routes,
            proxy.ready,
        ),
        routes,
        memory: Memory::new(proxy.memory.as_u64()),
    });
    tokio::spawn(proxy.run());
}

/// Next hops are named by their addresses.
#[derive(Debug)]
struct Numbers;

impl Resolve for Numbers {
    async fn resolve(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        let address = address.parse();
        Ok(vec![address.map_err(|_| io::ErrorKind::NotFound)?])
    }
}
