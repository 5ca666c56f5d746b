//! Any stream of a CONNECT-IP request: its capsules are read or refused.
#![no_main]

use bentpipe_tunnel::wire::capsule::Reader;
use bentpipe_tunnel::wire::connect_ip::{
    ADDRESS_ASSIGN, ADDRESS_REQUEST, ROUTE_ADVERTISEMENT, addresses, read_addresses,
};

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (cut, stream) = input;
    let mut reader = Reader::taking(&[ADDRESS_ASSIGN, ADDRESS_REQUEST, ROUTE_ADVERTISEMENT]);
    for piece in stream.chunks(usize::from(cut) + 1) {
        reader.take(piece);
        loop {
            match reader.next_capsule() {
                Ok(Some((kind, content))) => {
                    if let Ok(read) = read_addresses(&content) {
                        // The shortest form of what was read, which reads the same.
                        let again = addresses(kind, &read);
                        let mut whole = Reader::taking(&[ADDRESS_ASSIGN, ADDRESS_REQUEST, ROUTE_ADVERTISEMENT]);
                        whole.take(&again);
                        let (_, content) = whole.next_capsule().unwrap().unwrap();
                        assert_eq!(read_addresses(&content), Ok(read));
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = reader.end();
});
