//! What the gateway's operator lets a terminal do: destinations, rate, flows, volume, and
//! what origins are told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Setup, World, in_virtual_time, link, now};
use bentpipe_tunnel::gateway::policy::{Policies, Policy};
use bentpipe_tunnel::identity::Fingerprint;
use bentpipe_units::{Bytes, Rate};
use bentpipe_vnet::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const ORIGIN: &str = "93.184.216.34:80";
const PEER: &str = "93.184.216.35:5004";

/// One policy for all, which may be changed.
#[derive(Default)]
struct One {
    policy: Mutex<Arc<Policy>>,
    carried: AtomicU64,
}

impl Policies for One {
    fn of(&self, _key: &Fingerprint) -> Arc<Policy> {
        self.policy.lock().unwrap().clone()
    }

    fn carried(&self, _key: &Fingerprint, bytes: u64) -> u64 {
        self.carried.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

async fn start(clock: &Clock, policy: Policy) -> (World, Arc<One>) {
    let one = Arc::new(One {
        policy: Mutex::new(Arc::new(policy)),
        ..One::default()
    });
    let world = Setup {
        scenario: link("10 ms"),
        policies: one.clone(),
        ..Setup::default()
    }
    .start(clock);
    world.warm().await;
    (world, one)
}

/// Whether a connection to `target` is carried.
async fn carried(world: &World, target: &str) -> bool {
    let mut application = world.connect(target);
    application.write_all(b"?").await.unwrap();
    application.read_u8().await.is_ok()
}

/// An origin that answers each connection's first byte.
fn answer(world: &World, address: &str) {
    let mut origin = world.internet.serve(address);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Some(mut connection) = origin.recv().await {
            connection.write_all(b"!").await.unwrap();
            open.push(connection);
        }
    });
}

/// They could be among them.
#[test]
fn while_the_gateways_own_addresses_are_not_known_all_destinations_are_denied() {
    in_virtual_time(async |clock| {
        let (world, _) = start(&clock, Policy::default()).await;
        answer(&world, ORIGIN);
        let mut peers = world.internet.serve_udp(PEER);
        world.internet.tell_own_addresses(false);
        assert!(!carried(&world, ORIGIN).await);
        let (application, flow) = world.connect_udp(1, PEER);
        application.send(b"?");
        flow.await.unwrap();
        assert!(peers.try_recv().is_err());
        world.internet.tell_own_addresses(true);
        assert!(carried(&world, ORIGIN).await);
    });
}

#[test]
fn destinations_are_denied_after_resolution_and_from_the_reload_on() {
    in_virtual_time(async |clock| {
        let deny = vec!["93.184.216.0/24:80".parse().unwrap()];
        let (world, one) = start(
            &clock,
            Policy {
                deny,
                ..Policy::default()
            },
        )
        .await;
        answer(&world, ORIGIN);
        assert!(!carried(&world, ORIGIN).await);
        assert!(!carried(&world, "origin.example:80").await);
        *one.policy.lock().unwrap() = Arc::default();
        assert!(carried(&world, "origin.example:80").await);
    });
}

#[test]
fn a_terminal_may_have_so_many_flows_open() {
    in_virtual_time(async |clock| {
        let (world, _) = start(
            &clock,
            Policy {
                flows: Some(2),
                ..Policy::default()
            },
        )
        .await;
        answer(&world, ORIGIN);
        let mut open = Vec::new();
        for _ in 0..2 {
            let mut application = world.connect(ORIGIN);
            application.read_u8().await.unwrap();
            open.push(application);
        }
        assert!(!carried(&world, ORIGIN).await);
        open.pop();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(carried(&world, ORIGIN).await);
    });
}

/// Two flows at once have the rate together.
#[test]
fn the_rate_is_the_terminals_over_all_its_flows() {
    in_virtual_time(async |clock| {
        let rate = Some(Rate::from_bits_per_second(8_000_000));
        let (world, _) = start(
            &clock,
            Policy {
                rate,
                ..Policy::default()
            },
        )
        .await;
        let mut origin = world.internet.serve(ORIGIN);
        let begin = now();
        let flows = [(); 2].map(|()| {
            let mut application = world.connect(ORIGIN);
            tokio::spawn(async move {
                application
                    .read_exact(&mut vec![0; 2_000_000])
                    .await
                    .unwrap();
            })
        });
        for _ in 0..2 {
            let mut served = origin.recv().await.unwrap();
            tokio::spawn(async move {
                served.write_all(&vec![b'x'; 2_000_000]).await.unwrap();
                let _ = served.read_u8().await;
            });
        }
        for flow in flows {
            flow.await.unwrap();
        }
        // Four seconds, less a burst.
        let took = begin.elapsed().as_secs_f64();
        assert!((3.7..4.5).contains(&took), "{took} s");
    });
}

#[test]
fn when_the_volume_of_the_month_is_used_up_flows_are_reset_and_refused() {
    in_virtual_time(async |clock| {
        let monthly_volume = Some(Bytes::new(1_000_000));
        let (world, one) = start(
            &clock,
            Policy {
                monthly_volume,
                ..Policy::default()
            },
        )
        .await;
        let mut origin = world.internet.serve(ORIGIN);
        let mut application = world.connect(ORIGIN);
        let mut served = origin.recv().await.unwrap();
        tokio::spawn(async move {
            let _ = served.write_all(&vec![b'x'; 5_000_000]).await;
        });
        let mut received = Vec::new();
        application.read_to_end(&mut received).await.unwrap_err();
        assert!(
            (1..1_600_000).contains(&received.len()),
            "{}",
            received.len()
        );
        assert!(one.carried.load(Ordering::Relaxed) >= 1_000_000);
        assert!(!carried(&world, ORIGIN).await);
    });
}

#[test]
fn an_origin_that_is_listed_is_told_the_terminals_address_first() {
    in_virtual_time(async |clock| {
        let proxy_protocol = vec!["*:80".parse().unwrap()];
        let (world, _) = start(
            &clock,
            Policy {
                proxy_protocol,
                ..Policy::default()
            },
        )
        .await;
        for (address, told) in [(ORIGIN, true), ("93.184.216.34:81", false)] {
            let mut origin = world.internet.serve(address);
            let mut application = world.connect(address);
            application.write_all(b"?").await.unwrap();
            let mut served = origin.recv().await.unwrap();
            if told {
                let mut header = [0; 28];
                served.read_exact(&mut header).await.unwrap();
                assert_eq!(&header[..16], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c");
                // 192.0.2.2, 50000.
                assert_eq!(header[16..20], [192, 0, 2, 2]);
                assert_eq!(header[24..26], 50_000u16.to_be_bytes());
            }
            assert_eq!(served.read_u8().await.unwrap(), b'?');
        }
    });
}
