//! Applications that bring a transport of their own: real QUIC through the tunnel, in virtual time.

use std::time::Duration;

use crate::support::call::{call, call_from, p95};
use crate::support::own_quic::download;
use crate::support::{Setup, in_virtual_time};
use bentpipe_link::Scenario;
use bentpipe_vnet::plan::Towards;
use tokio::time::timeout;

const GEO: &str = "name = \"geo\"\n\
    [forward]\nrate = \"20 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n\
    [return]\nrate = \"5 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n";
const BYTES: usize = 20_000_000;
const RTT: f64 = 0.5;
const RATE: f64 = 20e6;
/// Packets of 1200 bytes with the headers of two UDP flows and of two QUICs.
const HEADERS: f64 = 1.08;

fn geo() -> Setup {
    let mut setup = Setup {
        scenario: Scenario::parse(GEO).unwrap(),
        ..Setup::default()
    };
    setup.transport.expected_rate = bentpipe_units::Rate::from_bits_per_second(20_000_000);
    setup
}

/// A voice call's datagrams: a second, their payload in bytes, and in 15 s.
const CALL: (u32, usize, u32) = (50, 160, 750);

/// What no call may be later by, as beside any download.
const LATER: Duration = Duration::from_millis(20);
/// A bound of what stands for the download, as a factor of its own, so that it gets no worse.
const SLOWER: f64 = 1.15;

#[test]
#[ignore = "takes long: make test-long"]
fn a_download_by_an_applications_own_quic_is_nearly_as_fast_as_the_link_lets_it_be() {
    // Handshake and request; ten packets that double each round trip until they fill the link; and then the link.
    let full = RATE * RTT / 8.0;
    let slow_start = RTT * (full / 12_000.0).log2();
    let bound = 2.0 * RTT + slow_start + HEADERS * (BYTES as f64 - full) * 8.0 / RATE;
    for seed in 0..5 {
        let took = in_virtual_time(async |clock| {
            let world = geo().start(&clock);
            world.warm().await;
            download(&world, &clock, seed, BYTES).await;
            timeout(
                Duration::from_secs(120),
                download(&world, &clock, seed, BYTES),
            )
            .await
        });
        let took = took.expect("it ends").as_secs_f64();
        println!("{took:.2} s, bound {bound:.2} s, seed {seed}");
        assert!(
            took < SLOWER * bound,
            "{took:.2} s, bound {bound:.2} s, seed {seed}"
        );
    }
}

#[test]
#[ignore = "takes long: make test-long"]
fn a_call_beside_it_on_the_same_host_is_hardly_later_and_loses_nothing() {
    let later: Vec<_> = (0..5)
        .map(|seed| {
            in_virtual_time(async |clock| {
                let world = geo().start(&clock);
                world.warm().await;
                download(&world, &clock, seed, BYTES).await;
                let (a_second, size, count) = CALL;
                let idle = p95(&call(&world, a_second, size, count).await);
                let (beside, took) = tokio::join!(
                    call(&world, a_second, size, count),
                    download(&world, &clock, seed, BYTES)
                );
                assert!(
                    took > Duration::from_secs(12),
                    "beside all of the call: {took:?}"
                );
                assert_eq!(beside.len(), count as usize, "seed {seed}");
                p95(&beside) - idle
            })
        })
        .collect();
    println!("p95 beside it is later by {later:?}");
    assert!(later.iter().max() <= Some(&LATER), "{later:?}");
}

#[test]
fn losses_by_a_full_queue_do_not_leave_small_packets() {
    in_virtual_time(async |clock| {
        let world = geo().start(&clock);
        world.warm().await;
        // A cold session's first transfer overflows the queue.
        download(&world, &clock, 0, BYTES).await;
        let packets = || {
            let counters = world.network.counters().into_iter();
            let forward = counters.filter(|(_, towards, _)| *towards == Towards::Terminal);
            forward.fold((0, 0), |(delivered, lost), (_, _, link)| {
                (delivered + link.delivered, lost + link.dropped.total())
            })
        };
        let (before, lost) = packets();
        assert!(lost > 100, "{lost}");
        let (a_second, size, count) = (20, 1300, 200);
        assert_eq!(
            call(&world, a_second, size, count).await.len(),
            count as usize
        );
        let (after, _) = packets();
        assert!(
            after - before < u64::from(count) * 5 / 4,
            "{}",
            after - before
        );
    });
}

/// Others' packets beside it, as long as the tunnel took them before.
#[test]
fn losses_by_a_full_queue_cost_no_packets_that_seem_too_long_for_a_while() {
    let lost = |server: &str| {
        in_virtual_time(async |clock| {
            let world = geo().start(&clock);
            world.warm().await;
            // Until the tunnel knows its path.
            tokio::time::sleep(Duration::from_secs(5)).await;
            let (a_second, size, count) = (50, 1400, 1500);
            let (came, _) = tokio::join!(
                call_from(&world, server, a_second, size, count),
                download(&world, &clock, 0, BYTES)
            );
            count as usize - came.len()
        })
    };
    let [quic, others] = ["93.184.216.36:443", "93.184.216.36:5004"].map(lost);
    // The link itself has lost some, in one run not exactly as many as in the other.
    assert!(2 * quic <= 3 * others, "{quic}, {others}");
}
