//! Any stream of a request is read as capsules or refused, and no more than one is held.
#![no_main]

use bentpipe_tunnel::wire::capsule::Reader;
use bentpipe_tunnel::wire::datagram;

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (cut, stream) = input;
    let mut reader = Reader::default();
    for piece in stream.chunks(usize::from(cut) + 1) {
        reader.take(piece);
        loop {
            match reader.next_datagram() {
                Ok(Some(content)) => drop(datagram::udp_payload(content)),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = reader.end();
});
