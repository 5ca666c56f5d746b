//! One datagram below every link type, VLAN tags and extension headers that are read, and cut.

use bentpipe_trace::capture::LinkType;
use bentpipe_trace::ip::{Body, Link, decode};

const PAYLOAD: &[u8] = b"a datagram";

fn two(number: usize) -> [u8; 2] {
    u16::try_from(number).expect("a short length").to_be_bytes()
}

fn one(number: usize) -> u8 {
    u8::try_from(number).expect("a small number")
}

fn udp() -> Vec<u8> {
    let mut udp = [1234, 443, 8 + PAYLOAD.len(), 0].map(two).concat();
    udp.extend(PAYLOAD);
    udp
}

/// An IPv4 packet with `options` in its header and `flags` of fragments.
fn v4(options: usize, flags: u16) -> Vec<u8> {
    let udp = udp();
    let mut ip = vec![0x45 + one(options / 4), 2];
    ip.extend(two(20 + options + udp.len()));
    ip.extend([0, 0]);
    ip.extend(flags.to_be_bytes());
    ip.extend([64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    ip.resize(20 + options, 1);
    ip.extend(udp);
    // Ethernet fills short packets up.
    ip.extend([0; 9]);
    ip
}

/// An IPv6 packet with extension headers of these kinds, 8 bytes longer each.
fn v6(kinds: &[u8]) -> Vec<u8> {
    let mut next: Vec<u8> = [kinds, &[17]].concat();
    let mut body = Vec::new();
    for (place, _) in kinds.iter().enumerate() {
        let len = 8 * (place + 1);
        body.extend([next[place + 1], one(place)]);
        body.extend(vec![0; len - 2]);
    }
    body.extend(udp());
    let mut ip = vec![0x60, 0x20, 0, 0];
    ip.extend(two(body.len()));
    ip.extend([next.remove(0), 64]);
    ip.extend([0x20; 32]);
    ip.extend(body);
    ip
}

fn payload(link: u32, packet: &[u8]) -> Option<&[u8]> {
    let found = decode(LinkType(link), packet)?;
    assert_eq!(
        (found.from.port(), found.to.port(), found.ecn),
        (1234, 443, 2)
    );
    match found.body {
        Body::Udp(payload) => Some(payload),
        Body::Tcp(..) => None,
    }
}

#[test]
fn a_datagram_is_found_below_every_link_that_is_read() {
    for ip in [v4(0, 0), v4(40, 0x4000), v6(&[]), v6(&[0, 43, 60])] {
        let kind = if ip[0] >> 4 == 4 {
            [8, 0]
        } else {
            [0x86, 0xdd]
        };
        let addresses = [7u8; 12];
        let ethernet = |tags: &[u8]| [&addresses, tags, &kind, &ip].concat();
        for (link, packet) in [
            (1, ethernet(&[])),
            (1, ethernet(&[0x81, 0, 0, 5])),
            (1, ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6])),
            (0, [&[2, 0, 0, 0], &ip[..]].concat()),
            (108, [&[0, 0, 0, 24], &ip[..]].concat()),
            (101, ip.clone()),
            (113, [&[0; 14], &kind[..], &ip].concat()),
            (276, [&kind[..], &[0; 18], &ip].concat()),
        ] {
            assert_eq!(payload(link, &packet), Some(PAYLOAD), "link {link}");
            for cut in 0..packet.len() {
                let found = payload(link, &packet[..cut]);
                assert!(
                    found.is_none_or(|found| PAYLOAD.starts_with(found)),
                    "link {link}"
                );
            }
        }
    }
}

#[test]
fn what_is_not_read_is_known() {
    assert_eq!(payload(101, &v4(0, 0x2000)), None, "the first fragment");
    assert_eq!(payload(101, &v4(0, 5)), None, "a later fragment");
    assert_eq!(payload(101, &v6(&[44])), None, "a fragment of IPv6");
    for (link, known) in [
        (1, true),
        (276, true),
        (105, false),
        (127, false),
        (999, false),
    ] {
        assert_eq!(Link::of(LinkType(link)).is_some(), known);
    }
}
