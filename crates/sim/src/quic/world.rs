//! The clock of a run with QUIC connections alone, and its loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_cc::PathMemory;
use bentpipe_link::Packet;
use bentpipe_units::Time;
use bentpipe_vnet::graph::{Datagram, Graph, HostId};
use bentpipe_vnet::host::Host;
use bentpipe_vnet::timer::{self, Turn, Turns};
use noq_proto::{ClientConfig, NoneTokenLog, PathId, ServerConfig, ValidationTokenConfig, VarInt};

use super::addresses::{gateway_address, terminal_address};
use super::node::{Node, Program};
use super::plan::{FlowPlan, Transfer};
use crate::identity;
use crate::plan::Plan;
use crate::record::{
    FlowRecord, LinkRecord, QuicFlow, QuicSample, QuicVerdict, Record, SampleRecord, TransferRecord,
};

/// Runs `flows` over the links of `plan`, which has been checked.
pub(crate) fn run(plan: &Plan, flows: &[FlowPlan], base: Instant, record: &mut dyn FnMut(Record)) {
    let mut world = World::new(plan, flows, base);
    world.begin();
    world.run_to_end();
    world.finish(record);
}

/// Who wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    /// A change of a flow's path.
    Move { flow: usize, index: usize },
    /// A node: twice the flow's number, plus one for the terminal.
    Node(usize),
    /// A flow's next transfer.
    Request(usize),
    /// A sample of each flow.
    Sample,
}

struct World<'a> {
    plan: &'a Plan,
    flow_plans: &'a [FlowPlan],
    base: Instant,
    now: Time,
    queue: BinaryHeap<Reverse<(Turn, Wake)>>,
    turns: Turns,
    /// Its hosts have the nodes' numbers.
    graph: Graph,
    hosts: Vec<HostId>,
    nodes: Vec<Node>,
    /// On which the nodes run.
    machines: Vec<Host>,
    /// What has arrived and was not read yet.
    unread: Vec<Vec<Datagram>>,
    node_at: Vec<Option<Time>>,
    flows: Vec<Flow>,
    transfers: Vec<TransferRecord>,
    samples: Vec<QuicSample>,
}

/// A flow's state outside its connection.
#[derive(Default)]
struct Flow {
    transfer: usize,
    requested: bool,
    connected: bool,
    received: u64,
    /// UDP payload that has reached the terminal.
    arrived_udp_bytes: u64,
    forward_ip_bytes: u64,
    /// Of these, before the transfer that is under way.
    sent_before: u64,
    return_ip_bytes: u64,
    /// Sum, number and maximum of waiting times since the last sample.
    waited: (u64, u64, u64),
    finished: bool,
}

/// Datagrams that wait to be read at most: the kernel's default of 212,992 bytes counts each
/// with its overhead; a tunnel asks for some times that.
const SOCKET_BUFFER: usize = 2_000;
const GATEWAY: usize = 0;
const TERMINAL: usize = 1;

impl<'a> World<'a> {
    fn new(plan: &'a Plan, flow_plans: &'a [FlowPlan], base: Instant) -> Self {
        let turns = Turns::default();
        let mut graph = Graph::new(&plan.links, plan.seed, turns.clone());
        let mut hosts = Vec::new();
        let client_tls = identity::client_tls();
        let server_tls = identity::server_tls();
        let memories = flow_plans.iter().filter_map(|flow| flow.memory).max();
        let memories: Vec<_> = (0..=memories.unwrap_or(0))
            .map(|_| PathMemory::default())
            .collect();
        let mut nodes = Vec::new();
        let mut clients = Vec::new();
        for (index, flow) in flow_plans.iter().enumerate() {
            let memory = flow
                .memory
                .map_or_else(PathMemory::default, |at| memories[at].clone());
            let mut transport = flow.transport.clone();
            transport.settings.seed = crate::seed_of(plan.seed, (1 << 32) + index as u64);
            let mut config = transport.config(memory);
            config.max_idle_timeout(Some(VarInt::from_u32(60_000).into()));
            config.keep_alive_interval(Some(Duration::from_secs(20)));
            let config = Arc::new(config);
            let number = 2 * index as u64;
            let mut server = ServerConfig::new(server_tls.clone(), Arc::new(identity::Keyless));
            let mut tokens = ValidationTokenConfig::default();
            tokens.log(Arc::new(NoneTokenLog)).sent(0);
            server
                .transport_config(config.clone())
                .validation_token_config(tokens);
            server.time_source(Arc::new(identity::Epoch));
            nodes.push(Node::gateway(
                identity::endpoint(plan.seed, number),
                server,
                gateway_address(index),
            ));
            nodes.push(Node::terminal(
                identity::endpoint(plan.seed, number + 1),
                terminal_address(index, 0),
            ));
            let mut client = ClientConfig::new(client_tls.clone());
            client.transport_config(config);
            client.initial_dst_cid_provider(Arc::new(move || identity::first_id(number)));
            hosts.push(graph.gateway(gateway_address(index)));
            hosts.push(graph.terminal(terminal_address(index, 0), &flow.path));
            clients.push(client);
        }
        let machines = (0..nodes.len())
            .map(|node| {
                let seed = crate::seed_of(plan.seed, (2 << 32) + node as u64);
                Host::new(flow_plans[node / 2].host, seed)
            })
            .collect();
        let mut world = Self {
            plan,
            flow_plans,
            base,
            now: Time::ZERO,
            queue: BinaryHeap::new(),
            turns,
            graph,
            hosts,
            node_at: vec![None; nodes.len()],
            machines,
            unread: vec![Vec::new(); nodes.len()],
            nodes,
            flows: Vec::new(),
            transfers: Vec::new(),
            samples: Vec::new(),
        };
        // The library begins a connection's timers when it is made: make it at its start.
        for (index, client) in clients.into_iter().enumerate() {
            let at = world.instant(Time::ZERO + flow_plans[index].start);
            world.nodes[2 * index + TERMINAL].connect(at, client, gateway_address(index));
            world.flows.push(Flow::default());
        }
        world
    }

    fn begin(&mut self) {
        for (flow, plan) in self.flow_plans.iter().enumerate() {
            for (index, to) in plan.moves.iter().enumerate() {
                self.wake(Time::ZERO + to.at, Wake::Move { flow, index });
            }
            let start = Time::ZERO + plan.start;
            self.node_at[2 * flow + TERMINAL] = Some(start);
            self.wake(start, Wake::Node(2 * flow + TERMINAL));
        }
        self.wake(Time::ZERO + self.plan.sample_every, Wake::Sample);
    }

    fn run_to_end(&mut self) {
        let end = Time::ZERO + self.plan.until;
        while let Some((turn, wake)) = self.next() {
            if turn.at > end || self.flows.iter().all(|flow| flow.finished) {
                break;
            }
            self.now = self.now.max(turn.at);
            match wake {
                None => self.receive(turn),
                Some(Wake::Move { flow, index }) => self.r#move(flow, index),
                Some(Wake::Node(node)) => {
                    if self.node_at[node] == Some(turn.at) {
                        self.node_at[node] = None;
                        let runs = self.machines[node].runs(turn.at);
                        if runs > turn.at {
                            self.wake_node(node, runs);
                        } else {
                            self.drive(node);
                        }
                    }
                }
                Some(Wake::Request(flow)) => self.request(flow),
                Some(Wake::Sample) => self.sample(),
            }
        }
    }

    /// What happens next: one of ours, or something on the links.
    fn next(&mut self) -> Option<(Turn, Option<Wake>)> {
        let network = self.graph.poll_timeout();
        match self.queue.peek() {
            Some(Reverse((turn, _))) if network.is_none_or(|network| *turn < network) => {
                let Reverse((turn, wake)) = self.queue.pop()?;
                Some((turn, Some(wake)))
            }
            _ => network.map(|turn| (turn, None)),
        }
    }

    fn finish(mut self, record: &mut dyn FnMut(Record)) {
        let mut flows = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            if flow.requested {
                let last = latest(&mut self.transfers, index);
                last.sent_ip_bytes = flow.forward_ip_bytes - flow.sent_before;
            }
            let broken = [GATEWAY, TERMINAL]
                .into_iter()
                .find_map(|side| self.nodes[2 * index + side].broken.clone());
            let verdict = match broken {
                _ if flow.finished => QuicVerdict::Ok,
                Some(why) => QuicVerdict::Broken(why),
                None => QuicVerdict::TimedOut,
            };
            let stats = self.nodes[2 * index + GATEWAY]
                .connection
                .as_mut()
                .map(|(_, connection)| connection.stats());
            let settings = &self.flow_plans[index].transport.settings;
            flows.push(QuicFlow {
                flow: index,
                controller: settings.controller.to_string(),
                verdict,
                sent: stats.as_ref().map_or(0, |stats| stats.udp_tx.datagrams),
                lost: stats.as_ref().map_or(0, |stats| stats.lost_packets),
                return_ip_bytes: flow.return_ip_bytes,
                forward_ip_bytes: flow.forward_ip_bytes,
            });
        }
        let samples = self.samples.into_iter().map(SampleRecord::Quic);
        let flows = flows.into_iter().map(FlowRecord::Quic);
        let links = self.graph.counters().map(LinkRecord::new);
        (self.transfers.into_iter().map(Record::Transfer))
            .chain(samples.map(Record::Sample))
            .chain(flows.map(Record::Flow))
            .chain(links.map(Record::Link))
            .for_each(record);
    }

    fn wake(&mut self, at: Time, who: Wake) {
        self.queue.push(Reverse((self.turns.next(at), who)));
    }

    fn instant(&self, at: Time) -> Instant {
        self.base + Duration::from_nanos(at.as_nanos())
    }

    fn time(&self, at: Instant) -> Time {
        let nanos = at.saturating_duration_since(self.base).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The terminal's address changes; it tells so by the next packet, which it sends
    /// at once (RFC 9000, section 9).
    fn r#move(&mut self, flow: usize, index: usize) {
        let node = 2 * flow + TERMINAL;
        let (host, address) = (self.hosts[node], terminal_address(flow, index + 1));
        // The old address stays for what is on its way to it.
        self.graph.add_address(host, address);
        let path = &self.flow_plans[flow].moves[index].path;
        self.graph.reroute(host, path);
        self.nodes[node].address = address;
        if let Some((_, connection)) = &mut self.nodes[node].connection {
            connection.ping();
        }
        self.drive(node);
    }

    fn request(&mut self, index: usize) {
        let plan = &self.flow_plans[index];
        let flow = &mut self.flows[index];
        let bytes = plan.transfers[flow.transfer].bytes.as_u64();
        flow.requested = true;
        let begun =
            if flow.transfer == 0 && plan.transfers[0] == Transfer::now(plan.transfers[0].bytes) {
                Time::ZERO + plan.start
            } else {
                self.now
            };
        self.transfers.push(TransferRecord {
            flow: index,
            transfer: flow.transfer,
            bytes,
            received: 0,
            begun_ns: begun.as_nanos(),
            asked_ns: self.now.as_nanos(),
            first_byte_ns: None,
            done_ns: None,
            sent_ip_bytes: 0,
        });
        flow.sent_before = flow.forward_ip_bytes;
        self.nodes[2 * index + TERMINAL].request(bytes);
        self.drive(2 * index + TERMINAL);
    }

    /// Lets a node work, and sends what it has.
    fn drive(&mut self, node: usize) {
        let now = self.instant(self.now);
        let index = node / 2;
        let unread = std::mem::take(&mut self.unread[node]);
        self.machines[node].spend(self.now, unread.len() as u64);
        for datagram in unread {
            self.read(node, datagram);
        }
        self.nodes[node].advance(now);
        let most = self.machines[node].batch();
        loop {
            let from = self.nodes[node].address;
            let Some((transmit, bytes)) = self.nodes[node].poll_transmit(now, most) else {
                break;
            };
            // Segmentation is undone before the link: each datagram is a packet.
            let segment = transmit.segment_size.unwrap_or(bytes.len()).max(1);
            let datagrams: Vec<_> = bytes
                .chunks(segment)
                .map(|payload| Datagram::new(from, transmit.destination, payload))
                .collect();
            for datagram in datagrams {
                let flow = &mut self.flows[index];
                let ip = datagram.ip_len() as u64;
                if node % 2 == GATEWAY {
                    flow.forward_ip_bytes += ip;
                } else {
                    flow.return_ip_bytes += ip;
                }
                let datagram = datagram.with_ecn(transmit.ecn);
                self.graph.handle_send(self.now, self.hosts[node], datagram);
            }
            let free_at = self.machines[node].spend(self.now, 1);
            if free_at > self.now {
                // The next one leaves when the processor has done with this one.
                self.wake_node(node, free_at);
                break;
            }
        }
        self.record(index);
        self.schedule_node(node);
    }

    /// Records what the terminal's program has received, and goes on to the next transfer.
    fn record(&mut self, index: usize) {
        let now = self.now.as_nanos();
        let Program::Terminal(client) = &self.nodes[2 * index + TERMINAL].program else {
            return;
        };
        let (connected, received, done) =
            (client.is_connected(), client.received(), client.is_done());
        let plan = &self.flow_plans[index];
        let flow = &mut self.flows[index];
        let mut next = None;
        if connected && !flow.connected {
            flow.connected = true;
            next = Some(plan.transfers.first());
        }
        if flow.requested {
            let at = latest(&mut self.transfers, index);
            flow.received += received - at.received;
            at.received = received;
            if received > 0 && at.first_byte_ns.is_none() {
                at.first_byte_ns = Some(now);
            }
            if done {
                at.done_ns = Some(now);
                at.sent_ip_bytes = flow.forward_ip_bytes - flow.sent_before;
                flow.requested = false;
                flow.transfer += 1;
                next = Some(plan.transfers.get(flow.transfer));
            }
        }
        match next {
            Some(Some(transfer)) => {
                let at = (self.now + transfer.pause).max(Time::ZERO + transfer.not_before);
                self.wake(at, Wake::Request(index));
            }
            Some(None) => flow.finished = true,
            None => {}
        }
    }

    /// Takes what has arrived to its node.
    fn receive(&mut self, turn: Turn) {
        while let Some((host, datagram)) = self.graph.poll_arrival(turn) {
            let node = host.index();
            if node % 2 == TERMINAL {
                let waited = datagram.queued.as_nanos();
                let flow = &mut self.flows[node / 2];
                flow.arrived_udp_bytes += datagram.payload.len() as u64;
                let (sum, count, most) = &mut flow.waited;
                *sum += waited;
                *count += 1;
                *most = (*most).max(waited);
            }
            if self.machines[node].is_ideal() {
                self.read(node, datagram);
                self.drive(node);
                continue;
            }
            if self.unread[node].is_empty() {
                let at = self.machines[node].arrival(self.now);
                self.wake_node(node, at);
            }
            if self.unread[node].len() < SOCKET_BUFFER {
                self.unread[node].push(datagram);
            }
        }
    }

    /// The node's program reads a datagram.
    fn read(&mut self, node: usize, datagram: Datagram) {
        let now = self.instant(self.now);
        self.nodes[node].handle_datagram(now, datagram.from, datagram.ecn, datagram.payload);
    }

    fn schedule_node(&mut self, node: usize) {
        let Some(at) = self.nodes[node].poll_timeout() else {
            return;
        };
        let granularity = self.flow_plans[node / 2].granularity;
        let mut at = timer::fires(self.time(at), self.now, granularity);
        if !self.machines[node].is_ideal() {
            at = self.machines[node].timer(at, self.now);
        }
        self.wake_node(node, at);
    }

    fn wake_node(&mut self, node: usize, at: Time) {
        if self.node_at[node].is_none_or(|set| at < set) {
            self.node_at[node] = Some(at);
            self.wake(at, Wake::Node(node));
        }
    }

    fn sample(&mut self) {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let Some((_, connection)) = &self.nodes[2 * index + GATEWAY].connection else {
                continue;
            };
            let Some(controller) = connection.congestion_state(PathId::ZERO) else {
                continue;
            };
            let (sum, count, most) = std::mem::take(&mut flow.waited);
            let rtt = connection.rtt(PathId::ZERO).unwrap_or_default();
            self.samples.push(QuicSample {
                at_ns: self.now.as_nanos(),
                flow: index,
                received: flow.received,
                arrived_udp_bytes: flow.arrived_udp_bytes,
                window: controller.window(),
                pacing_bit_s: controller
                    .metrics()
                    .pacing_rate
                    .map(|rate| rate.saturating_mul(8)),
                rtt_ns: u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX),
                waited_ns: sum.checked_div(count),
                waited_most_ns: (count > 0).then_some(most),
            });
        }
        self.wake(self.now + self.plan.sample_every, Wake::Sample);
    }
}

/// The record of the transfer that `flow` requested last.
fn latest(transfers: &mut [TransferRecord], flow: usize) -> &mut TransferRecord {
    (transfers.iter_mut().rev())
        .find(|record| record.flow == flow)
        .expect("what was requested has a record")
}
