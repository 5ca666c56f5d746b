//! What comes from a capture: worked examples of the RFCs, and bytes that are nobody's.

use std::net::SocketAddr;

use bentpipe_trace::capture::{LinkType, Reader};
use bentpipe_trace::ip;
use bentpipe_trace::keylog::KeyLog;
use bentpipe_trace::quic::bytes::Input;
use bentpipe_trace::quic::frames::Frames;
use bentpipe_trace::quic::keys::{Keys, packet_number};
use bentpipe_trace::quic::{Datagram, Packet, Tracker, Visitor};
use proptest::prelude::*;

/// RFC 9000, appendix A.1.
#[test]
fn variable_length_integers() {
    for (bytes, value) in [
        (
            &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
            151_288_809_941_952_652,
        ),
        (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
        (&[0x7b, 0xbd], 15_293),
        (&[0x40, 0x25], 37),
        (&[0x25], 37),
    ] {
        assert_eq!(Input(bytes).varint(), Some(value));
        assert_eq!(Input(&bytes[..bytes.len() - 1]).varint(), None);
    }
}

/// RFC 9000, appendix A.3.
#[test]
fn packet_numbers_are_the_nearest_to_the_largest() {
    assert_eq!(packet_number(Some(0xa82f_30ea), 0x9b32, 2), 0xa82f_9b32);
    assert_eq!(packet_number(None, 0, 1), 0);
    assert_eq!(packet_number(Some(255), 0, 1), 256);
    assert_eq!(packet_number(Some(256), 0xff, 1), 255);
}

/// RFC 9001, appendix A.3: the server's Initial packet of the example connection.
#[test]
fn the_example_initial_packet_of_rfc_9001_opens() {
    let hex = "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a\
               5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3\
               dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84\
               022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4\
               2158407dd074ee";
    let digits: Vec<_> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    let mut packet: Vec<u8> = (digits.chunks(2))
        .map(|two| u8::from_str_radix(&two.iter().collect::<String>(), 16).expect("hexadecimal"))
        .collect();
    let destination = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
    let (_, server) = Keys::initial(1, &destination);
    let head = server.unprotect(&mut packet, 18).expect("long enough");
    assert_eq!((head.first, head.truncated, head.number_len), (0xc1, 1, 2));
    let plain = server.open(&mut packet, 20, 1).expect("its tag fits");
    let names: Vec<_> = Frames::new(plain)
        .map(|frame| frame.expect("a frame").name())
        .collect();
    assert_eq!(names, ["ack", "crypto"]);
}

struct Nobody;

impl Visitor for Nobody {
    fn packet(&mut self, _datagram: &Datagram<'_>, packet: &Packet<'_>) {
        if let Ok(frames) = packet.frames {
            frames.for_each(drop);
        }
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        link in prop::sample::select(vec![0u32, 1, 101, 113, 276, 999]),
        first in any::<u8>(),
    ) {
        Frames::new(&bytes).for_each(drop);
        ip::decode(LinkType(link), &bytes);
        let mut log = KeyLog::default();
        log.add(&bytes);
        let address: SocketAddr = "192.0.2.1:4433".parse().expect("an address");
        let mut tracker = Tracker::new(&log);
        // An Initial packet of version 1, as far as its head goes, and what comes after it.
        let mut initial = vec![first | 0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
        initial.extend_from_slice(&bytes);
        for payload in [&bytes[..], &initial] {
            let datagram = Datagram {
                frame: 1,
                time_ns: 0,
                interface: 0,
                from: address,
                to: address,
                ecn: 0,
                payload,
                whole: true,
            };
            tracker.datagram(&datagram, &mut Nobody);
        }
        for magic in [&[0xd4, 0xc3, 0xb2, 0xa1][..], &[0x0a, 0x0d, 0x0d, 0x0a], &[]] {
            let file = [magic, &bytes].concat();
            if let Ok(mut reader) = Reader::new(std::io::Cursor::new(file)) {
                while let Ok(Some(_)) = reader.next() {}
            }
        }
    }
}
