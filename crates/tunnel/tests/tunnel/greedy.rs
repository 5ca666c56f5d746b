//! Hosts that take all the connections, UDP flows and questions of DNS that they can get, for ever, and one that wants a few:
//! over GEO, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::support::names::{Names, addresses};
use crate::support::{DatagramEnd, Setup, Stream, World, in_virtual_time};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const ORIGIN: &str = "93.184.216.34:80";
const PEER: &str = "93.184.216.34:5004";
const ROUND_TRIP: Duration = Duration::from_millis(500);
/// Beside the round trip: the name server, and what the terminal's processor has to do.
const OURS: Duration = Duration::from_millis(50);
/// Who is refused tries again after that.
const AGAIN: Duration = Duration::from_secs(5);
/// The host that wants a few.
const MODEST: u8 = 200;

/// Says back what connections and UDP flows say.
fn echo(mut connections: UnboundedReceiver<Stream>, mut sockets: UnboundedReceiver<DatagramEnd>) {
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    tokio::spawn(async move {
        while let Some(socket) = sockets.recv().await {
            tokio::spawn(async move {
                while let Some(datagram) = socket.receive().await {
                    socket.send(&datagram);
                }
            });
        }
    });
}

/// Has `times` connections, UDP flows and questions of `host` under way, and again whenever one ends.
fn take_all(world: &World, names: &Arc<Names>, host: u8, times: usize) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for number in 0..times {
        let own = world.clone();
        all.spawn(async move {
            loop {
                let mut stream = own.connect_from(host, ORIGIN);
                let _ = stream.write_all(b"mine").await;
                while let Ok(1..) = stream.read(&mut [0; 64]).await {}
                sleep(AGAIN).await;
            }
        });
        let own = world.clone();
        all.spawn(async move {
            loop {
                let (application, carried) = own.connect_udp(host, PEER);
                application.send(b"mine");
                let _ = carried.await;
                sleep(AGAIN).await;
            }
        });
        let names = names.clone();
        all.spawn(async move {
            for time in 0.. {
                let name = format!("silent-{host}-{number}-{time}.example.");
                names.ask_from(host, &name).await;
                sleep(AGAIN).await;
            }
        });
    }
    all
}

async fn says_back(stream: &mut Stream) {
    stream.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    let read = timeout(ROUND_TRIP + OURS, stream.read_exact(&mut heard)).await;
    read.expect("it has a place").unwrap();
    assert_eq!(&heard, b"hello");
}

async fn comes_back(application: &DatagramEnd) {
    application.send(b"hello");
    let heard = timeout(ROUND_TRIP + OURS, application.receive()).await;
    assert_eq!(heard.expect("it has a place").unwrap(), b"hello");
}

/// Of `places` for connections and UDP flows.
fn one_host_is_always_served_beside(greedy: u8, places: usize) {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.terminal.limit_flows(places);
        echo(world.internet.serve(ORIGIN), world.internet.serve_udp(PEER));
        for number in 0..40 {
            let name = format!("name-{number}.example.");
            world.internet.1.put(&name, 300, &["93.184.216.34"]);
        }
        let names = Arc::new(Names::of(&world));
        world.warm().await;
        let mut connection = world.connect_from(MODEST, ORIGIN);
        says_back(&mut connection).await;
        let (call, _carried) = world.connect_udp(MODEST, PEER);
        comes_back(&call).await;

        let mut all = Vec::new();
        for host in 1..=greedy {
            // More than one alone could have, and then, with others, more than its share.
            let times = places * 3 / 2 / usize::from(greedy.min(host + 1));
            all.push(take_all(&world, &names, host, times));
            sleep(ROUND_TRIP / 4).await;
        }
        sleep(10 * ROUND_TRIP).await;
        for number in 0..20 {
            says_back(&mut connection).await;
            comes_back(&call).await;
            let mut another = world.connect_from(MODEST, ORIGIN);
            says_back(&mut another).await;
            let (flow, carried) = world.connect_udp(MODEST, PEER);
            comes_back(&flow).await;
            carried.abort();

            let (took, reply) = names
                .ask_from(MODEST, &format!("name-{number}.example."))
                .await;
            assert_eq!(
                addresses(&reply),
                ["93.184.216.34"],
                "beside {greedy} hosts"
            );
            assert!(took < ROUND_TRIP + OURS, "{took:?}");
            sleep(Duration::from_millis(137)).await;
        }
        let open = world.terminal.tally().snapshot();
        assert!(
            open.open > places as u64 * 9 / 10,
            "all places are taken: {open:?}"
        );
        assert!(open.open <= places as u64 + 10, "and no more: {open:?}");
        drop((all, connection, call));
        sleep(Duration::from_secs(700)).await;
        let left = [world.terminal.tally(), &world.at_gateway].map(|tally| tally.snapshot().open);
        assert_eq!(left, [0, 0], "nothing is left");
    });
}

#[test]
fn one_host_is_always_served_beside_eight_that_take_all() {
    one_host_is_always_served_beside(8, 400);
}

#[test]
fn one_host_is_always_served_beside_twenty_that_take_all() {
    one_host_is_always_served_beside(20, 400);
}

#[test]
#[ignore = "takes long: make test-long"]
fn one_host_is_always_served_beside_a_hundred_that_take_all() {
    one_host_is_always_served_beside(100, 1600);
}
