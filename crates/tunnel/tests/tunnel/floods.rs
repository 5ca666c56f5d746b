//! Floods of handshakes by strangers, beside those who are known.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{GATEWAY, GATEWAY_SEED, Setup, TERMINAL, identity, in_virtual_time, now};
use bentpipe_tunnel::identity::tls;
use bentpipe_vnet::clock::Clock;
use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, EndpointConfig, UdpSender};
use tokio::time::timeout;

const PEER: &str = "93.184.216.34:5004";
/// On GEO, of which one way is 250 ms.
const ROUND_TRIP: Duration = Duration::from_millis(500);
const STUCK: Duration = Duration::from_secs(60);
/// First packets of handshakes, 150 a second.
const FLOOD: usize = 1500;
const EVERY: Duration = Duration::from_micros(6667);
/// A handshake is kept for 15 s; from 64 on sources prove their address first.
const WITHOUT_RETRY: usize = 64;

/// A socket that keeps what is sent by it, and hears nothing.
#[derive(Debug, Clone, Default)]
struct Deaf(Arc<Mutex<Vec<Vec<u8>>>>);

impl AsyncUdpSocket for Deaf {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(self.clone())
    }

    fn poll_recv(
        &mut self,
        _context: &mut Context<'_>,
        _buffers: &mut [IoSliceMut<'_>],
        _meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(([198, 51, 100, 1], 6666).into())
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl UdpSender for Deaf {
    fn poll_send(
        self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        _context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.lock().unwrap().push(transmit.contents.to_vec());
        Poll::Ready(Ok(()))
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        NonZeroUsize::MIN
    }
}

/// The first packets of `count` handshakes with the gateway, by a key that it does not know.
async fn first_packets(clock: &Clock, count: usize) -> Vec<Vec<u8>> {
    let socket = Deaf::default();
    let mut config = EndpointConfig::default();
    config.rng_seed(Some([9; 32]));
    let runtime = Arc::new(clock.clone());
    let endpoint =
        noq::Endpoint::new_with_abstract_socket(config, None, Box::new(socket.clone()), runtime)
            .unwrap();
    let gateway = GATEWAY.parse().unwrap();
    for _ in 0..count {
        let keys = vec![identity(GATEWAY_SEED).fingerprint()];
        let config = noq::ClientConfig::new(Arc::new(tls::client(&identity(99), keys)));
        let connecting = endpoint.connect_with(config, gateway, "bentpipe.invalid");
        let seen = socket.0.lock().unwrap().len();
        let connecting = connecting.unwrap();
        while socket.0.lock().unwrap().len() == seen {
            tokio::task::yield_now().await;
        }
        drop(connecting);
    }
    let sent = socket.0.lock().unwrap();
    let first = |packet: &&Vec<u8>| packet.len() >= 1200;
    sent.iter().filter(first).take(count).cloned().collect()
}

#[test]
fn strangers_who_begin_handshakes_delay_no_flow_and_keep_no_terminal_out() {
    in_virtual_time(async |clock| {
        let flood = first_packets(&clock, FLOOD).await;
        assert_eq!(flood.len(), FLOOD);
        let setup = Setup::default();
        let second = identity(100);
        (setup.list.terminals.lock().unwrap()).push(second.fingerprint());
        let world = setup.start(&clock);
        world.warm().await;
        let (application, peer) = world.open_udp(PEER).await;

        let flooding = async {
            for (number, packet) in (0u32..).zip(flood) {
                let [_, b, c, d] = number.to_be_bytes();
                let from = ([11, b, c, d], 6666).into();
                let [terminal, gateway] = [TERMINAL, GATEWAY].map(|text| text.parse().unwrap());
                world.network.inject(terminal, from, gateway, packet);
                tokio::time::sleep(EVERY).await;
            }
        };
        let live = async {
            let mut most = Duration::ZERO;
            for _ in 0..18 {
                let begin = now();
                application.send(&[7; 1000]);
                peer.send(&timeout(STUCK, peer.receive()).await.unwrap().unwrap());
                timeout(STUCK, application.receive()).await.unwrap();
                most = most.max(begin.elapsed());
            }
            most
        };
        let arriving = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let open = world.gateway.open_connections();
            let socket = world
                .network
                .terminal(([192, 0, 2, 100], 5000).into(), &[0]);
            let mut another = world.connector(crate::support::endpoint(&clock, socket, None));
            another.identity = tokio::sync::watch::channel(Arc::new(second)).1;
            let begin = now();
            let session = another.open().await.unwrap();
            session.accepted().await.unwrap();
            (open, begin.elapsed())
        };
        let ((), most, (open, took)) = tokio::join!(flooding, live, arriving);
        assert!(most < ROUND_TRIP + Duration::from_millis(20), "{most:?}");
        assert!(open > WITHOUT_RETRY / 2, "the flood is one: {open}");
        assert!(open <= 1 + WITHOUT_RETRY, "{open} handshakes are held");
        // A round trip more than without a flood: its address is proved first.
        assert!(
            took < 3 * ROUND_TRIP + Duration::from_millis(100),
            "{took:?}"
        );
        tokio::time::sleep(Duration::from_secs(40)).await;
        // The one that arrived has gone again.
        assert_eq!(world.gateway.open_connections(), 1, "nothing is left of it");
    });
}
