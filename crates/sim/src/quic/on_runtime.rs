//! The run with QUIC connections on the async runtime: the measurement's client and server as
//! they are, over the virtual network's sockets.
//!
//! The same plans as those of the lean run, and the same records but for the time that
//! packets wait in queues, which only the lean run sees.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_cc::PathMemory;
use bentpipe_perf::clock::Clock as PerfClock;
use bentpipe_perf::meter::Meter;
use bentpipe_perf::quic::QuicConnection;
use bentpipe_perf::report::ParametersReport;
use bentpipe_perf::server::Service;
use bentpipe_perf::streams;
use bentpipe_perf::transport::SharedEstablishment;
use bentpipe_units::{Span, Time};
use bentpipe_vnet::clock::{Clock, virtual_time};
use bentpipe_vnet::graph::IP_UDP;
use bentpipe_vnet::network::Network;
use noq::{ClientConfig, Connection, Endpoint, ServerConfig, VarInt};
use noq_proto::{NoneTokenLog, PathId, ValidationTokenConfig};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::addresses::{gateway_address, terminal_address};
use super::plan::{FlowPlan, Transfer};
use super::proxies::{self, ProxyPlan};
use crate::plan::Plan;
use crate::record::{
    FlowRecord, LinkRecord, QuicFlow, QuicSample, QuicVerdict, Record, SampleRecord, TransferRecord,
};
use crate::{REQUEST, identity};

/// Datagrams that a socket is handed at once at most, as those of the lean run.
const SEGMENTS: NonZeroUsize = NonZeroUsize::new(10).expect("ten is not zero");

/// Runs `flows` over the links of `plan`, both of which have been checked, through `proxies`.
pub(crate) fn run(
    plan: &Plan,
    flows: &[FlowPlan],
    proxies: &[ProxyPlan],
    record: &mut dyn FnMut(Record),
) {
    let granularity = flows.first().map_or(Span::ZERO, |flow| flow.granularity);
    virtual_time(granularity, |clock| async move {
        let mut run = Run::new(plan, flows, proxies, &clock);
        run.watch().await;
        run.end(record);
    });
}

/// What is known of a flow while it runs.
#[derive(Default)]
struct State {
    transfers: Vec<TransferRecord>,
    /// Of the transfer that is under way.
    meter: Option<Arc<Meter>>,
    /// What transfers before it have received.
    received: u64,
    terminal: Option<Connection>,
    gateway: Option<Connection>,
    verdict: Option<QuicVerdict>,
}

type Shared = Arc<Mutex<State>>;

fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes at the IP level that `connection` has sent.
fn sent_ip_bytes(connection: Option<&Connection>) -> u64 {
    connection.map_or(0, |connection| {
        let sent = connection.stats().udp_tx;
        sent.bytes + sent.datagrams * IP_UDP as u64
    })
}

struct Run<'a> {
    plan: &'a Plan,
    flows: &'a [FlowPlan],
    clock: Clock,
    network: Network,
    states: Vec<Shared>,
    samples: Vec<QuicSample>,
    open: usize,
    ended: UnboundedReceiver<()>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, flows: &'a [FlowPlan], proxies: &[ProxyPlan], clock: &Clock) -> Self {
        let network = Network::new(clock, &plan.links, plan.seed, SEGMENTS);
        let entry = proxies::start(plan, flows.len(), proxies, clock, &network);
        let memories = flows.iter().filter_map(|flow| flow.memory).max();
        let memories: Vec<_> = (0..=memories.unwrap_or(0))
            .map(|_| PathMemory::default())
            .collect();
        let (tell, ended) = unbounded_channel();
        let states = flows
            .iter()
            .enumerate()
            .map(|(number, flow)| {
                let memory =
                    (flow.memory).map_or_else(PathMemory::default, |at| memories[at].clone());
                let to = match entry {
                    None => (gateway_address(number), identity::NAME.to_owned()),
                    Some(proxy) => (proxy, proxies::server_name(number)),
                };
                start(plan, (number, flow), memory, to, clock, &network, &tell)
            })
            .collect();
        Self {
            plan,
            flows,
            clock: clock.clone(),
            network,
            states,
            samples: Vec::new(),
            open: flows.len(),
            ended,
        }
    }

    /// Until all flows have ended, or the time is over.
    async fn watch(&mut self) {
        let end = Time::ZERO + self.plan.until;
        let mut sample_at = Time::ZERO + self.plan.sample_every;
        while self.open > 0 {
            let wake = sample_at.min(end);
            tokio::select! {
                biased;
                Some(()) = self.ended.recv() => {
                    self.open -= 1;
                    continue;
                }
                () = self.clock.sleep_until(wake) => {}
            }
            if wake == end {
                return;
            }
            for (flow, state) in self.states.iter().enumerate() {
                self.samples.extend(sample(wake, flow, &lock(state)));
            }
            sample_at = sample_at + self.plan.sample_every;
        }
    }

    fn end(self, record: &mut dyn FnMut(Record)) {
        let mut flows = Vec::new();
        for (index, (state, plan)) in self.states.iter().zip(self.flows).enumerate() {
            let state = &mut *lock(state);
            let forward_ip_bytes = sent_ip_bytes(state.gateway.as_ref());
            if let (Some(meter), Some(last)) = (state.meter.take(), state.transfers.last_mut()) {
                fill(last, &meter);
                last.sent_ip_bytes = forward_ip_bytes.saturating_sub(last.sent_ip_bytes);
            }
            let stats = state.gateway.as_ref().map(Connection::stats);
            for transfer in state.transfers.drain(..) {
                record(Record::Transfer(transfer));
            }
            flows.push(QuicFlow {
                flow: index,
                controller: plan.transport.settings.controller.to_string(),
                verdict: state.verdict.take().unwrap_or(QuicVerdict::TimedOut),
                sent: stats.as_ref().map_or(0, |stats| stats.udp_tx.datagrams),
                lost: stats.as_ref().map_or(0, |stats| stats.lost_packets),
                return_ip_bytes: sent_ip_bytes(state.terminal.as_ref()),
                forward_ip_bytes,
            });
        }
        for sample in self.samples {
            record(Record::Sample(SampleRecord::Quic(sample)));
        }
        for flow in flows {
            record(Record::Flow(FlowRecord::Quic(flow)));
        }
        for direction in self.network.counters() {
            record(Record::Link(LinkRecord::new(direction)));
        }
    }
}

/// Notes what `meter` has counted of `transfer`.
fn fill(transfer: &mut TransferRecord, meter: &Meter) {
    transfer.received = meter.received_bytes();
    transfer.first_byte_ns = meter.first_byte().map(Span::as_nanos);
}

fn sample(at: Time, flow: usize, state: &State) -> Option<QuicSample> {
    let gateway = state.gateway.as_ref()?;
    let controller = gateway.congestion_state(PathId::ZERO)?;
    let under_way = state
        .meter
        .as_ref()
        .map_or(0, |meter| meter.received_bytes());
    let arrived = state.terminal.as_ref().map(Connection::stats);
    let rtt = gateway.rtt(PathId::ZERO).unwrap_or_default();
    Some(QuicSample {
        at_ns: at.as_nanos(),
        flow,
        received: state.received + under_way,
        arrived_udp_bytes: arrived.map_or(0, |stats| stats.udp_rx.bytes),
        window: controller.window(),
        pacing_bit_s: (controller.metrics().pacing_rate).map(|rate| rate.saturating_mul(8)),
        rtt_ns: u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX),
        waited_ns: None,
        waited_most_ns: None,
    })
}

/// Starts both ends of flow `number`; the terminal connects to `to`, by that server name.
fn start(
    plan: &Plan,
    (number, flow): (usize, &FlowPlan),
    memory: PathMemory,
    to: (SocketAddr, String),
    clock: &Clock,
    network: &Network,
    tell: &UnboundedSender<()>,
) -> Shared {
    let mut transport = flow.transport.clone();
    transport.settings.seed = crate::seed_of(plan.seed, (1 << 32) + number as u64);
    let mut config = transport.config(memory);
    config.max_idle_timeout(Some(VarInt::from_u32(60_000).into()));
    config.keep_alive_interval(Some(Duration::from_secs(20)));
    let config = Arc::new(config);
    let mut server = ServerConfig::new(identity::server_tls(), Arc::new(identity::Keyless));
    let mut tokens = ValidationTokenConfig::default();
    tokens.log(Arc::new(NoneTokenLog)).sent(0);
    server
        .transport_config(config.clone())
        .validation_token_config(tokens)
        .time_source(Arc::new(identity::Epoch));
    let mut client = ClientConfig::new(identity::client_tls());
    let first = 2 * number as u64;
    client
        .transport_config(config)
        .initial_dst_cid_provider(Arc::new(move || identity::first_id(first)));
    let endpoint = |socket, number, server| {
        crate::tunnel::endpoint(clock, socket, (plan.seed, number), server)
            .expect("a socket in memory has an address")
    };
    let address = gateway_address(number);
    let gateway = endpoint(network.gateway(address), first, Some(server));
    let terminal = endpoint(
        network.terminal(terminal_address(number, 0), &flow.path),
        first + 1,
        None,
    );
    let state = Shared::default();
    tokio::spawn(serve(gateway, clock.clone(), state.clone()));
    let client = Client {
        flow: number,
        clock: clock.clone(),
        since_zero: PerfClock::new(Arc::new(clock.clone())),
        endpoint: terminal.clone(),
        config: client,
        server: to.0,
        name: to.1,
        start: Time::ZERO + flow.start,
        transfers: flow.transfers.clone(),
        state: state.clone(),
    };
    let tell = tell.clone();
    tokio::spawn(async move {
        let verdict = client.run().await;
        lock(&client.state).verdict = Some(verdict);
        // Nobody hears it when the run is over.
        let _ = tell.send(());
    });
    for (moves, to) in flow.moves.iter().cloned().enumerate() {
        let (clock, network, terminal) = (clock.clone(), network.clone(), terminal.clone());
        tokio::spawn(async move {
            clock.sleep_until(Time::ZERO + to.at).await;
            let (old, new) = (
                terminal_address(number, moves),
                terminal_address(number, moves + 1),
            );
            network.r#move(old, new, &to.path);
            terminal.handle_network_change(None);
        });
    }
    state
}

/// The gateway's end: one connection.
async fn serve(endpoint: Endpoint, clock: Clock, state: Shared) {
    let Some(incoming) = endpoint.accept().await else {
        return;
    };
    let peer = incoming.remote_address();
    let Ok(connecting) = incoming.accept() else {
        return;
    };
    let Ok((connection, _)) = connecting.into_0rtt() else {
        return;
    };
    lock(&state).gateway = Some(connection.clone());
    let clock = PerfClock::new(Arc::new(clock));
    let service = Service {
        clock: clock.clone(),
        parameters: ParametersReport::default(),
        interval: Span::from_millis(3_600_000),
        connections: 1,
        tell: Arc::new(|_| {}),
        files: None,
    };
    (service.serve(&clock, peer, connection, SharedEstablishment::default())).await;
}

/// The terminal's end.
struct Client {
    flow: usize,
    clock: Clock,
    /// The same clock, as the measurement has it.
    since_zero: PerfClock,
    endpoint: Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    name: String,
    start: Time,
    transfers: Vec<Transfer>,
    state: Shared,
}

impl Client {
    async fn run(&self) -> QuicVerdict {
        self.clock.sleep_until(self.start).await;
        let broken = |why: &dyn std::fmt::Display| QuicVerdict::Broken(why.to_string());
        let connecting = (self.endpoint).connect_with(self.config.clone(), self.server, &self.name);
        let connection = match connecting {
            Ok(connecting) => connecting.await,
            Err(error) => return broken(&error),
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => return broken(&error),
        };
        lock(&self.state).terminal = Some(connection.clone());
        let measured = QuicConnection::new(0, connection, SharedEstablishment::default());
        for (number, transfer) in self.transfers.iter().enumerate() {
            let at = (self.clock.now() + transfer.pause).max(Time::ZERO + transfer.not_before);
            if at > self.clock.now() {
                self.clock.sleep_until(at).await;
            }
            if let Err(error) = self.transfer(&measured, number, transfer).await {
                return broken(&error);
            }
        }
        QuicVerdict::Ok
    }

    async fn transfer(
        &self,
        connection: &QuicConnection,
        number: usize,
        transfer: &Transfer,
    ) -> Result<(), bentpipe_perf::error::PerfError> {
        let bytes = transfer.bytes.as_u64();
        let asked = self.clock.now();
        let with_connection = number == 0 && *transfer == Transfer::now(transfer.bytes);
        let begun = if with_connection { self.start } else { asked };
        let meter = {
            let state = &mut *lock(&self.state);
            let meter = Meter::new(self.since_zero.clone());
            state.meter = Some(meter.clone());
            state.transfers.push(TransferRecord {
                flow: self.flow,
                transfer: number,
                bytes,
                received: 0,
                begun_ns: begun.as_nanos(),
                asked_ns: asked.as_nanos(),
                first_byte_ns: None,
                done_ns: None,
                // What had been sent before, until the transfer is over.
                sent_ip_bytes: sent_ip_bytes(state.gateway.as_ref()),
            });
            meter
        };
        streams::request(connection, REQUEST as u64, bytes, &meter).await?;
        let state = &mut *lock(&self.state);
        state.meter = None;
        state.received += bytes;
        let sent = sent_ip_bytes(state.gateway.as_ref());
        if let Some(last) = state.transfers.last_mut() {
            fill(last, &meter);
            last.done_ns = Some(self.clock.now().as_nanos());
            last.sent_ip_bytes = sent.saturating_sub(last.sent_ip_bytes);
        }
        Ok(())
    }
}
