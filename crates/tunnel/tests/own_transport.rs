//! Applications that bring a transport of their own: real QUIC through the tunnel, in virtual time.

mod support;

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_cc::{Choice, PathMemory};
use bentpipe_link::Scenario;
use bentpipe_quic::{Factory, Selection, Settings};
use bentpipe_tunnel::sockets::DatagramSocket as _;
use bentpipe_vnet::clock::Clock;
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, Endpoint, EndpointConfig, TransportConfig, UdpSender, VarInt};
use support::call::{call, p95};
use support::{DatagramEnd, Setup, World, in_virtual_time, now, tls};
use tokio::io::ReadBuf;
use tokio::time::timeout;

const SERVER: &str = "93.184.216.34:443";
const NAME: &str = "server.example";
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

/// One end of a flow of datagrams as the QUIC library's socket.
#[derive(Debug, Clone)]
struct Socket(Arc<DatagramEnd>);

impl AsyncUdpSocket for Socket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(self.clone())
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(&mut buffers[0]);
        std::task::ready!(self.0.poll_receive(context, &mut buffer))?;
        let length = buffer.filled().len();
        meta[0] = RecvMeta::default();
        meta[0].addr = SERVER.parse().unwrap();
        (meta[0].len, meta[0].stride) = (length, length);
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SERVER.parse().unwrap())
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl UdpSender for Socket {
    fn poll_send(
        self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        _context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len());
        for datagram in transmit.contents.chunks(segment.max(1)) {
            self.0.send(datagram);
        }
        Poll::Ready(Ok(()))
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        NonZeroUsize::MIN
    }
}

/// A server's and a client's ends of QUIC with NewReno and large windows, in packets of 1200 bytes.
fn configurations() -> (noq::ServerConfig, noq::ClientConfig) {
    let (server, client) = tls::configurations(NAME);
    let mut transport = TransportConfig::default();
    let settings = Settings::new(Selection::Own(Choice::NewReno));
    transport
        .congestion_controller_factory(Arc::new(Factory::new(settings, PathMemory::default())))
        .mtu_discovery_config(None)
        .stream_receive_window(VarInt::from_u32(8 << 20))
        .send_window(8 << 20);
    let transport = Arc::new(transport);
    let mut server =
        noq::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server).unwrap()));
    server.transport_config(transport.clone());
    let mut client = noq::ClientConfig::new(Arc::new(QuicClientConfig::try_from(client).unwrap()));
    client.transport_config(transport);
    (server, client)
}

/// An endpoint that draws by `seed`.
fn endpoint(
    clock: &Clock,
    end: DatagramEnd,
    seed: u8,
    server: Option<noq::ServerConfig>,
) -> Endpoint {
    let (socket, runtime) = (Box::new(Socket(Arc::new(end))), Arc::new(clock.clone()));
    let mut config = EndpointConfig::default();
    config.rng_seed(Some([seed; 32]));
    Endpoint::new_with_abstract_socket(config, server, socket, runtime).unwrap()
}

/// How long a download of `bytes` by an application's own QUIC takes.
async fn download(world: &World, clock: &Clock, seed: u8, bytes: usize) -> Duration {
    let mut sockets = world.internet.serve_udp(SERVER);
    let (application, carried) = world.connect_udp(1, SERVER);
    let (server, client) = configurations();
    let on = clock.clone();
    let serving = tokio::spawn(async move {
        let endpoint = endpoint(&on, sockets.recv().await.unwrap(), 2 * seed, Some(server));
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        receive.read_to_end(100).await.unwrap();
        send.write_all(&vec![7; bytes]).await.unwrap();
        send.finish().unwrap();
        connection.closed().await;
    });
    let began = now();
    let endpoint = endpoint(clock, application, 2 * seed + 1, None);
    let connecting = endpoint.connect_with(client, SERVER.parse().unwrap(), NAME);
    let connection = connecting.unwrap().await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(b"GET").await.unwrap();
    send.finish().unwrap();
    let answer = receive.read_to_end(bytes).await.unwrap();
    let took = began.elapsed();
    assert_eq!(answer.len(), bytes);
    connection.close(0_u32.into(), b"");
    tokio::time::sleep(Duration::from_secs(2)).await;
    serving.abort();
    carried.abort();
    took
}

/// A voice call's datagrams: a second, their payload in bytes, and in 15 s.
const CALL: (u32, usize, u32) = (50, 160, 750);

/// What no call may be later by: a bound of what stands, so that it gets no worse. The goal is 20 ms, as beside any
/// download; docs/limitations.md has what is missing.
const LATER: Duration = Duration::from_millis(25);
/// The same for the download, as a factor of its bound.
const SLOWER: f64 = 1.25;

#[test]
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
