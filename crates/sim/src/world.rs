//! The clock, and the loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_cc::PathMemory;
use bentpipe_link::{Packet, Seeds};
use bentpipe_units::{Span, Time};
use bentpipe_vnet::host::Host;
use bentpipe_vnet::network::IP_UDP;
use bentpipe_vnet::timer;
use bytes::BytesMut;
use noq_proto::{ClientConfig, NoneTokenLog, PathId, ServerConfig, ValidationTokenConfig, VarInt};

use crate::identity;
use crate::network::{Datagram, Edge};
use crate::node::{Node, Program};
use crate::plan::{Plan, PlanError, Transfer, What};
use crate::record::{FlowRecord, FlowSample, LinkRecord, Records, TransferRecord, Verdict};

/// Carries out `plan`. `base` is any [`Instant`]; the QUIC library wants some, and only
/// differences to it matter.
pub fn run(plan: &Plan, base: Instant) -> Result<Records, PlanError> {
    plan.check()?;
    let mut world = World::new(plan, base);
    world.begin();
    world.go();
    Ok(world.finish())
}

/// Who wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    /// A change of a link.
    Change { link: usize, change: usize },
    /// A change of a flow's way.
    Move { flow: usize, index: usize },
    /// A direction of a link.
    Edge(usize),
    /// A node: twice the flow's number, plus one for the terminal.
    Node(usize),
    /// A flow's next transfer.
    Ask(usize),
    /// Look at the flows.
    Sample,
}

struct World<'a> {
    plan: &'a Plan,
    base: Instant,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64, Wake)>>,
    order: u64,
    edges: Vec<Edge>,
    edge_at: Vec<Option<Time>>,
    nodes: Vec<Node>,
    hosts: Vec<Host>,
    /// What has arrived and was not read yet.
    unread: Vec<Vec<Datagram>>,
    node_at: Vec<Option<Time>>,
    flows: Vec<Flow>,
    records: Records,
}

/// A flow's state outside its connection.
struct Flow {
    path: Vec<usize>,
    transfer: usize,
    asked: bool,
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
    fn new(plan: &'a Plan, base: Instant) -> Self {
        let mut edges = Vec::new();
        for (number, link) in (0..).zip(&plan.links) {
            let seeds = Seeds::of_link(plan.seed, number);
            edges.push(Edge::new(&link.forward, seeds.forward));
            edges.push(Edge::new(&link.r#return, seeds.r#return));
        }
        let client_tls = identity::client_tls();
        let server_tls = identity::server_tls();
        let memories = plan.flows.iter().filter_map(|flow| flow.memory).max();
        let memories: Vec<_> = (0..=memories.unwrap_or(0))
            .map(|_| PathMemory::default())
            .collect();
        let mut nodes = Vec::new();
        let mut flows = Vec::new();
        for (index, flow) in plan.flows.iter().enumerate() {
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
            flows.push((Flow::new(flow.path.clone()), client));
        }
        let hosts = (0..nodes.len())
            .map(|node| {
                let seed = crate::seed_of(plan.seed, (2 << 32) + node as u64);
                Host::new(plan.flows[node / 2].host, seed)
            })
            .collect();
        let mut world = Self {
            plan,
            base,
            now: Time::ZERO,
            queue: BinaryHeap::new(),
            order: 0,
            edge_at: vec![None; edges.len()],
            edges,
            node_at: vec![None; nodes.len()],
            hosts,
            unread: vec![Vec::new(); nodes.len()],
            nodes,
            flows: Vec::new(),
            records: Records::default(),
        };
        // The library begins a connection's timers when it is made: make it at its start.
        for (index, (flow, client)) in flows.into_iter().enumerate() {
            let at = world.instant(Time::ZERO + plan.flows[index].start);
            world.nodes[2 * index + TERMINAL].connect(at, client, gateway_address(index));
            world.flows.push(flow);
        }
        world
    }

    fn begin(&mut self) {
        for (link, plan) in self.plan.links.iter().enumerate() {
            for (change, what) in plan.changes.iter().enumerate() {
                self.wake(Time::ZERO + what.at, Wake::Change { link, change });
            }
        }
        for (flow, plan) in self.plan.flows.iter().enumerate() {
            for (index, to) in plan.moves.iter().enumerate() {
                self.wake(Time::ZERO + to.at, Wake::Move { flow, index });
            }
            let start = Time::ZERO + plan.start;
            self.node_at[2 * flow + TERMINAL] = Some(start);
            self.wake(start, Wake::Node(2 * flow + TERMINAL));
        }
        self.wake(Time::ZERO + self.plan.sample_every, Wake::Sample);
    }

    fn go(&mut self) {
        let end = Time::ZERO + self.plan.until;
        while let Some(Reverse((at, _, wake))) = self.queue.pop() {
            if at > end || self.flows.iter().all(|flow| flow.finished) {
                break;
            }
            self.now = self.now.max(at);
            match wake {
                Wake::Change { link, change } => self.change(link, change),
                Wake::Move { flow, index } => self.r#move(flow, index),
                Wake::Edge(edge) => {
                    if self.edge_at[edge] == Some(at) {
                        self.edge_at[edge] = None;
                        self.leave(edge);
                    }
                }
                Wake::Node(node) => {
                    if self.node_at[node] == Some(at) {
                        self.node_at[node] = None;
                        self.drive(node);
                    }
                }
                Wake::Ask(flow) => self.ask(flow),
                Wake::Sample => self.sample(),
            }
        }
    }

    fn finish(mut self) -> Records {
        for (index, flow) in self.flows.iter().enumerate() {
            if flow.asked {
                let last = latest(&mut self.records.transfers, index);
                last.sent_ip_bytes = flow.forward_ip_bytes - flow.sent_before;
            }
            let broken = [GATEWAY, TERMINAL]
                .into_iter()
                .find_map(|side| self.nodes[2 * index + side].broken.clone());
            let verdict = match broken {
                _ if flow.finished => Verdict::Ok,
                Some(why) => Verdict::Broken(why),
                None => Verdict::TimedOut,
            };
            let stats = self.nodes[2 * index + GATEWAY]
                .connection
                .as_mut()
                .map(|(_, connection)| connection.stats());
            self.records.flows.push(FlowRecord {
                flow: index,
                controller: self.plan.flows[index]
                    .transport
                    .settings
                    .controller
                    .to_string(),
                verdict,
                sent: stats.as_ref().map_or(0, |stats| stats.udp_tx.datagrams),
                lost: stats.as_ref().map_or(0, |stats| stats.lost_packets),
                return_ip_bytes: flow.return_ip_bytes,
                forward_ip_bytes: flow.forward_ip_bytes,
            });
        }
        for (index, edge) in self.edges.iter().enumerate() {
            self.records.links.push(LinkRecord {
                link: index / 2,
                direction: ["forward", "return"][index % 2],
                packets: *edge.direction.counters(),
                blacked_out: edge.blacked_out,
            });
        }
        self.records
    }

    fn wake(&mut self, at: Time, who: Wake) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order, who)));
    }

    fn instant(&self, at: Time) -> Instant {
        self.base + Duration::from_nanos(at.as_nanos())
    }

    fn time(&self, at: Instant) -> Time {
        let nanos = at.saturating_duration_since(self.base).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn change(&mut self, link: usize, change: usize) {
        let [forward, r#return] = [2 * link, 2 * link + 1];
        match self.plan.links[link].changes[change].what {
            What::ForwardRate(rate) => self.set_rate(forward, rate),
            What::ReturnRate(rate) => self.set_rate(r#return, rate),
            What::Blackout(span) => {
                for edge in [forward, r#return] {
                    let edge = &mut self.edges[edge];
                    edge.dark_until = edge.dark_until.max(self.now + span);
                }
            }
        }
    }

    fn set_rate(&mut self, edge: usize, rate: bentpipe_units::Rate) {
        let change = bentpipe_link::scenario::Change {
            rate: Some(rate),
            ..Default::default()
        };
        self.edges[edge].direction.apply(self.now, &change);
        self.edges[edge].rate = rate;
        self.schedule_edge(edge);
    }

    /// The terminal's address changes; it tells so by the next packet, which it sends
    /// at once (RFC 9000, section 9).
    fn r#move(&mut self, flow: usize, index: usize) {
        self.flows[flow]
            .path
            .clone_from(&self.plan.flows[flow].moves[index].path);
        let node = 2 * flow + TERMINAL;
        self.nodes[node].address = terminal_address(flow, index + 1);
        if let Some((_, connection)) = &mut self.nodes[node].connection {
            connection.ping();
        }
        self.drive(node);
    }

    fn ask(&mut self, index: usize) {
        let plan = &self.plan.flows[index];
        let flow = &mut self.flows[index];
        let bytes = plan.transfers[flow.transfer].bytes.as_u64();
        flow.asked = true;
        let begun =
            if flow.transfer == 0 && plan.transfers[0] == Transfer::now(plan.transfers[0].bytes) {
                Time::ZERO + plan.start
            } else {
                self.now
            };
        self.records.transfers.push(TransferRecord {
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
        self.nodes[2 * index + TERMINAL].ask(bytes);
        self.drive(2 * index + TERMINAL);
    }

    /// Lets a node work, and sends what it has.
    fn drive(&mut self, node: usize) {
        let now = self.instant(self.now);
        let index = node / 2;
        let unread = std::mem::take(&mut self.unread[node]);
        self.hosts[node].spend(self.now, unread.len() as u64);
        for datagram in unread {
            self.read(node, datagram);
        }
        self.nodes[node].advance(now);
        let most = self.hosts[node].batch();
        loop {
            let from = self.nodes[node].address;
            let Some((transmit, bytes)) = self.nodes[node].poll_transmit(now, most) else {
                break;
            };
            // Segmentation is undone before the link: each datagram is a packet.
            let segment = transmit.segment_size.unwrap_or(bytes.len()).max(1);
            let datagrams: Vec<_> = bytes.chunks(segment).map(BytesMut::from).collect();
            for payload in datagrams {
                let flow = &mut self.flows[index];
                let ip = (payload.len() + IP_UDP) as u64;
                let side = if node % 2 == GATEWAY {
                    flow.forward_ip_bytes += ip;
                    0
                } else {
                    flow.return_ip_bytes += ip;
                    1
                };
                let edges = flow.path.iter().map(|link| 2 * link + side);
                // The next one last: forward packets meet the links in the path's order.
                let mut route: Vec<_> = if side == 0 {
                    edges.rev().collect()
                } else {
                    edges.collect()
                };
                let first = route.pop().expect("a checked plan has no empty path");
                let datagram = Datagram {
                    flow: index,
                    from,
                    ecn: transmit.ecn,
                    payload,
                    route,
                    entered: self.now,
                    waited: Span::ZERO,
                };
                self.edges[first].enter(self.now, datagram);
                self.schedule_edge(first);
            }
            let free_at = self.hosts[node].spend(self.now, 1);
            if free_at > self.now {
                // The next one leaves when the processor has done with this one.
                self.wake_node(node, free_at);
                break;
            }
        }
        self.note(index);
        self.schedule_node(node);
    }

    /// Writes down what the terminal's program has got, and goes on to the next transfer.
    fn note(&mut self, index: usize) {
        let now = self.now.as_nanos();
        let Program::Terminal {
            connected,
            received,
            first_byte,
            done,
            ..
        } = self.nodes[2 * index + TERMINAL].program
        else {
            return;
        };
        let plan = &self.plan.flows[index];
        let flow = &mut self.flows[index];
        let mut next = None;
        if connected && !flow.connected {
            flow.connected = true;
            next = Some(plan.transfers.first());
        }
        if flow.asked {
            let at = latest(&mut self.records.transfers, index);
            flow.received += received - at.received;
            at.received = received;
            if first_byte && at.first_byte_ns.is_none() {
                at.first_byte_ns = Some(now);
            }
            if done {
                at.done_ns = Some(now);
                at.sent_ip_bytes = flow.forward_ip_bytes - flow.sent_before;
                flow.asked = false;
                flow.transfer += 1;
                next = Some(plan.transfers.get(flow.transfer));
            }
        }
        match next {
            Some(Some(transfer)) => {
                let at = (self.now + transfer.pause).max(Time::ZERO + transfer.not_before);
                self.wake(at, Wake::Ask(index));
            }
            Some(None) => flow.finished = true,
            None => {}
        }
    }

    /// Takes what has come out of an edge to the next one, or to its node.
    fn leave(&mut self, edge: usize) {
        while let Some(mut datagram) = self.edges[edge].leave(self.now) {
            if let Some(next) = datagram.route.pop() {
                self.edges[next].enter(self.now, datagram);
                self.schedule_edge(next);
                continue;
            }
            let forward = edge.is_multiple_of(2);
            let node = 2 * datagram.flow + if forward { TERMINAL } else { GATEWAY };
            if forward {
                let waited = datagram.waited.as_nanos();
                let flow = &mut self.flows[datagram.flow];
                flow.arrived_udp_bytes += datagram.payload.len() as u64;
                let (sum, count, most) = &mut flow.waited;
                *sum += waited;
                *count += 1;
                *most = (*most).max(waited);
            }
            debug_assert!(datagram.ip_len() > IP_UDP);
            if self.hosts[node].is_ideal() {
                self.read(node, datagram);
                self.drive(node);
                continue;
            }
            if self.unread[node].is_empty() {
                let at = self.hosts[node].arrival(self.now);
                self.wake_node(node, at);
            }
            if self.unread[node].len() < SOCKET_BUFFER {
                self.unread[node].push(datagram);
            }
        }
        self.schedule_edge(edge);
    }

    fn schedule_edge(&mut self, edge: usize) {
        let Some(at) = self.edges[edge].direction.poll_timeout() else {
            return;
        };
        if self.edge_at[edge].is_none_or(|set| at < set) {
            self.edge_at[edge] = Some(at);
            self.wake(at, Wake::Edge(edge));
        }
    }

    fn read(&mut self, node: usize, datagram: Datagram) {
        let now = self.instant(self.now);
        self.nodes[node].handle_datagram(now, datagram.from, datagram.ecn, datagram.payload);
    }

    fn schedule_node(&mut self, node: usize) {
        let Some(at) = self.nodes[node].poll_timeout() else {
            return;
        };
        let granularity = self.plan.flows[node / 2].granularity;
        let mut at = timer::fires(self.time(at), self.now, granularity);
        if !self.hosts[node].is_ideal() {
            at = self.hosts[node].timer(at, self.now);
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
            self.records.samples.push(FlowSample {
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

impl Flow {
    fn new(path: Vec<usize>) -> Self {
        Self {
            path,
            transfer: 0,
            asked: false,
            connected: false,
            received: 0,
            arrived_udp_bytes: 0,
            forward_ip_bytes: 0,
            sent_before: 0,
            return_ip_bytes: 0,
            waited: (0, 0, 0),
            finished: false,
        }
    }
}

/// The record of the transfer that `flow` asked for last.
fn latest(transfers: &mut [TransferRecord], flow: usize) -> &mut TransferRecord {
    (transfers.iter_mut().rev())
        .find(|record| record.flow == flow)
        .expect("what was asked for has a record")
}

fn gateway_address(flow: usize) -> SocketAddr {
    address(198, flow, 0)
}

fn terminal_address(flow: usize, moves: usize) -> SocketAddr {
    address(10, flow, moves)
}

/// Addresses only need to differ.
fn address(network: u8, flow: usize, host: usize) -> SocketAddr {
    let [_, _, high, low] = u32::try_from(flow).unwrap_or(0).to_be_bytes();
    let host = u8::try_from(host + 1).unwrap_or(u8::MAX);
    SocketAddr::from((Ipv4Addr::new(network, high, low, host), 4433))
}
