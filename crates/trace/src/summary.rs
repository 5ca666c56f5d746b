//! What the connections of a trace did.
//!
//! A direction is summed up where it was seen first: of a capture that has a packet at
//! several points of its way, only the first counts.

mod direction;
mod patterns;
mod records;
mod samples;
mod seen;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use self::direction::Direction;
pub use self::patterns::Pattern;
pub use self::records::{Close, ConnectionSummary, DirectionSummary, Goodput, Pause, Spread};
pub use self::seen::{Coverage, Key, Piece, Seen};
use crate::quic::{Connection, Frame, Side};

/// The connections of a trace while it is read.
#[derive(Debug, Default)]
pub struct Summary {
    states: BTreeMap<Key, State>,
    /// Pieces of streams that wait for their acknowledgement, of all connections.
    unacknowledged: usize,
}

impl Summary {
    /// A packet of `key` has been seen; whether it counts here. `ends`: client and server.
    pub fn packet(&mut self, key: Key, ends: (SocketAddr, SocketAddr), seen: &Seen) -> bool {
        let state = self.states.entry(key).or_insert_with(|| State {
            client: ends.0,
            server: ends.1,
            version: None,
            protocol: None,
            begun: seen.time_ns,
            ended: seen.time_ns,
            handshake: None,
            confirmed: None,
            retried: false,
            migrations: 0,
            latest_client: ends.0,
            undecrypted: BTreeMap::new(),
            unknown_frames: 0,
            close: None,
            directions: [Direction::default(), Direction::default()],
        });
        let direction = &mut state.directions[seen.side as usize];
        if *direction.interface.get_or_insert(seen.interface) != seen.interface {
            return false;
        }
        state.ended = state.ended.max(seen.time_ns);
        if seen.side == Side::Client {
            if seen.one_rtt {
                state.handshake.get_or_insert(seen.time_ns);
            }
            if seen.from != state.latest_client {
                state.latest_client = seen.from;
                state.migrations += 1;
            }
        }
        direction.packet(state.begun, seen);
        true
    }

    /// What the ends of a QUIC connection have agreed on so far.
    pub fn agreed(&mut self, key: Key, connection: &Connection) {
        if let Some(state) = self.states.get_mut(&key) {
            state.version = Some(connection.version);
            state.retried = connection.retried;
            if state.protocol.is_none() {
                state.protocol.clone_from(&connection.protocol);
            }
            for (direction, said) in state.directions.iter_mut().zip(connection.parameters) {
                direction.summary.transport_parameters = said;
            }
        }
    }

    /// The content of a packet is not known.
    pub fn undecrypted(&mut self, key: Key, why: &'static str) {
        if let Some(state) = self.states.get_mut(&key) {
            *state.undecrypted.entry(why).or_default() += 1;
        }
    }

    /// A packet had a frame that could not be read.
    pub fn unknown_frame(&mut self, key: Key) {
        if let Some(state) = self.states.get_mut(&key) {
            state.unknown_frames += 1;
        }
    }

    /// TCP's handshake is complete, or a side has reset it.
    pub fn tcp(&mut self, key: Key, seen: &Seen, established: bool, reset: bool) {
        let Some(state) = self.states.get_mut(&key) else {
            return;
        };
        if established {
            state.handshake.get_or_insert(seen.time_ns);
        }
        if reset {
            state.close.get_or_insert_with(|| Close {
                by: seen.side.name(),
                application: false,
                code: 0,
                reason: "RST".into(),
            });
        }
    }

    /// A frame of a packet that counts.
    pub fn frame(&mut self, key: Key, seen: &Seen, frame: &Frame<'_>) {
        let Some(state) = self.states.get_mut(&key) else {
            return;
        };
        let direction = &mut state.directions[seen.side as usize];
        match frame {
            Frame::Ack(ack) => {
                direction.summary.acks += 1;
                if seen.application {
                    let sent = &mut state.directions[seen.side.peer() as usize];
                    sent.acknowledged(seen.time_ns, ack, &mut self.unacknowledged);
                }
            }
            Frame::DataBlocked(_) | Frame::StreamDataBlocked { .. } => {
                direction.summary.blocked += 1;
            }
            Frame::HandshakeDone => {
                state.confirmed.get_or_insert(seen.time_ns);
            }
            Frame::ConnectionClose {
                application,
                code,
                reason,
            } => {
                state.close.get_or_insert_with(|| Close {
                    by: seen.side.name(),
                    application: *application,
                    code: *code,
                    reason: String::from_utf8_lossy(reason).into_owned(),
                });
            }
            _ => {}
        }
    }

    /// The pieces of streams in a packet that counts.
    pub fn pieces(&mut self, key: Key, seen: &Seen, pieces: &[Piece]) {
        let Some(state) = self.states.get_mut(&key) else {
            return;
        };
        let sent = &mut state.directions[seen.side as usize];
        sent.pieces(state.begun, seen, pieces, &mut self.unacknowledged);
    }

    /// An acknowledgement of TCP: all before `ack` has arrived.
    pub fn tcp_ack(&mut self, key: Key, seen: &Seen, ack: u64, data: bool) {
        let Some(state) = self.states.get_mut(&key) else {
            return;
        };
        if !data {
            state.directions[seen.side as usize].summary.acks += 1;
        }
        let sent = &mut state.directions[seen.side.peer() as usize];
        sent.acknowledged_before(seen.time_ns, ack, &mut self.unacknowledged);
    }

    /// What came of all connections.
    pub fn finish(self) -> Vec<ConnectionSummary> {
        self.states
            .into_iter()
            .map(|(key, state)| state.finish(key))
            .collect()
    }
}

#[derive(Debug)]
struct State {
    client: SocketAddr,
    server: SocketAddr,
    version: Option<u32>,
    protocol: Option<String>,
    begun: u64,
    ended: u64,
    handshake: Option<u64>,
    confirmed: Option<u64>,
    retried: bool,
    migrations: u32,
    latest_client: SocketAddr,
    undecrypted: BTreeMap<&'static str, u64>,
    unknown_frames: u64,
    close: Option<Close>,
    directions: [Direction; 2],
}

impl State {
    fn finish(self, key: Key) -> ConnectionSummary {
        let begun = self.begun;
        let since = |at: Option<u64>| at.map(|at| seconds(begun, at));
        let [client, server] = self.directions;
        let (from_client, from_server) = (client.summary.packets, server.summary.packets);
        let server_packets = server.first_one_rtt.zip(server.last_one_rtt);
        let (server_sent, first_byte, last_byte) = server.finish(begun, from_client);
        let (client_sent, request, _) = client.finish(begun, from_server);
        let bits = server_sent.stream_bytes as f64 * 8.0;
        let rate = |from: Option<u64>, to: Option<u64>| {
            let time = seconds(from?, to?);
            (time > 0.0 && bits > 0.0).then(|| bits / time)
        };
        ConnectionSummary {
            connection: key.connection,
            protocol: key.protocol,
            version: self.version.map(|version| format!("{version:08x}")),
            application_protocol: self.protocol,
            client: self.client,
            server: self.server,
            begun_ns: begun,
            duration_s: seconds(begun, self.ended),
            handshake_s: since(self.handshake),
            confirmed_s: since(self.confirmed),
            first_byte_s: since(first_byte),
            last_byte_s: since(last_byte),
            goodput: Goodput {
                whole_bit_s: rate(Some(begun), last_byte),
                server_packets_bit_s: server_packets
                    .and_then(|(first, last)| rate(Some(first), Some(last))),
                request_bit_s: rate(request, last_byte),
            },
            retried: self.retried,
            migrations: self.migrations,
            undecrypted: self.undecrypted,
            unknown_frames: self.unknown_frames,
            close: self.close,
            client_sent,
            server_sent,
        }
    }
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}
