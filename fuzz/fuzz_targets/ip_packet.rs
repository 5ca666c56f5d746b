//! What a terminal, a gateway or a machine sends as an IP packet, any bytes at all: read, and
//! answered with an ICMP error that is a packet itself.
#![no_main]

use bentpipe_tunnel::flow::packet::{self, Header, Why};

libfuzzer_sys::fuzz_target!(|packet: &[u8]| {
    if let Some(header) = Header::read(packet)
        && let Some(error) = packet::error(&header, packet, header.destination, Why::Prohibited)
    {
        let about = Header::read(&error).expect("an error is a packet");
        assert_eq!(about.destination, header.source);
        assert_eq!(packet::error(&about, &error, header.source, Why::Prohibited), None);
    }
});
