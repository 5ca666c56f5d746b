//! Handshakes, and what follows, over links that lose, repeat, delay and go dark, between hosts that stall, with and without
//! batches: what the QUIC library does when a batch begins with a short datagram.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_quic::acks::Acks;
use bentpipe_quic::batches::Batches;
use bentpipe_quic::transport::over_satellite;
use bentpipe_quic::{Selection, Settings};
use bentpipe_units::Span;
use bytes::BytesMut;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    FourTuple, ServerConfig, StreamId, TransportConfig,
};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// What the kernel takes at once, and the library fills.
const BATCH: NonZeroUsize = NonZeroUsize::new(10).unwrap();
/// Time is looked at so often.
const STEP: Duration = Duration::from_micros(500);
const LENGTH: Duration = Duration::from_secs(20);
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A datagram by its arrival; the count keeps those of one moment in order.
type UnderWay = Reverse<(Instant, u64, Vec<u8>)>;

struct Tls {
    client: Arc<QuicClientConfig>,
    server: Arc<QuicServerConfig>,
}

impl Tls {
    fn new() -> Self {
        // Ed25519: signatures of one length, so that packets have theirs.
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let versions = &[&rustls::version::TLS13];
        let server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            client: Arc::new(client.try_into().unwrap()),
            server: Arc::new(server.try_into().unwrap()),
        }
    }
}

/// A first round trip of so many milliseconds; acknowledgements asked for within `delay` of them, or a round trip: where that is
/// less, the library asks anew when it changes.
fn transport(rtt: u64, delay: u64) -> Arc<TransportConfig> {
    let mut settings = Settings::new(Selection::Own(bentpipe_cc::Choice::Cubic));
    settings.initial_rtt = Span::from_millis(rtt);
    let acks = Acks {
        packets: 10,
        within: Span::from_millis(delay),
    };
    let mut transport = over_satellite(&settings, acks, bentpipe_cc::PathMemory::default());
    transport.initial_mtu(1452).mtu_discovery_config(None);
    Arc::new(transport)
}

struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    batches: Batches,
    stream: Option<StreamId>,
    /// It does nothing until then.
    stalled: Instant,
}

impl End {
    fn new(endpoint: Endpoint, now: Instant) -> Self {
        Self {
            endpoint,
            connection: None,
            batches: Batches::default(),
            stream: None,
            stalled: now,
        }
    }

    /// Takes what has arrived, all at once.
    fn take(&mut self, now: Instant, from: SocketAddr, datagrams: Vec<Vec<u8>>) {
        let mut events = Vec::new();
        for datagram in datagrams {
            let (path, data) = (FourTuple::new(from, None), BytesMut::from(&datagram[..]));
            let mut answer = Vec::new();
            match self.endpoint.handle(now, path, None, data, &mut answer) {
                Some(DatagramEvent::NewConnection(incoming)) if self.connection.is_none() => {
                    let accepted = self.endpoint.accept(incoming, now, &mut answer, None);
                    self.connection = accepted.ok();
                }
                Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
                Some(DatagramEvent::ConnectionEvent(_, event)) => events.push(event),
                _ => {}
            }
        }
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        for event in events {
            connection.handle_event(event);
        }
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
    }

    /// The next datagrams that it sends.
    fn send(&mut self, now: Instant, careful: bool) -> Option<Vec<Vec<u8>>> {
        let (handle, connection) = self.connection.as_mut()?;
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while connection.poll().is_some() {}
        let most = match careful {
            true => self.batches.limit(now.into(), BATCH),
            false => BATCH,
        };
        let mut buffer = Vec::new();
        let transmit = connection.poll_transmit(now, most, &mut buffer)?;
        let segment = transmit.segment_size.unwrap_or(transmit.size);
        self.batches.on_sent(now.into(), &buffer, segment);
        assert!(
            !careful || segment == transmit.size || segment >= 1200,
            "a batch of {segment} bytes"
        );
        let datagrams = buffer[..transmit.size].chunks(segment);
        Some(datagrams.map(<[u8]>::to_vec).collect())
    }
}

/// A handshake and some data; how many batches there were. `careful`: batches only when they may be.
fn converse(tls: &Tls, seed: u64, careful: bool) -> usize {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let rtt = random.random_range(2..22);
    let delay = if seed.is_multiple_of(2) { 25 } else { 400 };
    let mut server = ServerConfig::with_crypto(tls.server.clone());
    server.transport_config(transport(rtt, delay));
    let mut client = ClientConfig::new(tls.client.clone());
    client.transport_config(transport(if random.random() { rtt } else { 333 }, delay));
    let mut config = EndpointConfig::default();
    config.rng_seed(Some([u8::try_from(seed % 251).unwrap(); 32]));
    let config = Arc::new(config);
    let addresses: [SocketAddr; 2] = ["10.0.0.1:1", "10.0.0.2:2"].map(|text| text.parse().unwrap());
    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    let begin = Instant::now();
    let endpoints = [
        Endpoint::new(config.clone(), None, true),
        Endpoint::new(config, Some(Arc::new(server)), true),
    ];
    let mut ends = endpoints.map(|endpoint| End::new(endpoint, begin));
    let connecting = (ends[CLIENT].endpoint).connect(begin, client, addresses[SERVER], "localhost");
    ends[CLIENT].connection = Some(connecting.unwrap());
    let loss = if random.random_bool(0.7) { 0.3 } else { 0.0 };
    // Then nothing arrives.
    let dark = begin + STEP * random.random_range(2000..30_000);
    let dark = dark..dark + STEP * random.random_range(200..2000);
    let mut under_way: [BinaryHeap<UnderWay>; 2] = Default::default();
    let (mut count, mut batches) = (0, 0);
    let mut now = begin;
    while now < begin + LENGTH {
        for here in [CLIENT, SERVER] {
            if ends[here].stalled > now {
                continue;
            }
            let mut arrived = Vec::new();
            while let Some(Reverse((at, ..))) = under_way[here].peek()
                && *at <= now
                && let Some(Reverse((.., datagram))) = under_way[here].pop()
            {
                arrived.push(datagram);
            }
            ends[here].take(now, addresses[1 - here], arrived);
            if here == CLIENT && random.random_bool(0.4) {
                write_some(&mut ends[here], &mut random);
            }
            while let Some(datagrams) = ends[here].send(now, careful) {
                batches += usize::from(datagrams.len() > 1);
                for datagram in datagrams {
                    let copies = match dark.contains(&now) || random.random_bool(loss) {
                        true => 0,
                        false => 1 + u64::from(random.random_bool(0.3)),
                    };
                    for _ in 0..copies {
                        count += 1;
                        let at = now + STEP * random.random_range(1..60);
                        under_way[1 - here].push(Reverse((at, count, datagram.clone())));
                    }
                }
            }
            if random.random_bool(0.5) {
                ends[here].stalled = now + STEP * random.random_range(0..120);
            }
        }
        now += STEP;
    }
    batches
}

/// Mostly a few bytes, now and then what takes several packets.
fn write_some(end: &mut End, random: &mut ChaCha8Rng) {
    if let Some((_, connection)) = &mut end.connection
        && !connection.is_handshaking()
    {
        let stream = end.stream.or_else(|| connection.streams().open(Dir::Uni));
        end.stream = stream;
        let length = if random.random_bool(0.1) { 5000 } else { 16 };
        if let Some(stream) = stream {
            let _ = connection.send_stream(stream).write(&vec![0; length]);
        }
    }
}

/// The seeds that panic, and how many batches the others had.
fn panics(careful: bool, seeds: std::ops::Range<u64>) -> (Vec<u64>, usize) {
    let tls = Tls::new();
    let (mut panics, mut batches) = (Vec::new(), 0);
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| converse(&tls, seed, careful))) {
            Ok(had) => batches += had,
            Err(_) => panics.push(seed),
        }
    }
    (panics, batches)
}

#[test]
fn conversations_on_rough_links_end_no_endpoint_and_no_batch_is_of_short_datagrams() {
    let (panics, batches) = panics(true, 0..400);
    assert_eq!(panics, [0; 0]);
    assert!(batches > 1000, "{batches}");
}

/// When this fails the library has mended it, and `batches` can go.
#[test]
fn the_library_does_not_measure_what_it_writes_into_a_short_datagram_of_a_batch() {
    assert_ne!(panics(false, 0..400).0, [0; 0]);
}
