//! What a proxy holds when nobody reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Row, Setup, geo, ground, in_virtual_time, lan, soon};
use bentpipe_quicpep::transport::Side;
use bentpipe_units::Bytes;
use noq::Connection;

/// Bytes of UDP payload that a connection has sent, and received.
fn counted(connection: &Connection) -> (u64, u64) {
    let stats = connection.stats();
    (stats.udp_tx.bytes, stats.udp_rx.bytes)
}

/// As many clients as there is room for ask for more than anybody has room for, on several
/// streams each, and read nothing.
#[test]
#[ignore = "takes long: make test-long"]
fn clients_that_do_not_read_make_it_hold_no_more_than_its_memory() {
    const MEMORY: u64 = 8 << 20;
    in_virtual_time(async |clock| {
        let mut row = Row::new(&clock, &[lan(), geo()]);
        let server = row.server(&["test"], &ground());
        let proxy = row.proxy(
            0,
            Setup {
                memory: MEMORY,
                ..Setup::default()
            },
        );
        // The clients have small windows: what is on its way to them is the proxy's.
        let small = Side {
            stream_window: Some(Bytes::new(1)),
            ..ground()
        };
        let mut pairs = Vec::new();
        let mut streams = Vec::new();
        for _ in 0..16 {
            let config = row.client_config(&["test"], &small);
            let connecting = (row.client()).connect_with(
                config,
                crate::support::address(0),
                crate::support::NAME,
            );
            let accepting = async { soon(server.accept()).await.unwrap().await.unwrap() };
            let (client, accepted) = tokio::join!(connecting.unwrap(), accepting);
            for _ in 0..4 {
                let mut send = accepted.open_uni().await.unwrap();
                streams.push(tokio::spawn(async move {
                    let _ = send.write_all(&vec![1; 16 << 20]).await;
                }));
            }
            pairs.push((client.unwrap(), accepted));
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        let held = |pairs: &[(Connection, Connection)]| -> u64 {
            let from_servers: u64 = pairs.iter().map(|(_, server)| counted(server).0).sum();
            let at_clients: u64 = pairs.iter().map(|(client, _)| counted(client).1).sum();
            from_servers.saturating_sub(at_clients)
        };
        let first = held(&pairs);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let later = held(&pairs);
        println!("16 clients: {first} bytes held, later {later}, of {MEMORY}");
        // An eighth is for what it takes to hold them.
        assert!(later <= MEMORY / 8 * 7, "{later} bytes");
        assert!(later >= MEMORY / 8, "{later} bytes: nothing is held");
        assert_eq!(proxy.open(), 16);
        for (client, _) in &pairs {
            client.close(noq::VarInt::from_u32(0), b"done");
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(proxy.open(), 0);
    });
}

/// Servers send more datagrams than the way to their clients takes.
#[test]
fn datagrams_that_cannot_go_on_take_no_more_than_their_part() {
    const MEMORY: u64 = 8 << 20;
    in_virtual_time(async |clock| {
        let narrow = "delay = \"5 ms\"\nrate = \"800 kbit/s\"\nqueue = \"20 kB\"";
        let narrow = format!("name = \"narrow\"\n[forward]\n{narrow}\n[return]\n{narrow}\n");
        let narrow = bentpipe_link::Scenario::parse(&narrow).unwrap();
        let mut row = Row::new(&clock, &[narrow, geo()]);
        let server = row.server(&["test"], &ground());
        let _proxy = row.proxy(
            0,
            Setup {
                memory: MEMORY,
                ..Setup::default()
            },
        );
        let arrived = Arc::new(AtomicU64::new(0));
        let mut servers = Vec::new();
        for _ in 0..16 {
            let config = row.client_config(&["test"], &ground());
            let connecting = (row.client()).connect_with(
                config,
                crate::support::address(0),
                crate::support::NAME,
            );
            let accepting = async { soon(server.accept()).await.unwrap().await.unwrap() };
            let (client, accepted) = tokio::join!(connecting.unwrap(), accepting);
            let (client, arrived) = (client.unwrap(), arrived.clone());
            tokio::spawn(async move {
                while let Ok(datagram) = client.read_datagram().await {
                    arrived.fetch_add(datagram.len() as u64, Ordering::Relaxed);
                }
            });
            servers.push(accepted);
        }
        // 100 kB/s each, 2 MB in all; the way takes 6 kB/s of that.
        for _ in 0..2_000 {
            for server in &servers {
                server.send_datagram(vec![1; 1_000].into()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let first = arrived.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(40)).await;
        let held = arrived.load(Ordering::Relaxed) - first;
        println!("16 clients: {held} bytes of datagrams held, of {MEMORY}");
        assert!(held <= MEMORY / 16 + 20_000, "{held} bytes");
        assert!(held >= 100_000, "{held} bytes: nothing is held");
    });
}
