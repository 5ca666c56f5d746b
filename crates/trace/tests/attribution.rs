//! Whose a packet is, by what can be seen without keys: connection IDs that several have chosen, that are short, or
//! that are empty, and addresses that change.

use std::net::SocketAddr;

use bentpipe_trace::keylog::KeyLog;
use bentpipe_trace::quic::{Datagram, Packet, Side, Tracker, Undecryptable, Visitor};

const INITIAL: u8 = 0xc0;
const HANDSHAKE: u8 = 0xe0;

/// A packet with a long header, whose content nobody can read.
fn long(first: u8, to: &[u8], from: &[u8]) -> Vec<u8> {
    let mut packet = vec![first, 0, 0, 0, 1];
    for id in [to, from] {
        packet.push(id.len().try_into().expect("a short ID"));
        packet.extend(id);
    }
    if first == INITIAL {
        packet.push(0);
    }
    packet.extend([0x40, 100]);
    packet.extend([0x55; 100]);
    packet
}

fn short(to: &[u8]) -> Vec<u8> {
    [&[0x40], to, &[0x55; 40]].concat()
}

#[derive(Default)]
struct Seen(Vec<(u32, Side, Option<Undecryptable>)>);

impl Visitor for Seen {
    fn packet(&mut self, _datagram: &Datagram<'_>, packet: &Packet<'_>) {
        let why = packet.frames.err();
        self.0.push((packet.connection.number, packet.side, why));
    }
}

/// Who sent each datagram, given its ports and its bytes, in which connection; `None`: of no connection.
fn senders(datagrams: &[(u16, u16, Vec<u8>)]) -> Vec<Option<(u32, Side)>> {
    let log = KeyLog::default();
    let mut tracker = Tracker::new(&log);
    let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
    (datagrams.iter())
        .map(|(from, to, payload)| {
            let mut seen = Seen::default();
            let datagram = Datagram {
                frame: 1,
                time_ns: 0,
                interface: 0,
                from: at(*from),
                to: at(*to),
                ecn: 0,
                payload,
                whole: true,
            };
            tracker.datagram(&datagram, &mut seen);
            seen.0.first().map(|(number, side, _)| (*number, *side))
        })
        .collect()
}

const CLIENT: Option<(u32, Side)> = Some((0, Side::Client));
const SERVER: Option<(u32, Side)> = Some((0, Side::Server));

#[test]
fn both_ends_may_choose_the_same_id() {
    for id in [&b"s"[..], b"same", b"twenty bytes are all"] {
        let seen = senders(&[
            (5000, 443, long(INITIAL, b"original", id)),
            (443, 5000, long(INITIAL, id, id)),
            (443, 5000, short(id)),
            (5000, 443, long(HANDSHAKE, id, id)),
            (5000, 443, short(id)),
            // From another address of the client's, and back there.
            (5001, 443, short(id)),
            (443, 5001, short(id)),
        ]);
        let expected = [CLIENT, SERVER, SERVER, CLIENT, CLIENT, CLIENT, SERVER];
        assert_eq!(seen, expected, "{id:?}");
    }
}

#[test]
fn several_connections_may_choose_the_same_id() {
    let other = |side| Some((1, side));
    let seen = senders(&[
        (5000, 443, long(INITIAL, b"original", b"")),
        (443, 5000, long(INITIAL, b"", b"id")),
        (6000, 444, long(INITIAL, b"another!", b"")),
        (444, 6000, long(INITIAL, b"", b"id")),
        (5000, 443, short(b"id")),
        (6000, 444, short(b"id")),
        (444, 6000, short(b"")),
        (443, 5000, short(b"")),
    ]);
    let (client, server) = (other(Side::Client), other(Side::Server));
    let expected = [
        CLIENT, SERVER, client, server, CLIENT, client, server, SERVER,
    ];
    assert_eq!(seen, expected);
}

#[test]
fn answers_without_an_id_follow_the_clients_address() {
    let seen = senders(&[
        (5000, 443, long(INITIAL, b"original", b"")),
        (443, 5000, long(INITIAL, b"", b"the server")),
        (5001, 443, short(b"the server")),
        (443, 5001, short(b"")),
        (443, 5000, short(b"")),
    ]);
    assert_eq!(seen, [CLIENT, SERVER, CLIENT, SERVER, SERVER]);
}

#[test]
fn a_short_id_takes_no_packets_of_others() {
    let seen = senders(&[
        (5000, 443, long(INITIAL, b"original", b"c")),
        (443, 5000, long(INITIAL, b"c", b"s")),
        (40000, 53, short(b"s of other people")),
        (5001, 443, short(b"s")),
    ]);
    assert_eq!(seen, [CLIENT, SERVER, None, CLIENT]);
}

#[test]
fn packets_that_the_capture_has_cut_have_their_place_and_a_reason() {
    let log = KeyLog::default();
    let mut tracker = Tracker::new(&log);
    let mut seen = Seen::default();
    let (client, server) = ("192.0.2.1:5000", "192.0.2.2:443");
    for (from, to, payload) in [
        (client, server, long(INITIAL, b"original", b"client")),
        (server, client, long(INITIAL, b"client", b"server")),
        (client, server, short(b"server")),
    ] {
        let datagram = Datagram {
            frame: 1,
            time_ns: 0,
            interface: 0,
            from: from.parse().expect("an address"),
            to: to.parse().expect("an address"),
            ecn: 0,
            payload: &payload[..30],
            whole: false,
        };
        tracker.datagram(&datagram, &mut seen);
    }
    let cut = Some(Undecryptable::Cut);
    let expected = [
        (0, Side::Client, cut),
        (0, Side::Server, cut),
        (0, Side::Client, cut),
    ];
    assert_eq!(seen.0, expected);
    assert_eq!(tracker.strangers, 0);
}
