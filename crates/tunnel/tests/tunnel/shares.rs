//! Shares of one session: what flows leave each other, over GEO at 20 and 5 Mbit/s.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::support::call::{call, p95};
use crate::support::{Setup, Stream, World, in_virtual_time, now};
use bentpipe_link::Scenario;
use bentpipe_tunnel::sockets::Socket as _;
use bentpipe_tunnel::transport::Transport;
use bentpipe_units::{Bytes, Rate};
use bentpipe_vnet::clock::Clock;
use bentpipe_vnet::host::HostSpec;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

const ORIGIN: &str = "93.184.216.34:80";
const GEO: &str = "name = \"geo\"\n\
    [forward]\nrate = \"20 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"375 kB\"\n\
    [return]\nrate = \"5 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"100 kB\"\n";

/// Takes what is sent, as long as it likes.
const SINK: &str = "93.184.216.34:9";
const SHORT: &str = "name = \"short\"\n\
    [forward]\nrate = \"100 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"1250 kB\"\n\
    [return]\nrate = \"50 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"1250 kB\"\n";

fn geo() -> Setup {
    let mut setup = Setup {
        scenario: Scenario::parse(GEO).unwrap(),
        ..Setup::default()
    };
    // No more than the link has: nothing is hidden by windows that are too large.
    setup.transport.expected_rate = Rate::from_bits_per_second(20_000_000);
    setup.transport.memory = Bytes::new(64 << 20);
    setup
}

/// Asks for an answer of `bytes`, and gives the application's side.
///
/// The request says how long the answer is; [`serve`] answers.
async fn ask(world: &World, host: u8, bytes: u64) -> Stream {
    let mut application = world.connect_from(host, ORIGIN);
    application.write_all(&bytes.to_be_bytes()).await.unwrap();
    application
}

/// Answers requests as fast as they are taken.
fn serve(mut connections: UnboundedReceiver<Stream>) {
    tokio::spawn(async move {
        while let Some(mut stream) = connections.recv().await {
            tokio::spawn(async move {
                let mut length = [0; 8];
                if stream.read_exact(&mut length).await.is_err() {
                    return;
                }
                let mut left = u64::from_be_bytes(length);
                let block = vec![b'x'; 64 * 1024];
                while left > 0 {
                    let now = left.min(block.len() as u64);
                    let piece = &block[..usize::try_from(now).unwrap()];
                    if stream.write_all(piece).await.is_err() {
                        return;
                    }
                    left -= now;
                }
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        }
    });
}

/// Reads up to `bytes`, within `time`; how many came.
async fn read_for(stream: &mut Stream, bytes: u64, time: Duration) -> u64 {
    let mut read = 0;
    let _ = timeout(time, async {
        let mut buffer = vec![0; 64 * 1024];
        while read < bytes {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => read += count as u64,
            }
        }
    })
    .await;
    read
}

/// How long the 20-kB answers to `times` requests take, one after the other.
async fn small_requests(world: &World, times: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for number in 0..times {
        let begin = now();
        let mut stream = ask(world, 1, 20_000).await;
        let read = read_for(&mut stream, 20_000, Duration::from_secs(60)).await;
        assert_eq!(read, 20_000, "request {number} is answered");
        took.push(begin.elapsed());
        // At no fixed phase of anything.
        tokio::time::sleep(Duration::from_millis(300 + 37 * (number as u64 % 11))).await;
    }
    took.sort();
    took
}

async fn warm(clock: &Clock) -> World {
    warm_on(clock, HostSpec::IDEAL, 0).await
}

/// The same on two machines of a kind, whose stalls are drawn by `seed`.
async fn warm_on(clock: &Clock, host: HostSpec, seed: u64) -> World {
    let setup = Setup {
        host,
        seed,
        ..geo()
    };
    let world = setup.start(clock);
    serve(world.internet.serve(ORIGIN));
    world.warm().await;
    // The controller learns the link.
    let mut stream = ask(&world, 1, 10 << 20).await;
    assert_eq!(
        read_for(&mut stream, 10 << 20, Duration::from_secs(60)).await,
        10 << 20
    );
    drop(stream);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world
}

/// A download that never ends, of which so much was read in `time`, bytes.
async fn goodput(world: &World, host: u8, time: Duration) -> f64 {
    let mut stream = ask(world, host, u64::MAX).await;
    // Not counted: how it begins.
    read_for(&mut stream, u64::MAX, Duration::from_secs(10)).await;
    let read = read_for(&mut stream, u64::MAX, time).await;
    read as f64 * 8.0 / time.as_secs_f64()
}

/// A download without end; bytes of it that were read.
fn bulk(world: &World, host: u8) -> Arc<AtomicU64> {
    let (world, read) = (world.clone(), Arc::<AtomicU64>::default());
    let count = read.clone();
    tokio::spawn(async move {
        let mut stream = ask(&world, host, u64::MAX).await;
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
            count.fetch_add(bytes as u64, Relaxed);
        }
    });
    read
}

/// Reads 40 kB/s, or nothing at all.
fn slow(world: &World, host: u8, reads: bool) {
    let world = world.clone();
    tokio::spawn(async move {
        let mut stream = ask(&world, host, u64::MAX).await;
        let mut buffer = vec![0; 4000];
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if reads && stream.read_exact(&mut buffer).await.is_err() {
                return;
            }
        }
    });
}

/// What a neighbour may cost a small request.
const GOAL: Duration = Duration::from_millis(50);
/// Pairs of machines that stall: the p95 of one pair's sixty requests differs by 20 ms from that of another's.
const PAIRS: u64 = 6;

/// The 20-kB request of one host, alone and `beside` what another host does: its p95 is later by
/// `most` at most, of all requests of `seeds` pairs of machines.
fn small_request_beside(
    host: HostSpec,
    seeds: u64,
    what: &str,
    most: Duration,
    beside: impl Fn(&World),
) {
    let (mut idle, mut loaded) = (Vec::new(), Vec::new());
    for seed in 0..seeds {
        in_virtual_time(async |clock| {
            let world = warm_on(&clock, host, seed).await;
            idle.extend(small_requests(&world, 20).await);
            beside(&world);
            tokio::time::sleep(Duration::from_secs(30)).await;
            loaded.extend(small_requests(&world, 60).await);
        });
    }
    idle.sort();
    loaded.sort();
    let (median, idle, p95) = (loaded[loaded.len() / 2], p95(&idle), p95(&loaded));
    println!("20 kB: idle p95 {idle:?}; beside {what} median {median:?}, p95 {p95:?}");
    assert!(p95 <= idle + most, "{p95:?} beside {what}, idle {idle:?}");
}

fn thirty_downloads(world: &World) {
    for _ in 0..30 {
        bulk(world, 2);
    }
}

fn a_thousand_slow_readers(world: &World) {
    for _ in 0..1000 {
        slow(world, 2, true);
    }
}

#[test]
fn a_small_request_is_as_fast_beside_thirty_downloads_as_alone() {
    small_request_beside(HostSpec::IDEAL, 1, "30 downloads", GOAL, thirty_downloads);
}

#[test]
#[ignore = "takes long: make test-long"]
fn a_small_request_is_as_fast_beside_thirty_downloads_on_loaded_machines() {
    small_request_beside(
        HostSpec::LOADED,
        PAIRS,
        "30 downloads",
        GOAL,
        thirty_downloads,
    );
}

#[test]
#[ignore = "takes long: make test-long"]
fn a_small_request_is_as_fast_beside_a_thousand_slow_readers_as_alone() {
    let (host, what) = (HostSpec::IDEAL, "1000 slow readers");
    small_request_beside(host, 1, what, GOAL, a_thousand_slow_readers);
}

#[test]
#[ignore = "takes long: make test-long"]
fn a_small_request_is_as_fast_beside_a_thousand_slow_readers_on_loaded_machines() {
    let (host, what) = (HostSpec::LOADED, "1000 slow readers");
    small_request_beside(host, PAIRS, what, GOAL, a_thousand_slow_readers);
}

/// Opens 200 connections a second for a minute. They end as connections do: at once, before the origin has answered, or by
/// either end with FIN or RST after it has.
async fn two_hundred_connections_a_second(world: &World, host: u8) {
    const TIME: Duration = Duration::from_secs(60);
    const EVERY: Duration = Duration::from_millis(5);
    let begin = now();
    for number in 0..u32::try_from(TIME.as_millis() / EVERY.as_millis()).unwrap() {
        tokio::time::sleep_until(begin + number * EVERY).await;
        let world = world.clone();
        tokio::spawn(async move {
            let answer = 100 * u64::from(number % 6);
            let mut stream = match number % 6 {
                0 => return drop(world.connect_from(host, ORIGIN)),
                1 => return world.connect_from(host, ORIGIN).close(),
                _ => ask(&world, host, answer).await,
            };
            match number % 6 {
                2 => tokio::time::sleep(Duration::from_millis(300)).await,
                3 => drop(read_for(&mut stream, answer, TIME).await),
                _ => {
                    assert_eq!(read_for(&mut stream, answer + 1, TIME).await, answer);
                    stream.close();
                }
            }
        });
    }
}

#[test]
#[ignore = "takes long: make test-long"]
fn a_small_request_is_as_fast_beside_connections_that_come_and_go_and_nothing_of_them_is_left() {
    in_virtual_time(async |clock| {
        let world = warm(&clock).await;
        let idle = p95(&small_requests(&world, 20).await);
        let download = tokio::spawn({
            let world = world.clone();
            async move { goodput(&world, 3, Duration::from_secs(100)).await }
        });
        tokio::time::sleep(Duration::from_secs(30)).await;
        let tallies = [world.terminal.tally(), &world.at_gateway];
        let before = tallies.map(|tally| tally.snapshot());
        let one_a_second = async {
            let begin = now();
            let mut took = Vec::new();
            for number in 0..60 {
                tokio::time::sleep_until(begin + Duration::from_secs(number)).await;
                let begin = now();
                let mut stream = ask(&world, 1, 20_000).await;
                let read = read_for(&mut stream, 20_000, Duration::from_secs(60)).await;
                assert_eq!(read, 20_000, "request {number} is answered");
                took.push(begin.elapsed());
            }
            took.sort();
            took
        };
        let come_and_go = two_hundred_connections_a_second(&world, 2);
        let (loaded, ()) = tokio::join!(one_a_second, come_and_go);
        let (median, p95) = (loaded[loaded.len() / 2], p95(&loaded));
        let rate = download.await.unwrap();
        println!(
            "20 kB: idle p95 {idle:?}; beside 200 connections a second and a download of {:.2} Mbit/s median {median:?}, p95 {p95:?}",
            rate / 1e6
        );
        assert!(p95 <= idle + GOAL, "{p95:?}, idle {idle:?}");
        tokio::time::sleep(Duration::from_secs(30)).await;
        for (tally, before) in tallies.into_iter().zip(before) {
            let after = tally.snapshot();
            assert_eq!(after.open, 0, "{after:?}");
            assert!(after.ended - before.ended >= 60 * 200 / 3, "{after:?}");
            let refused = after.failed.get("too_many_flows");
            assert_eq!(refused, None);
        }
        assert_eq!(world.internet.dialling(), 0);
        let session = world.terminal.session().borrow().clone().unwrap();
        assert!(!session.is_closed(), "it is the same session");
    });
}

#[test]
#[ignore = "takes long: make test-long"]
fn readers_that_are_slow_or_stalled_leave_a_download_its_rate() {
    for (count, reads, least) in [(8, true, 15.5e6), (8, false, 18e6), (20, false, 18e6)] {
        in_virtual_time(async |clock| {
            let world = warm(&clock).await;
            for _ in 0..count {
                slow(&world, 2, reads);
            }
            tokio::time::sleep(Duration::from_secs(30)).await;
            let rate = goodput(&world, 1, Duration::from_secs(60)).await;
            let small = p95(&small_requests(&world, 10).await);
            println!(
                "{count} readers, slow not stalled: {reads}: download {:.2} Mbit/s, then 20 kB in {small:?}",
                rate / 1e6
            );
            assert!(rate >= least, "{count} readers, {reads}: {rate}");
        });
    }
}

/// Hosts with one and with sixteen flows: the first one's part of what both carry, which is `least`
/// of the link.
fn share_of_one_beside_sixteen(host: HostSpec, least: f64) {
    in_virtual_time(async |clock| {
        let world = warm_on(&clock, host, 0).await;
        let all: Vec<_> = (0..16).map(|_| bulk(&world, 2)).collect();
        let read = || all.iter().map(|read| read.load(Relaxed)).sum::<u64>();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let mut stream = ask(&world, 1, u64::MAX).await;
        // Not counted: how it begins.
        read_for(&mut stream, u64::MAX, Duration::from_secs(10)).await;
        let before = read();
        let one = read_for(&mut stream, u64::MAX, Duration::from_secs(60)).await as f64;
        let sixteen = (read() - before) as f64;
        let share = one / (one + sixteen);
        // 20 Mbit/s without the headers of IP, UDP, QUIC and its frames.
        let link = (one + sixteen) * 8.0 / 60.0 / (20e6 * 1437.0 / 1500.0);
        println!(
            "host with one flow beside a host with sixteen: {share:.3}, both {link:.3} of the link"
        );
        assert!((0.45..=0.55).contains(&share), "{share}");
        // Equal shares of little would be no use.
        assert!(link >= least, "{link}");
    });
}

#[test]
fn hosts_have_equal_shares_whatever_their_number_of_flows() {
    share_of_one_beside_sixteen(HostSpec::IDEAL, 0.95);
}

#[test]
#[ignore = "takes long: make test-long"]
fn hosts_have_equal_shares_on_loaded_machines() {
    share_of_one_beside_sixteen(HostSpec::LOADED, 0.95);
}

/// Which way a transfer goes.
#[derive(Debug, Clone, Copy)]
enum Way {
    Download,
    Upload,
}

/// An origin that reads `bytes` of each connection, and no more.
fn read_a_part(mut connections: UnboundedReceiver<Stream>, bytes: u64) {
    tokio::spawn(async move {
        let mut stopped = Vec::new();
        while let Some(mut stream) = connections.recv().await {
            read_for(&mut stream, bytes, Duration::from_secs(60)).await;
            stopped.push(stream);
        }
    });
}

/// A transfer of which `bytes` are read, at once, and no more.
async fn stops_after(world: &World, way: Way, bytes: u64) -> Stream {
    match way {
        Way::Download => {
            let mut stream = ask(world, 2, u64::MAX).await;
            read_for(&mut stream, bytes, Duration::from_secs(60)).await;
            stream
        }
        Way::Upload => {
            let mut stream = world.connect_from(2, SINK);
            let block = vec![b'x'; 64 * 1024];
            while timeout(Duration::from_secs(2), stream.write_all(&block))
                .await
                .is_ok()
            {}
            stream
        }
    }
}

/// One after another is read fast and then not at all: whatever they hold, the session goes on.
#[test]
#[ignore = "takes long: make test-long"]
fn readers_that_stop_one_after_another_leave_small_requests_alone() {
    const PART: u64 = 2 << 20;
    for way in [Way::Download, Way::Upload] {
        in_virtual_time(async |clock| {
            let mut setup = geo();
            setup.scenario = Scenario::parse(SHORT).unwrap();
            setup.transport = Transport {
                memory: Bytes::new(128 << 20),
                ..Transport::default()
            };
            let world = setup.start(&clock);
            serve(world.internet.serve(ORIGIN));
            read_a_part(world.internet.serve(SINK), PART);
            world.warm().await;
            let mut stopped = Vec::new();
            let mut worst = Duration::ZERO;
            for _ in 0..60 {
                stopped.push(stops_after(&world, way, PART).await);
                worst = worst.max(small_requests(&world, 1).await[0]);
            }
            println!("{way:?}: 60 that stopped, 20 kB in {worst:?} at worst");
            // One round trip and what is on the way before it.
            assert!(worst < Duration::from_millis(200), "{way:?}: {worst:?}");
        });
    }
}

/// Takes all that is sent until its end, and says then how much it was.
fn count(mut connections: UnboundedReceiver<Stream>) {
    tokio::spawn(async move {
        while let Some(mut stream) = connections.recv().await {
            tokio::spawn(async move {
                let mut taken = Vec::new();
                let _ = stream.read_to_end(&mut taken).await;
                let _ = stream.write_all(&taken.len().to_be_bytes()).await;
                stream.close();
            });
        }
    });
}

/// Many flows leave little for new ones, and end together: uploads that begin while the terminal has not heard
/// yet that there is more go by the little.
#[test]
fn uploads_that_begin_when_many_flows_end_are_carried_whole() {
    const BYTES: usize = 300_000;
    const COUNT: &str = "93.184.216.34:81";
    for many in [4, 8, 12, 16, 24, 100] {
        in_virtual_time(async |clock| {
            let world = geo().start(&clock);
            count(world.internet.serve(COUNT));
            let _held = world.internet.serve(SINK);
            world.warm().await;
            let flows: Vec<_> = (0..many).map(|_| world.connect_from(2, SINK)).collect();
            tokio::time::sleep(Duration::from_secs(5)).await;
            let uploads = (0..20).map(async |number| {
                tokio::time::sleep(Duration::from_millis(50 * number)).await;
                let mut stream = world.connect_from(1, COUNT);
                stream.write_all(&vec![b'x'; BYTES]).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut counted = [0; 8];
                stream.read_exact(&mut counted).await.unwrap();
                assert_eq!(usize::from_be_bytes(counted), BYTES);
            });
            let uploads = futures_util::future::join_all(uploads);
            drop(flows);
            let done = timeout(Duration::from_secs(60), uploads).await;
            assert!(done.is_ok(), "beside {many} flows an upload stands still");
        });
    }
}

/// Readers that have proved fast and then stop hold large windows; when these are missing
/// elsewhere, those that hold most go.
#[test]
#[ignore = "takes long: make test-long"]
fn readers_that_stop_with_large_windows_give_way() {
    in_virtual_time(async |clock| {
        let mut setup = geo();
        setup.transport.memory = Bytes::new(16 << 20);
        let world = setup.start(&clock);
        serve(world.internet.serve(ORIGIN));
        world.warm().await;
        let mut stopped = Vec::new();
        for _ in 0..10 {
            let mut stream = ask(&world, 2, u64::MAX).await;
            read_for(&mut stream, u64::MAX, Duration::from_secs(15)).await;
            stopped.push(stream);
        }
        let rate = goodput(&world, 1, Duration::from_secs(60)).await;
        let mut reset = 0;
        for stream in &stopped {
            reset += u64::from(timeout(Duration::ZERO, stream.reset()).await.is_ok());
        }
        println!(
            "{reset} of 10 stopped readers reset, download {:.2} Mbit/s",
            rate / 1e6
        );
        assert!((1..10).contains(&reset), "{reset} of 10 were reset");
        assert!(rate >= 18e6, "{rate}");
    });
}

/// Datagrams a second of a call at 1 Mbit/s, and their payload, bytes.
const CALL: (u32, usize) = (100, 1200);

#[test]
fn a_call_beside_a_download_is_no_later_than_20_milliseconds_and_loses_nothing() {
    in_virtual_time(async |clock| {
        let world = warm(&clock).await;
        let idle = p95(&call(&world, CALL.0, CALL.1, 500).await);
        bulk(&world, 2);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let beside = call(&world, CALL.0, CALL.1, 3000).await;
        let (median, p95, last) = (beside[beside.len() / 2], p95(&beside), beside.last());
        println!(
            "call: idle p95 {idle:?}; beside a download median {median:?}, p95 {p95:?}, most {last:?}, {} of 3000 came",
            beside.len()
        );
        assert_eq!(beside.len(), 3000, "lost");
        assert!(
            p95 <= idle + Duration::from_millis(20),
            "{p95:?}, idle {idle:?}"
        );
    });
}
