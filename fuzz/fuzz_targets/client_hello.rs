//! Any bytes as a client's first datagram, and as what its first packets hold: read or passed over.
#![no_main]

use std::sync::{Arc, LazyLock};

use bentpipe_quicpep::hello::{Hellos, in_payloads};
use bentpipe_quicpep::tls::{self, Authority, Certificates};

static HELLOS: LazyLock<Hellos> = LazyLock::new(|| {
    let (key, _) = Authority::create(2026).expect("a key");
    let authority = Authority::new(&key, || 2026).expect("the same key");
    let certificates = Arc::new(Certificates::Authority(Box::new(authority)));
    Hellos::new(tls::server_with(&tls::server(certificates), Vec::new()))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    HELLOS.read(([192, 0, 2, 1], 50_000).into(), bytes);
    let _ = in_payloads([bytes]);
    let _ = in_payloads(bytes.chunks(100));
});
