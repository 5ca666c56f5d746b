//! Applications' own QUIC against TCP, chosen by what transfers of both have taken: through terminal and gateway in
//! virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::support::own_quic::{SERVER, download};
use crate::support::{Setup, World, in_virtual_time, tls};
use bentpipe_link::Scenario;
use bentpipe_tunnel::terminal::quic_choice::{Decision, QuicChoiceSnapshot};
use bentpipe_vnet::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const BYTES: usize = 1_200_000;
const NAME: &str = "server.example";

/// The same download by TCP with TLS.
async fn by_tcp(world: &World) {
    let mut connections = world.internet.serve(SERVER);
    let (server, client) = tls::configurations(NAME);
    let serving = tokio::spawn(async move {
        let connection = connections.recv().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(server))
            .accept(connection)
            .await
            .unwrap();
        stream.read_exact(&mut [0; 3]).await.unwrap();
        stream.write_all(&vec![7; BYTES]).await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let connection = world.connect_from(1, SERVER);
    let name = NAME.try_into().unwrap();
    let connector = TlsConnector::from(Arc::new(client));
    let mut stream = connector.connect(name, connection).await.unwrap();
    stream.write_all(b"GET").await.unwrap();
    let mut answer = vec![0; BYTES];
    stream.read_exact(&mut answer).await.unwrap();
    drop(stream);
    serving.abort();
}

/// Visits to one server as a browser makes them, by QUIC if it is admitted, until it is decided.
async fn decided(clock: &Clock, direction: &str) -> QuicChoiceSnapshot {
    let text = format!("name = \"test\"\n[forward]\n{direction}\n[return]\n{direction}\n");
    let setup = Setup {
        scenario: Scenario::parse(&text).unwrap(),
        ..Setup::default()
    };
    let world = setup.start(clock);
    world.warm().await;
    let choice = world.terminal.quic_choice();
    choice.measure(true);
    let server: std::net::SocketAddr = SERVER.parse().unwrap();
    for visit in 0..8 {
        let snapshot = choice.snapshot().unwrap();
        if snapshot.decision != Decision::Learning {
            return snapshot;
        }
        match choice.admits([192, 168, 7, 1].into(), server.ip()) {
            true => drop(download(&world, clock, visit, BYTES).await),
            false => by_tcp(&world).await,
        }
        tokio::time::sleep(Duration::from_secs(310)).await;
    }
    panic!("not decided: {:?}", choice.snapshot());
}

#[test]
fn on_geo_quic_is_refused_because_tcp_split_is_faster() {
    in_virtual_time(async |clock| {
        let geo = "rate = \"20 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"";
        let snapshot = decided(&clock, geo).await;
        println!("{snapshot:?}");
        assert_eq!(snapshot.decision, Decision::Refuse, "{snapshot:?}");
        let largest = snapshot.times.last().unwrap();
        assert_eq!(largest.bytes, 1_000_000, "{snapshot:?}");
        assert!(largest.quic_ms > 1.3 * largest.tcp_ms, "{snapshot:?}");
    });
}

#[test]
fn on_a_short_path_it_is_tunnelled_because_both_are_alike() {
    in_virtual_time(async |clock| {
        let short = "rate = \"2 Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"50 ms\"";
        let snapshot = decided(&clock, short).await;
        println!("{snapshot:?}");
        assert_eq!(snapshot.decision, Decision::Tunnel, "{snapshot:?}");
    });
}
