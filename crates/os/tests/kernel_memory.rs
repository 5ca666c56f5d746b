//! What the kernel holds for connections that nobody reads, as the kernel counts it.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_os::machine::Machine;
use bentpipe_tunnel::sockets::Dial as _;
use bentpipe_units::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

const CONNECTIONS: usize = 375;
const MEMORY: Bytes = Bytes::new(64 << 20);

/// Bytes in the receive queues of the connections to `origin` (proc(5), /proc/net/tcp).
fn unread(origin: SocketAddr) -> u64 {
    let remote = format!(":{:04X}", origin.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().skip(1);
    let of_origin = lines.filter_map(|line| {
        let mut fields = line.split_whitespace().skip(2);
        let (to, _state, queues) = (fields.next()?, fields.next()?, fields.next()?);
        to.ends_with(&remote).then_some(queues)
    });
    of_origin
        .map(|queues| u64::from_str_radix(queues.split_once(':').unwrap().1, 16).unwrap())
        .sum()
}

#[test]
fn unread_downloads_hold_no_more_than_the_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let block = [b'x'; 64 * 1024];
                    while stream.write_all(&block).await.is_ok() {}
                });
            }
        });
        let machine = Machine::new(MEMORY);
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(machine.dial(origin).await.unwrap());
        }
        // Until nothing more comes.
        let (mut held, mut same) = (0, 0);
        while same < 10 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = unread(origin);
            same = if now == held { same + 1 } else { 0 };
            held = now;
        }
        println!(
            "{CONNECTIONS} unread downloads: {} held, {MEMORY} allowed",
            Bytes::new(held)
        );
        assert!(held > 0, "the kernel's table is read");
        assert!(held <= MEMORY.as_u64(), "{} of {MEMORY}", Bytes::new(held));
    });
}
