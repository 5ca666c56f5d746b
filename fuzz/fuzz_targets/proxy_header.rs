//! Any bytes as what another proxy says of a client: refused, or a client that can be told of again.
#![no_main]

use bentpipe_quicpep::pair::Client;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(client) = Client::from_header(bytes) {
        let _ = client.to_header();
    }
});
