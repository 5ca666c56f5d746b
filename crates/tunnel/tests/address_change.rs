//! The terminal's address changes while flows are open: behind a NAT that has forgotten it, or because it uses another
//! interface. In virtual time over GEO.

mod support;

use std::time::Duration;

use support::{DatagramEnd, Setup, Stream, TERMINAL, World, in_virtual_time, now};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

const RTT: Duration = Duration::from_millis(500);
/// Before a terminal that says nothing takes a silence for one: it is looked for every 500 ms.
const SILENCE: Duration = Duration::from_millis(530);
/// What all else takes.
const SOON: Duration = Duration::from_millis(30);
const ORIGIN: &str = "93.184.216.34:443";
const PEER: &str = "93.184.216.35:5004";

/// How the terminal learns that its address has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Not at all.
    Nat,
    /// The kernel tells it.
    Interface,
}

/// Gives the terminal another address; when that was.
async fn change(world: &World, how: Change) -> Instant {
    let other = match how {
        Change::Nat => "192.0.2.2:50001",
        Change::Interface => "198.51.100.2:50000",
    };
    let [from, to] = [TERMINAL, other].map(|address| address.parse().unwrap());
    world.network.r#move(from, to, &[0]);
    let at = now();
    if how == Change::Interface {
        tokio::time::sleep(Duration::from_millis(1)).await;
        world.endpoint.handle_network_change(None);
    }
    at
}

/// A flow that is open, with both its ends.
async fn flow(world: &World) -> (Stream, Stream) {
    let mut origins = world.internet.serve(ORIGIN);
    let mut application = world.connect(ORIGIN);
    application.write_all(b"hello").await.unwrap();
    let mut origin = origins.recv().await.unwrap();
    assert_eq!(read(&mut origin, 5).await, b"hello");
    (application, origin)
}

/// A flow of datagrams that is open, with both its ends.
async fn call(world: &World) -> (DatagramEnd, DatagramEnd) {
    let mut sockets = world.internet.serve_udp(PEER);
    let (application, _) = world.connect_udp(1, PEER);
    application.send(b"ring");
    let peer = sockets.recv().await.unwrap();
    assert_eq!(peer.receive().await.unwrap(), b"ring");
    peer.send(b"here");
    assert_eq!(application.receive().await.unwrap(), b"here");
    (application, peer)
}

async fn read(from: &mut Stream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[test]
fn a_request_behind_it_is_answered_as_soon_as_before() {
    for how in [Change::Nat, Change::Interface] {
        in_virtual_time(async |clock| {
            let world = Setup::default().start(&clock);
            world.warm().await;
            let (mut application, mut origin) = flow(&world).await;
            let (caller, peer) = call(&world).await;
            change(&world, how).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let asked = now();
            application.write_all(b"more?").await.unwrap();
            caller.send(b"still there?");
            let answering = async {
                assert_eq!(read(&mut origin, 5).await, b"more?");
                origin.write_all(b"more").await.unwrap();
                assert_eq!(peer.receive().await.unwrap(), b"still there?");
                peer.send(b"yes");
            };
            let answers = async {
                assert_eq!(read(&mut application, 4).await, b"more");
                assert_eq!(caller.receive().await.unwrap(), b"yes");
                asked.elapsed()
            };
            let (took, ()) = tokio::join!(answers, answering);
            println!("{how:?}: {took:?}");
            assert!(took < RTT + SOON, "{how:?}: {took:?}");
        });
    }
}

#[test]
fn a_download_and_a_call_go_on_two_round_trips_after_it_is_noticed() {
    for how in [Change::Nat, Change::Interface] {
        in_virtual_time(async |clock| {
            let world = Setup::default().start(&clock);
            world.warm().await;
            let (mut application, mut origin) = flow(&world).await;
            let (caller, peer) = call(&world).await;
            let sending = async {
                // 4 Mbit/s and 64 kbit/s.
                for number in 0..500_u32 {
                    origin.write_all(&[7; 10_000]).await.unwrap();
                    peer.send(&number.to_be_bytes());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let changed = async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                change(&world, how).await
            };
            let downloading = async {
                let mut came = Vec::new();
                let mut left = 500 * 10_000;
                let mut buffer = vec![0; 100_000];
                while left > 0 {
                    let length = application.read(&mut buffer).await.unwrap();
                    assert!(length > 0 && buffer[..length].iter().all(|byte| *byte == 7));
                    left -= length;
                    came.push(now());
                }
                came
            };
            let listening = async {
                let mut came = Vec::new();
                while let Ok(datagram) = timeout(4 * RTT, caller.receive()).await {
                    datagram.unwrap();
                    came.push(now());
                }
                came
            };
            let ((), at, bytes, datagrams) = tokio::join!(sending, changed, downloading, listening);
            for (what, came) in [("bytes", bytes), ("datagrams", datagrams)] {
                let first = came.into_iter().find(|came| *came > at).unwrap() - at;
                println!("{how:?}: {what} after {first:?}");
                let noticed = match how {
                    Change::Nat => SILENCE,
                    Change::Interface => SOON,
                };
                assert!(first < 2 * RTT + noticed, "{how:?}: {what} after {first:?}");
            }
        });
    }
}

#[test]
fn what_an_origin_says_first_reaches_a_terminal_that_was_told() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.warm().await;
        let (mut application, mut origin) = flow(&world).await;
        let at = change(&world, Change::Interface).await;
        origin.write_all(b"news").await.unwrap();
        assert_eq!(read(&mut application, 4).await, b"news");
        let took = at.elapsed();
        println!("{took:?}");
        assert!(took < 2 * RTT + SOON, "{took:?}");
    });
}
