//! What strangers send first: the corpora of the fuzz targets `client_hello` and `proxy_header`,
//! replayed and damaged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Identity, NAME};
use bentpipe_quicpep::hello::{ClientHello, Hellos, in_payloads};
use bentpipe_quicpep::pair::Client;
use bentpipe_quicpep::tls;
use proptest::prelude::*;

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&directory).expect("the corpus is there");
    let paths = files.map(|file| file.expect("it can be listed").path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    assert!(paths.len() >= 6, "{directory}");
    let named = paths.into_iter().map(|path| {
        let name = path
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        (name, std::fs::read(path).expect("it can be read"))
    });
    named.collect()
}

fn hellos() -> Hellos {
    let certificates = Arc::new(Identity::new(NAME).certificates());
    Hellos::new(tls::server_with(&tls::server(certificates), Vec::new()))
}

/// What the clients of the corpus ask for.
fn expected() -> ClientHello {
    ClientHello {
        server_name: Some(NAME.into()),
        protocols: vec![b"h3".to_vec(), b"hq-interop".to_vec()],
    }
}

#[test]
fn a_client_hello_is_read_however_its_frames_lie() {
    for (name, bytes) in corpus("client_hello") {
        let whole = ["whole", "out-of-order", "overlapping", "huge-offset"].contains(&&*name);
        let read = in_payloads([&bytes[..]]);
        assert_eq!(read, whole.then(expected), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_datagram_is_decrypted_and_read() {
    let hellos = hellos();
    let from = ([192, 0, 2, 1], 50_000).into();
    let corpus = corpus("client_hello");
    for (_, bytes) in &corpus {
        hellos.read(from, bytes);
    }
    let (_, datagram) = corpus
        .iter()
        .find(|(name, _)| name == "datagram")
        .expect("it is there");
    let id = noq::ConnectionId::new(&datagram[6..6 + usize::from(datagram[5])]);
    let hello = tokio::time::timeout(Duration::from_secs(1), hellos.take(from, id)).await;
    assert_eq!(hello.expect("it has been read"), expected());
}

#[test]
fn a_header_of_another_proxy_is_read_or_refused() {
    for (name, bytes) in corpus("proxy_header") {
        let read = Client::from_header(&bytes);
        assert_eq!(read.is_ok(), name == "whole", "{name}: {read:?}");
    }
}

proptest! {
    #[test]
    fn no_damage_ends_the_program(
        (_, bytes) in prop::sample::select(corpus("client_hello")),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = bytes;
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = in_payloads([&bytes[..]]);
        let _ = in_payloads(bytes.chunks(100));
    }

    #[test]
    fn no_damage_to_a_datagram_ends_the_program(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        length in 0..1200_usize,
    ) {
        let corpus = corpus("client_hello");
        let mut datagram = corpus.into_iter().find(|(name, _)| name == "datagram").expect("there").1;
        let index = at.index(40);
        datagram[index] = byte;
        hellos().read(([192, 0, 2, 1], 1).into(), &datagram[..length]);
    }
}
