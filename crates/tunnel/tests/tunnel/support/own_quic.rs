//! An application's own QUIC, and its server's, through the tunnel.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_cc::{Choice, PathMemory};
use bentpipe_quic::{Factory, Selection, Settings};
use bentpipe_tunnel::sockets::DatagramSocket as _;
use bentpipe_vnet::clock::Clock;
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, Endpoint, EndpointConfig, TransportConfig, UdpSender, VarInt};
use tokio::io::ReadBuf;

use super::{DatagramEnd, World, now, tls};

/// The server.
pub const SERVER: &str = "93.184.216.34:443";
const NAME: &str = "server.example";

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
pub async fn download(world: &World, clock: &Clock, seed: u8, bytes: usize) -> Duration {
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
