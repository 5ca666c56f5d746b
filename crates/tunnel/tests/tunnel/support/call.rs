//! A call beside other traffic.

use std::time::Duration;

use tokio::time::timeout;

use super::{World, now};

const PEER: &str = "93.184.216.35:5004";

/// How long each datagram took that came to the application of host 1, sorted: `count` are sent, so many `a_second`, of `size`
/// bytes.
pub async fn call(world: &World, a_second: u32, size: usize, count: u32) -> Vec<Duration> {
    call_from(world, PEER, a_second, size, count).await
}

/// The same from `server`.
pub async fn call_from(
    world: &World,
    server: &str,
    a_second: u32,
    size: usize,
    count: u32,
) -> Vec<Duration> {
    let mut sockets = world.internet.serve_udp(server);
    let (application, carried) = world.connect_udp(1, server);
    application.send(b"ring");
    let peer = sockets.recv().await.unwrap();
    let begin = now();
    let talking = tokio::spawn(async move {
        for number in 0..count {
            tokio::time::sleep_until(begin + Duration::from_secs(1) * number / a_second).await;
            let age = u64::try_from(begin.elapsed().as_nanos()).unwrap();
            let mut datagram = vec![0; size];
            datagram[..8].copy_from_slice(&age.to_be_bytes());
            peer.send(&datagram);
        }
        // Its socket stays until the last has arrived.
        tokio::time::sleep(Duration::from_secs(5)).await;
    });
    let mut took = Vec::new();
    while let Ok(datagram) = timeout(Duration::from_secs(3), application.receive()).await {
        let sent = u64::from_be_bytes(datagram.unwrap()[..8].try_into().unwrap());
        took.push(begin.elapsed() - Duration::from_nanos(sent));
    }
    carried.abort();
    talking.abort();
    took.sort();
    took
}

/// That of `sorted` which 95 % do not exceed.
pub fn p95(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() * 95).div_ceil(100) - 1]
}
