//! The terminal's address changes while flows are open: behind a NAT that has forgotten it, or because it uses another
//! interface. In virtual time over GEO.

use std::time::Duration;

use crate::support::{DatagramEnd, Setup, Stream, TERMINAL, World, in_virtual_time, now};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

const RTT: Duration = Duration::from_millis(500);
/// What all else takes: an acknowledgement, which shows the new address, is late by 25 ms at most.
const SOON: Duration = Duration::from_millis(30);
const SATELLITE: &str = r#"
name = "geo"
[forward]
rate = "20 Mbit/s"
delay = "250 ms"
queue = "1.25 MB"
[return]
rate = "5 Mbit/s"
delay = "250 ms"
queue = "1.25 MB"
"#;
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

async fn read(from: &mut Stream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// A warm tunnel with a flow and a call open in it.
struct Open {
    world: World,
    application: Stream,
    origin: Stream,
    caller: DatagramEnd,
    peer: DatagramEnd,
}

/// Runs `test` for either way to learn of the change.
fn for_each_change(test: impl AsyncFn(Change, Open)) {
    for how in [Change::Nat, Change::Interface] {
        in_virtual_time(async |clock| {
            let world = Setup {
                scenario: bentpipe_link::Scenario::parse(SATELLITE).unwrap(),
                ..Setup::default()
            };
            let world = world.start(&clock);
            world.warm().await;
            let (application, origin) = flow(&world).await;
            let (caller, peer) = world.open_udp(PEER).await;
            let open = Open {
                world,
                application,
                origin,
                caller,
                peer,
            };
            test(how, open).await;
        });
    }
}

/// When the first of `count` bytes comes after `moment` from now, and after `change` then.
async fn first_after(
    world: &World,
    how: Change,
    moment: Duration,
    application: &mut Stream,
    count: usize,
) -> Duration {
    let changed = async {
        tokio::time::sleep(moment).await;
        change(world, how).await
    };
    let downloading = async {
        let mut came = Vec::new();
        let mut left = count;
        let mut buffer = vec![0; 100_000];
        while left > 0 {
            let length = application.read(&mut buffer).await.unwrap();
            assert!(length > 0 && buffer[..length].iter().all(|byte| *byte == 7));
            left -= length;
            came.push(now());
        }
        came
    };
    let (at, came) = tokio::join!(changed, downloading);
    came.into_iter().find(|came| *came > at).unwrap() - at
}

#[test]
fn a_request_behind_it_is_answered_as_soon_as_before() {
    for_each_change(async |how, open| {
        let Open {
            world,
            mut application,
            mut origin,
            caller,
            peer,
        } = open;
        let session = world.terminal.session().borrow().clone().unwrap();
        let received = || {
            let path = session.connection().path_stats(noq::PathId::ZERO);
            path.unwrap().udp_rx.bytes
        };
        change(&world, how).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (asked, before) = (now(), received());
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
        // There is no other path that figures would have to tell of.
        assert!(!session.connection().is_multipath_enabled());
        assert!(received() > before);
    });
}

#[test]
fn a_download_and_a_call_go_on_two_round_trips_after_it_is_noticed() {
    for_each_change(async |how, open| {
        let Open {
            world,
            mut application,
            mut origin,
            caller,
            peer,
        } = open;
        let sending = async {
            // 4 Mbit/s and 64 kbit/s.
            for number in 0..500_u32 {
                origin.write_all(&[7; 10_000]).await.unwrap();
                peer.send(&number.to_be_bytes());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let at = now() + Duration::from_secs(5);
        let downloading = first_after(&world, how, at - now(), &mut application, 500 * 10_000);
        let listening = async {
            let mut came = Vec::new();
            while let Ok(datagram) = timeout(4 * RTT, caller.receive()).await {
                datagram.unwrap();
                came.push(now());
            }
            came
        };
        let ((), bytes, datagrams) = tokio::join!(sending, downloading, listening);
        let datagrams = datagrams.into_iter().find(|came| *came > at).unwrap() - at;
        for (what, first) in [("bytes", bytes), ("datagrams", datagrams)] {
            println!("{how:?}: {what} after {first:?}");
            assert!(first < 2 * RTT + SOON, "{how:?}: {what} after {first:?}");
        }
    });
}

/// At several moments between two acknowledgements.
#[test]
#[ignore = "takes long: make test-long"]
fn a_download_that_fills_the_link_goes_on_two_round_trips_after_it_is_noticed() {
    const BYTES: usize = 20_000_000;
    for moment in (5000..5250).step_by(16).map(Duration::from_millis) {
        for_each_change(async |how, open| {
            let Open {
                world,
                mut application,
                mut origin,
                ..
            } = open;
            let sending = async {
                origin.write_all(&vec![7; BYTES]).await.unwrap();
            };
            let downloading = first_after(&world, how, moment, &mut application, BYTES);
            let ((), first) = tokio::join!(sending, downloading);
            println!("{how:?} at {moment:?}: {first:?}");
            assert!(first < 2 * RTT + SOON, "{how:?} at {moment:?}: {first:?}");
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
