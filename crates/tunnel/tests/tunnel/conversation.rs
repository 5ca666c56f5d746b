//! What an application and an origin see of each other through the tunnel: a
//! conversation for each thing that TCP can say.

use std::io::ErrorKind;
use std::time::Duration;

use crate::support::{
    Internet, Origin, Setup, Stream, World, in_virtual_time, link, now, outage_from, scenario,
};
use bentpipe_tunnel::sockets::Socket as _;
use bentpipe_units::{Bytes, Rate};
use bentpipe_vnet::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

const ORIGIN: &str = "93.184.216.34:80";
/// In virtual time waiting is free; a test that has not moved for this long never will.
const STUCK: Duration = Duration::from_secs(600);

async fn warm_world(clock: &Clock) -> (World, UnboundedReceiver<Stream>) {
    let world = Setup::default().start(clock);
    let origin = world.internet.serve(ORIGIN);
    world.warm().await;
    (world, origin)
}

async fn accept(origin: &mut UnboundedReceiver<Stream>) -> Stream {
    timeout(STUCK, origin.recv())
        .await
        .expect("the origin is dialled")
        .unwrap()
}

async fn read_all(stream: &mut Stream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    timeout(STUCK, stream.read_to_end(&mut all))
        .await
        .expect("reading does not hang")?;
    Ok(all)
}

async fn expect_reset(stream: &mut Stream) {
    let error = read_all(stream).await.expect_err("a reset, not an end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from(i * 31 % 251).unwrap())
        .collect()
}

#[test]
fn the_first_answer_takes_one_round_trip() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let begin = now();
        let mut application = world.connect(ORIGIN);
        application.write_all(b"request").await.unwrap();
        let mut accepted = accept(&mut origin).await;
        let mut request = [0; 7];
        accepted.read_exact(&mut request).await.unwrap();
        let there = begin.elapsed();
        accepted.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        application.read_exact(&mut answer).await.unwrap();
        let back = begin.elapsed();
        // CONNECT and request in one flight, no waiting for the gateway's 200.
        assert!(
            there <= Duration::from_millis(255),
            "{there:?} to the origin, 250 ms of it light"
        );
        assert!(
            back <= Duration::from_millis(510),
            "{back:?} for the answer, 500 ms of it light"
        );
    });
}

#[test]
fn a_connection_that_says_nothing_for_an_hour_works_afterwards() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"before").await.unwrap();
        let mut served = accept(&mut origin).await;
        let mut word = [0; 6];
        served.read_exact(&mut word).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let begin = now();
        application.write_all(b"later?").await.unwrap();
        served.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"later?");
        served.write_all(b"later!").await.unwrap();
        application.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"later!");
        assert!(begin.elapsed() <= Duration::from_millis(510));
    });
}

#[test]
fn the_application_ends_first_and_still_hears_the_answer() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"question").await.unwrap();
        application.shutdown().await.unwrap();
        let mut accepted = accept(&mut origin).await;
        assert_eq!(read_all(&mut accepted).await.unwrap(), b"question");
        tokio::time::sleep(Duration::from_secs(30)).await;
        accepted.write_all(b"a late answer").await.unwrap();
        accepted.shutdown().await.unwrap();
        assert_eq!(read_all(&mut application).await.unwrap(), b"a late answer");
    });
}

#[test]
fn the_origin_ends_first_and_still_hears_the_rest() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"hello").await.unwrap();
        let mut accepted = accept(&mut origin).await;
        accepted.write_all(b"banner").await.unwrap();
        accepted.shutdown().await.unwrap();
        assert_eq!(read_all(&mut application).await.unwrap(), b"banner");
        application.write_all(b", and more").await.unwrap();
        application.shutdown().await.unwrap();
        assert_eq!(read_all(&mut accepted).await.unwrap(), b"hello, and more");
    });
}

#[test]
fn a_reset_by_the_origin_is_a_reset_for_the_application() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"x").await.unwrap();
        let accepted = accept(&mut origin).await;
        drop(accepted);
        expect_reset(&mut application).await;
    });
}

#[test]
fn a_reset_by_the_application_is_a_reset_for_the_origin() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"x").await.unwrap();
        let mut accepted = accept(&mut origin).await;
        let mut byte = [0];
        accepted.read_exact(&mut byte).await.unwrap();
        drop(application);
        expect_reset(&mut accepted).await;
    });
}

#[test]
fn a_reset_after_half_close_reaches_an_origin_that_is_silent() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"question").await.unwrap();
        application.shutdown().await.unwrap();
        let mut accepted = accept(&mut origin).await;
        assert_eq!(read_all(&mut accepted).await.unwrap(), b"question");
        accepted.write_all(&pattern(1000)).await.unwrap();
        drop(application);
        // The origin has heard the end of the question; what it must learn is that nobody
        // waits for the answer. It learns it when it says something.
        let told = timeout(STUCK, async {
            loop {
                if accepted.write_all(b"more").await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        told.await.expect("the origin is told");
    });
}

#[test]
fn a_reset_behind_a_half_close_reaches_an_origin_that_says_nothing() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"question").await.unwrap();
        application.shutdown().await.unwrap();
        let mut accepted = accept(&mut origin).await;
        assert_eq!(read_all(&mut accepted).await.unwrap(), b"question");
        drop(application);
        timeout(STUCK, accepted.reset())
            .await
            .expect("the origin is told although it says nothing");
    });
}

#[test]
fn a_reset_behind_an_upload_that_cannot_go_on_reaches_the_origin() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"x").await.unwrap();
        let accepted = accept(&mut origin).await;
        let block = pattern(100_000);
        while timeout(Duration::from_secs(60), application.write_all(&block))
            .await
            .is_ok()
        {}
        drop(application);
        timeout(STUCK, accepted.reset())
            .await
            .expect("the origin is told although it reads nothing");
    });
}

#[test]
fn refused_and_unreachable_are_resets_never_ends() {
    in_virtual_time(async |clock| {
        let (world, _origin) = warm_world(&clock).await;
        world.internet.put("93.184.216.34:81", Origin::Refuses);
        world.internet.put("93.184.216.34:82", Origin::Silent);
        for target in [
            "93.184.216.34:81",
            "93.184.216.34:82",
            "10.0.0.1:80",
            "127.0.0.1:80",
            "203.0.113.1:4433",
            "inside.example:80",
            "nowhere.example:80",
        ] {
            let mut application = world.connect(target);
            application.write_all(b"anyone?").await.unwrap();
            expect_reset(&mut application).await;
        }
    });
}

/// Who refuses reads no more, and says why: that and the reason are packets of their own, of which the link loses one or the other.
#[test]
fn what_went_wrong_is_told_whatever_of_it_arrives_first() {
    in_virtual_time(async |clock| {
        let setup = Setup {
            scenario: scenario(
                "rate = \"1 Gbit/s\"\ndelay = \"20 ms\"\nqueue = \"100 MB\"\nloss = \"20 %\"",
            ),
            ..Setup::default()
        };
        let world = setup.start(&clock);
        world.internet.put(ORIGIN, Origin::Refuses);
        for _ in 0..300 {
            let mut application = world.connect(ORIGIN);
            application.write_all(&[b'x'; 3000]).await.unwrap();
            expect_reset(&mut application).await;
        }
        let failed = world.terminal.tally().snapshot().failed;
        assert_eq!(failed.get("connection_refused"), Some(&300), "{failed:?}");
    });
}

#[test]
fn names_are_resolved_by_the_gateway() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect("origin.example:80");
        application.write_all(b"hi").await.unwrap();
        application.shutdown().await.unwrap();
        assert_eq!(
            read_all(&mut accept(&mut origin).await).await.unwrap(),
            b"hi"
        );
    });
}

#[test]
fn large_transfers_arrive_whole_in_both_directions_at_once() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"!").await.unwrap();
        let mut accepted = accept(&mut origin).await;
        let (up, down) = (pattern(3_000_000), pattern(5_000_001));
        let talk = async |stream: &mut Stream, say: &[u8]| -> Vec<u8> {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let speak = async {
                writer.write_all(say).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let listen = async {
                let mut heard = Vec::new();
                reader.read_to_end(&mut heard).await.unwrap();
                heard
            };
            tokio::join!(speak, listen).1
        };
        let (heard_down, heard_up) = timeout(STUCK, async {
            tokio::join!(talk(&mut application, &up), talk(&mut accepted, &down))
        })
        .await
        .unwrap();
        assert!(
            heard_down == down,
            "{} of {} bytes down",
            heard_down.len(),
            down.len()
        );
        assert!(
            heard_up[1..] == up,
            "{} of {} bytes up",
            heard_up.len(),
            up.len()
        );
    });
}

#[test]
fn a_reader_that_stalls_does_not_stop_the_others_and_loses_nothing() {
    in_virtual_time(async |clock| {
        let setup = Setup {
            scenario: link("20 ms"),
            ..small_windows()
        };
        let window = usize::try_from(setup.transport.flow_window()).unwrap();
        let world = setup.start(&clock);
        let mut origin = world.internet.serve(ORIGIN);
        world.warm().await;

        let mut stalled = world.connect(ORIGIN);
        stalled.write_all(b"s").await.unwrap();
        let mut source = accept(&mut origin).await;
        let body = pattern(window * 3);
        let sent = body.clone();
        let feeding = tokio::spawn(async move {
            source.write_all(&sent).await.unwrap();
            source.shutdown().await.unwrap();
            source
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(
            !feeding.is_finished(),
            "the origin is held back, not buffered without end"
        );

        for _ in 0..20 {
            let mut other = world.connect(ORIGIN);
            other.write_all(b"o").await.unwrap();
            let mut accepted = accept(&mut origin).await;
            accepted.write_all(&pattern(100_000)).await.unwrap();
            accepted.shutdown().await.unwrap();
            assert_eq!(read_all(&mut other).await.unwrap().len(), 100_000);
        }
        assert!(
            read_all(&mut stalled).await.unwrap() == body,
            "read at last, whole"
        );
    });
}

fn small_windows() -> Setup {
    let mut setup = Setup::default();
    setup.transport.expected_rate = Rate::from_bits_per_second(1_000_000);
    setup.transport.memory = Bytes::new(64 << 20);
    setup
}

#[test]
fn without_a_gateway_a_flow_waits_a_little_and_is_reset() {
    in_virtual_time(async |clock| {
        let setup = Setup::default();
        let (_network, terminal_socket, _gateway_socket) =
            crate::support::sockets(&clock, &setup.scenario);
        let (terminal, keep) = bentpipe_tunnel::terminal::Terminal::new(
            setup.connector(crate::support::endpoint(&clock, terminal_socket, None)),
        );
        tokio::spawn(async move {
            keep.await;
        });
        let (mut application, inside) = crate::support::stream_pair(1000);
        let begin = now();
        let target = ORIGIN.parse().unwrap();
        tokio::spawn(async move { terminal.carry(inside, target).await });
        expect_reset(&mut application).await;
        let waited = begin.elapsed();
        assert!((9..=12).contains(&waited.as_secs()), "{waited:?}");
    });
}

#[test]
fn a_gateway_that_has_vanished_is_not_waited_for() {
    in_virtual_time(async |clock| {
        let setup = Setup {
            scenario: outage_from("20 s"),
            ..Setup::default()
        };
        let world = setup.start(&clock);
        let _origin = world.internet.serve(ORIGIN);
        world.warm().await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        let begin = now();
        let mut application = world.connect(ORIGIN);
        application.write_all(b"anyone?").await.unwrap();
        expect_reset(&mut application).await;
        let waited = begin.elapsed();
        assert!(waited <= Duration::from_secs(16), "{waited:?}");
    });
}

#[test]
fn a_gateway_that_goes_away_breaks_flows_at_both_sides() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"x").await.unwrap();
        let mut accepted = accept(&mut origin).await;
        world.gateway.close(0u32.into(), b"going away");
        expect_reset(&mut application).await;
        let mut byte = [0];
        accepted.read_exact(&mut byte).await.unwrap();
        expect_reset(&mut accepted).await;
    });
}

#[test]
fn noise_on_the_gateways_port_disturbs_nobody() {
    in_virtual_time(async |clock| {
        let (world, mut origin) = warm_world(&clock).await;
        for length in [0, 1, 20, 21, 100, 1200, 1472] {
            for first in [0x00, 0x40, 0x80, 0xc0, 0xc3, 0xff] {
                let mut payload = pattern(length);
                if let Some(byte) = payload.first_mut() {
                    *byte = first;
                }
                world.noise(payload);
            }
        }
        let mut application = world.connect(ORIGIN);
        application.write_all(b"still there?").await.unwrap();
        application.shutdown().await.unwrap();
        assert_eq!(
            read_all(&mut accept(&mut origin).await).await.unwrap(),
            b"still there?"
        );
    });
}

#[test]
fn bytes_that_cannot_be_passed_on_are_not_taken() {
    in_virtual_time(async |clock| {
        let setup = Setup {
            scenario: link("20 ms"),
            ..small_windows()
        };
        let window = setup.transport.flow_window();
        let internet: Internet = setup.internet.clone();
        let world = setup.start(&clock);
        let mut origin = internet.serve(ORIGIN);
        world.warm().await;
        let mut application = world.connect(ORIGIN);
        application.write_all(b"x").await.unwrap();
        let _silent = accept(&mut origin).await;
        let mut taken = 0u64;
        let block = pattern(10_000);
        while timeout(Duration::from_secs(60), application.write_all(&block))
            .await
            .is_ok()
        {
            taken += block.len() as u64;
            assert!(
                taken < 8 * window,
                "an origin that does not read holds its sender back"
            );
        }
    });
}

#[test]
fn a_gateway_whose_first_address_is_silent_is_reached_by_its_second() {
    in_virtual_time(|clock| async move {
        let began = now();
        let world = Setup {
            gateway: "gateway.example:4433",
            ..Setup::default()
        }
        .start(&clock);
        world.warm().await;
        // Long before the attempt at the first is given up, which takes twelve seconds.
        assert!(
            began.elapsed() < Duration::from_secs(6),
            "{:?}",
            began.elapsed()
        );
    });
}
