//! TLS 1.3 of applications and their servers.

use std::io::Write as _;
use std::sync::Arc;

use rustls::ClientConnection;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A server with a certificate for `name`, and a client that believes it.
pub fn configurations(name: &str) -> (rustls::ServerConfig, rustls::ClientConfig) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server, client)
}

/// The first flights of two clients' connections to the same server: a ClientHello, and one with early data behind it.
pub fn first_flights() -> [Vec<u8>; 2] {
    let name = "server.example";
    let (mut server, mut client) = configurations(name);
    server.max_early_data_size = 1000;
    client.enable_early_data = true;
    let (server, client) = (Arc::new(server), Arc::new(client));
    let begin = || ClientConnection::new(client.clone(), name.try_into().unwrap()).unwrap();
    let mut first = begin();
    let mut there = rustls::ServerConnection::new(server).unwrap();
    let mut hello = Vec::new();
    first.write_tls(&mut hello).unwrap();
    there.read_tls(&mut &hello[..]).unwrap();
    there.process_new_packets().unwrap();
    // Until the client has a ticket.
    for _ in 0..2 {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        there.write_tls(&mut down).unwrap();
        first.read_tls(&mut &down[..]).unwrap();
        first.process_new_packets().unwrap();
        first.write_tls(&mut up).unwrap();
        there.read_tls(&mut &up[..]).unwrap();
        there.process_new_packets().unwrap();
    }
    let mut second = begin();
    let mut early = second.early_data().unwrap();
    early.write_all(b"POST / HTTP/1.1\r\n").unwrap();
    let mut with_early_data = Vec::new();
    while second.wants_write() {
        second.write_tls(&mut with_early_data).unwrap();
    }
    [hello, with_early_data]
}
