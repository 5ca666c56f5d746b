//! What a TUN device hands over, any bytes at all: cut, looked at and damaged as the
//! emulator does it.
#![no_main]

use bentpipe_link::ip;
use bentpipe_os::segment;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut read = bytes.to_vec();
    let mut packets = Vec::new();
    if segment::segment(&mut read, Vec::new, |packet| packets.push(packet)).is_err() {
        return;
    }
    assert!(!packets.is_empty());
    for mut packet in packets {
        ip::flow(&packet);
        ip::mark_ce(&mut packet);
        ip::corrupt(&mut packet, bytes.len() as u64);
    }
});
