//! Early data (0-RTT) of a session that is opened again: what it saves, what goes out in it, and that a recording of it
//! does nothing a second time. In virtual time.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{
    DatagramEnd, GATEWAY, Internet, NAME_SERVER, Setup, Stream, datagram_pair, endpoint,
    in_virtual_time, now, sockets, stream_pair, tls,
};
use bentpipe_quic::layer::{self, Layer, Sending};
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_tunnel::terminal::dns::{Over, Resolver, Settings};
use bentpipe_units::Bytes;
use bentpipe_vnet::clock::Clock;
use bentpipe_vnet::network::Network;
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use noq::udp::Transmit;
use noq::{AsyncUdpSocket as _, Endpoint, EndpointConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// On GEO, of which one way is 250 ms.
const ONE_WAY: Duration = Duration::from_millis(250);
const SOON: Duration = Duration::from_millis(10);
const ORIGIN: &str = "93.184.216.34:443";
const QUIC_SERVER: &str = "93.184.216.36:443";
const NAME: &str = "www.example.com.";

/// What a socket has sent, and when.
type Sent = Arc<Mutex<Vec<(Instant, Vec<u8>)>>>;

/// Over a socket: captures what is sent by it.
#[derive(Debug, Clone)]
struct Capture(Sent);

impl Layer for Capture {
    fn sending(&self) -> Option<Box<dyn Sending>> {
        Some(Box::new(self.clone()))
    }
}

impl Sending for Capture {
    fn on_sent(&mut self, transmit: &Transmit<'_>) {
        for datagram in layer::datagrams(transmit.contents, transmit.segment_size) {
            let sent = (now(), datagram.to_vec());
            self.0.lock().unwrap().push(sent);
        }
    }
}

/// A terminal that is captured, a gateway that can be started anew, and who is reached through them.
struct World {
    clock: Clock,
    setup: Setup,
    network: Network,
    address: SocketAddr,
    gateway: Endpoint,
    terminal: Terminal,
    internet: Internet,
    sent: Sent,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl World {
    /// With a session that has been open for some seconds, so that the gateway's ticket is there.
    async fn start(clock: &Clock) -> Self {
        let setup = Setup::default();
        setup.internet.1.put(NAME, 300, &["93.184.216.34"]);
        let (network, inner, gateway_socket) = sockets(clock, &setup.scenario);
        let sent = Sent::default();
        let address = inner.local_addr().unwrap();
        let socket = Capture(sent.clone()).over(Box::new(inner));
        let gateway = endpoint(clock, gateway_socket, Some(setup.server()));
        let mut config = EndpointConfig::default();
        config.rng_seed(Some([9; 32]));
        let runtime = Arc::new(clock.clone());
        let own = Endpoint::new_with_abstract_socket(config, None, socket, runtime);
        let (terminal, keep) = Terminal::new(setup.connector(own.unwrap()));
        let keeping = tokio::spawn(async move { match keep.await {} });
        let world = Self {
            clock: clock.clone(),
            internet: setup.internet.clone(),
            tasks: vec![setup.gateway(gateway.clone()), keeping],
            setup,
            network,
            address,
            gateway,
            terminal,
            sent,
        };
        world.session().await;
        world
    }

    /// Waits for a session, and some seconds more.
    async fn session(&self) {
        let mut session = self.terminal.session();
        let open = |session: &Option<bentpipe_tunnel::terminal::Session>| {
            session.as_ref().is_some_and(|session| !session.is_closed())
        };
        let session = session.wait_for(open).await.unwrap().clone().unwrap();
        session.accepted().await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }

    /// Ends the session; what is sent from now on is captured.
    fn reopen(&self) {
        let session = self.terminal.session().borrow().clone().unwrap();
        session.close();
        self.sent.lock().unwrap().clear();
    }

    /// When the first packet of a handshake was sent (RFC 9000, section 17.2.2), and all that was
    /// sent from then on within a round trip: before anything was heard.
    fn first_flight(&self) -> (Instant, Vec<Vec<u8>>) {
        let sent = self.sent.lock().unwrap();
        let is_initial = |datagram: &[u8]| datagram[0] & 0xf0 == 0xc0;
        let (began, _) = sent
            .iter()
            .find(|(_, datagram)| is_initial(datagram))
            .unwrap();
        let within = sent
            .iter()
            .filter(|(at, _)| at >= began && *at < *began + 2 * ONE_WAY);
        (
            *began,
            within.map(|(_, datagram)| datagram.clone()).collect(),
        )
    }

    fn connect(&self) -> Stream {
        let (application, terminals_side) = stream_pair(64 * 1024);
        let terminal = self.terminal.clone();
        let client = IpAddr::from([192, 168, 7, 1]);
        let target = ORIGIN.parse().unwrap();
        tokio::spawn(async move { terminal.carry_for(client, terminals_side, target).await });
        application
    }

    fn connect_udp(&self, target: &str) -> DatagramEnd {
        let (application, terminals_side) = datagram_pair();
        let (terminal, target) = (self.terminal.clone(), target.parse().unwrap());
        let client = IpAddr::from([192, 168, 7, 1]);
        tokio::spawn(async move {
            terminal
                .carry_udp_for(client, &terminals_side, target)
                .await
        });
        application
    }

    /// When the answer to a question of DNS has come, which is asked now.
    fn ask(&self) -> JoinHandle<Instant> {
        let settings = Settings {
            cache: Bytes::new(1 << 20),
            allow_private: Vec::new(),
        };
        let (resolver, _renew) = Resolver::new(self.terminal.clone(), &settings);
        let mut question = Message::new(99, MessageType::Query, OpCode::Query);
        question.add_query(Query::query(Name::from_ascii(NAME).unwrap(), RecordType::A));
        tokio::spawn(async move {
            let question = question.to_vec().unwrap();
            let reply = resolver
                .reply([192, 168, 7, 1].into(), &question, Over::Udp)
                .await;
            let reply = Message::from_vec(&reply.unwrap()).unwrap();
            assert_eq!(reply.answers.len(), 1, "{reply}");
            now()
        })
    }
}

/// What an origin hears of a connection, once something comes.
async fn heard(origins: &mut UnboundedReceiver<Stream>) -> (Stream, Instant, Vec<u8>) {
    let mut origin = origins.recv().await.unwrap();
    let mut said = vec![0; 4096];
    let connected = now();
    let length = origin.read(&mut said).await.unwrap();
    said.truncate(length);
    (origin, connected, said)
}

#[test]
fn questions_and_connections_go_out_with_a_sessions_first_packets_and_bytes_after_its_handshake() {
    in_virtual_time(async |clock| {
        let world = World::start(&clock).await;
        let mut origins = world.internet.serve(ORIGIN);
        world.reopen();
        let answered = world.ask();
        let mut application = world.connect();
        application.write_all(b"hello").await.unwrap();
        let (_origin, connected, said) = heard(&mut origins).await;
        let answered = answered.await.unwrap();
        let (began, _) = world.first_flight();
        assert!(
            connected - began < ONE_WAY + SOON,
            "{:?}",
            connected - began
        );
        assert!(
            answered - began < 2 * ONE_WAY + NAME_SERVER + SOON,
            "{:?}",
            answered - began
        );
        assert!(now() - began > 3 * ONE_WAY, "the bytes have waited");
        assert_eq!(said, b"hello");
    });
}

#[test]
fn a_clients_tls_hello_goes_out_too_and_is_answered_a_round_trip_sooner() {
    in_virtual_time(async |clock| {
        let world = World::start(&clock).await;
        let mut origins = world.internet.serve(ORIGIN);
        let [hello, _] = tls::first_flights();
        world.reopen();
        let mut application = world.connect();
        // In two pieces, and with something behind it.
        let (start, rest) = hello.split_at(100);
        application.write_all(start).await.unwrap();
        application.write_all(rest).await.unwrap();
        let (mut origin, _, said) = heard(&mut origins).await;
        let (began, _) = world.first_flight();
        let took = now() - began;
        assert!(took < ONE_WAY + SOON, "{took:?}");
        assert_eq!(said, hello);
        application.write_all(b"finished").await.unwrap();
        application.shutdown().await.unwrap();
        origin.write_all(b"server hello").await.unwrap();
        let mut answer = [0; 12];
        application.read_exact(&mut answer).await.unwrap();
        let took = now() - began;
        assert!(took < 2 * ONE_WAY + SOON, "{took:?}");
        let mut more = Vec::new();
        origin.read_to_end(&mut more).await.unwrap();
        assert_eq!(more, b"finished");
        let took = now() - began;
        assert!(took > 3 * ONE_WAY, "only behind the handshake: {took:?}");
        drop(origin);
        let tally = world.terminal.tally().clone();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(tally.snapshot().up_bytes, hello.len() as u64 + 8);
    });
}

#[test]
fn a_clients_tls_hello_with_early_data_of_its_own_waits_for_the_handshake() {
    in_virtual_time(async |clock| {
        let world = World::start(&clock).await;
        let mut origins = world.internet.serve(ORIGIN);
        let [_, hello] = tls::first_flights();
        world.reopen();
        let mut application = world.connect();
        application.write_all(&hello).await.unwrap();
        let (_origin, connected, said) = heard(&mut origins).await;
        let (began, _) = world.first_flight();
        assert!(connected - began < ONE_WAY + SOON);
        let took = now() - began;
        assert!(took > 3 * ONE_WAY, "{took:?}");
        assert_eq!(said, hello);
    });
}

#[test]
fn first_datagrams_go_out_too_where_the_port_is_listed() {
    for (server, early) in [(QUIC_SERVER, true), ("93.184.216.36:5004", false)] {
        in_virtual_time(async |clock| {
            let world = World::start(&clock).await;
            let mut sockets = world.internet.serve_udp(server);
            world.reopen();
            let application = world.connect_udp(server);
            // One of them is too long for a frame of a new session.
            let datagrams = [vec![1; 1250], vec![2; 100]];
            for datagram in &datagrams {
                application.send(datagram);
            }
            let peer = sockets.recv().await.unwrap();
            let mut heard = [peer.receive().await.unwrap(), peer.receive().await.unwrap()];
            heard.sort();
            assert_eq!(heard, datagrams);
            let (began, _) = world.first_flight();
            let took = now() - began;
            match early {
                true => assert!(took < ONE_WAY + SOON, "{took:?}"),
                false => assert!(took > 3 * ONE_WAY, "{took:?}"),
            }
            peer.send(b"answer");
            assert_eq!(application.receive().await.unwrap(), b"answer");
            let took = now() - began;
            assert_eq!(took < 2 * ONE_WAY + SOON, early, "{took:?}");
        });
    }
}

#[test]
fn a_recorded_first_flight_that_is_sent_again_opens_nothing_and_asks_nothing() {
    in_virtual_time(async |clock| {
        let world = World::start(&clock).await;
        let mut origins = world.internet.serve(ORIGIN);
        let mut sockets = world.internet.serve_udp(QUIC_SERVER);
        world.reopen();
        let answered = world.ask();
        let mut application = world.connect();
        let [hello, _] = tls::first_flights();
        application.write_all(&hello).await.unwrap();
        let caller = world.connect_udp(QUIC_SERVER);
        caller.send(b"initial");
        let _connection = heard(&mut origins).await;
        let peer = sockets.recv().await.unwrap();
        assert_eq!(peer.receive().await.unwrap(), b"initial");
        answered.await.unwrap();
        world.session().await;
        let questions = world.internet.1.asked().len();
        let (_, flight) = world.first_flight();
        assert!(flight.len() >= 2, "{} datagrams", flight.len());
        let to: SocketAddr = GATEWAY.parse().unwrap();
        // While its session lives, and when the gateway knows nothing of it any more.
        for _ in 0..2 {
            for from in ["198.51.100.66:6666".parse().unwrap(), world.address] {
                for datagram in &flight {
                    (world.network).inject(world.address, from, to, datagram.clone());
                }
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
            world.reopen();
            world.session().await;
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        assert!(origins.try_recv().is_err(), "no second connection");
        assert!(sockets.try_recv().is_err(), "no second socket");
        let again = timeout(SOON, peer.receive()).await;
        assert!(!matches!(again, Ok(Some(_))), "no second datagram");
        assert_eq!(
            world.internet.1.asked().len(),
            questions,
            "no second question"
        );
        // And the session goes on.
        let mut other = world.connect();
        other.write_all(b"after it").await.unwrap();
        let (_origin, _, said) = heard(&mut origins).await;
        assert_eq!(said, b"after it");
    });
}

#[test]
fn a_ticket_of_a_terminal_that_is_enrolled_no_longer_opens_nothing() {
    in_virtual_time(async |clock| {
        let world = World::start(&clock).await;
        let mut origins = world.internet.serve(ORIGIN);
        world.setup.list.terminals.lock().unwrap().clear();
        world.reopen();
        let _application = world.connect();
        let answered = world.ask();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(world.first_flight().1.len() >= 2, "it has tried");
        assert!(origins.try_recv().is_err(), "no connection");
        assert!(world.internet.1.asked().is_empty(), "no question");
        answered.abort();
    });
}

#[test]
fn a_gateway_that_has_forgotten_the_tickets_is_asked_again_and_nothing_is_lost() {
    in_virtual_time(async |clock| {
        let mut world = World::start(&clock).await;
        let mut origins = world.internet.serve(ORIGIN);
        let mut sockets = world.internet.serve_udp(QUIC_SERVER);
        // Another process, in the same place.
        world.gateway.close(0_u32.into(), b"");
        world.network.remove(GATEWAY.parse().unwrap());
        let socket = world.network.gateway(GATEWAY.parse().unwrap());
        let gateway = endpoint(&world.clock, socket, Some(world.setup.server()));
        let serving = world.setup.gateway(gateway);
        world.tasks.push(serving);
        world.reopen();
        let answered = world.ask();
        let mut application = world.connect();
        let [hello, _] = tls::first_flights();
        application.write_all(&hello).await.unwrap();
        let caller = world.connect_udp(QUIC_SERVER);
        caller.send(b"initial");
        let (_origin, _, said) = heard(&mut origins).await;
        let answered = answered.await.unwrap();
        assert_eq!(said, hello);
        let peer = sockets.recv().await.unwrap();
        // As its sender does in the end.
        caller.send(b"initial again");
        assert_eq!(peer.receive().await.unwrap(), b"initial again");
        assert!(origins.try_recv().is_err(), "one connection");
        assert_eq!(world.internet.1.asked().len(), 1, "one question");
        let (began, _) = world.first_flight();
        let took = answered - began;
        assert!(took < 8 * ONE_WAY, "{took:?}");
    });
}
