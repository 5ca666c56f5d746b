//! What a proxy holds when nobody reads.

mod support;

use std::time::Duration;

use bentpipe_quicpep::transport::Side;
use bentpipe_units::Bytes;
use noq::Connection;
use support::{Row, Setup, geo, ground, in_virtual_time, lan, soon};

/// Bytes of UDP payload that a connection has sent, and received.
fn counted(connection: &Connection) -> (u64, u64) {
    let stats = connection.stats();
    (stats.udp_tx.bytes, stats.udp_rx.bytes)
}

/// As many clients as there is room for ask for more than anybody has room for, on several
/// streams each, and read nothing.
#[test]
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
            let connecting =
                (row.client()).connect_with(config, support::address(0), support::NAME);
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
