//! A client of CONNECT-UDP that is enrolled, and sends what makes no sense: the flow that it concerns ends or goes on as the
//! standards say, what the gateway holds is bounded, and other flows, its own and others', go on.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{DatagramEnd, Setup, World, endpoint, identity, in_virtual_time};
use bentpipe_quic::varint;
use bentpipe_tunnel::session::BidiStream;
use bentpipe_tunnel::terminal::Session;
use bentpipe_vnet::clock::Clock;
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

const PEER: &str = "93.184.216.34:5004";
const OTHERS: &str = "93.184.216.35:5004";
const ROUND_TRIP: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(20);
/// Types of capsules.
const DATAGRAM: u64 = 0;
const UNKNOWN: u64 = 0x1234;
const PATH_MTU: u64 = 0x62_706d_7475;
/// The longest number that a varint has.
const ENDLESS: u64 = (1 << 62) - 1;

type Request = h3::client::RequestStream<BidiStream, Bytes>;

/// The client, and a terminal's flow to the same gateway.
struct Foreign {
    world: World,
    session: Session,
    peers: UnboundedReceiver<DatagramEnd>,
    others: (DatagramEnd, DatagramEnd),
}

/// A flow of the client's.
struct Flow {
    request: Request,
    quarter: u64,
    peer: DatagramEnd,
}

fn numbers(numbers: &[u64], content: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    for number in numbers {
        varint::put(*number, &mut bytes);
    }
    bytes.extend_from_slice(content);
    bytes.freeze()
}

impl Foreign {
    async fn new(clock: &Clock) -> Self {
        let setup = Setup::default();
        let key = identity(100);
        (setup.list.terminals.lock().unwrap()).push(key.fingerprint());
        let world = setup.start(clock);
        world.warm().await;
        let others = world.open_udp(OTHERS).await;
        let socket = (world.network).terminal(([192, 0, 2, 100], 5000).into(), &[0]);
        let mut connector = world.connector(endpoint(clock, socket, None));
        connector.identity = watch::channel(Arc::new(key)).1;
        let session = connector.open().await.unwrap();
        session.accepted().await.unwrap();
        Self {
            peers: world.internet.serve_udp(PEER),
            world,
            session,
            others,
        }
    }

    async fn request(&self) -> (Request, u64) {
        let request = self.session.connect_udp(&PEER.parse().unwrap(), 0).await;
        let request = request.unwrap();
        let quarter = request.id().into_inner() / 4;
        (request, quarter)
    }

    /// A flow that the gateway has opened.
    async fn open(&mut self) -> Flow {
        let (mut request, quarter) = self.request().await;
        let answer = timeout(PATIENCE, request.recv_response()).await.unwrap();
        assert_eq!(answer.unwrap().status(), 200);
        let peer = timeout(PATIENCE, self.peers.recv()).await.unwrap();
        Flow {
            request,
            quarter,
            peer: peer.unwrap(),
        }
    }

    fn datagram(&self, quarter: u64, content: &[u8]) {
        let frame = numbers(&[quarter], content);
        self.session.connection().send_datagram(frame).unwrap();
    }

    /// The client's flow is carried, and so is the terminal's.
    async fn goes_on(&self, flow: &Flow, what: &str) {
        self.datagram(flow.quarter, b"\0still there?");
        let came = timeout(ROUND_TRIP, flow.peer.receive()).await;
        assert_eq!(came.expect(what).unwrap(), b"still there?", "{what}");
        self.others_go_on(what).await;
    }

    async fn others_go_on(&self, what: &str) {
        let (application, peer) = &self.others;
        application.send(what.as_bytes());
        let came = timeout(ROUND_TRIP, peer.receive()).await.expect(what);
        assert_eq!(came.unwrap(), what.as_bytes());
        peer.send(b"yes");
        let back = timeout(ROUND_TRIP, application.receive()).await;
        assert_eq!(back.expect(what).unwrap(), b"yes", "{what}");
    }

    fn dropped(&self, cause: &str) -> u64 {
        let dropped = self.world.at_gateway.snapshot().dropped;
        dropped.get(cause).copied().unwrap_or(0)
    }
}

/// Nothing more comes on the request's stream, but that it was reset.
async fn ends(flow: &mut Flow, what: &str) {
    let data = timeout(PATIENCE, flow.request.recv_data())
        .await
        .expect(what);
    assert!(data.is_err(), "{what}");
}

#[test]
fn what_makes_no_sense_ends_its_own_flow_and_no_other() {
    in_virtual_time(async |clock| {
        let mut foreign = Foreign::new(&clock).await;
        let good = foreign.open().await;
        let long = vec![0; 65_529];
        // Datagrams.
        for (what, content) in [("no context", &[][..]), ("half a context", &[0x40])] {
            let mut flow = foreign.open().await;
            foreign.datagram(flow.quarter, content);
            ends(&mut flow, what).await;
            foreign.goes_on(&good, what).await;
        }
        // Capsules, and whether the stream ends behind them.
        for (what, capsule, is_last) in [
            (
                "a capsule without end",
                numbers(&[DATAGRAM, ENDLESS], b"\0"),
                false,
            ),
            (
                "more than any datagram",
                numbers(&[DATAGRAM, 65_536], b"\0"),
                false,
            ),
            (
                "a payload that is too long",
                numbers(&[DATAGRAM, 65_529], &long),
                false,
            ),
            (
                "a capsule without a context",
                numbers(&[DATAGRAM, 0], b""),
                false,
            ),
            (
                "a capsule that breaks off",
                numbers(&[DATAGRAM, 100], b"\0part"),
                true,
            ),
            (
                "one to be skipped that does",
                numbers(&[UNKNOWN, ENDLESS], b"part"),
                true,
            ),
            ("half a length", numbers(&[DATAGRAM], &[0x80]), true),
            ("no path MTU", numbers(&[PATH_MTU, 0], b""), false),
            ("half a path MTU", numbers(&[PATH_MTU, 1], &[0x40]), false),
            (
                "a path MTU and more",
                numbers(&[PATH_MTU, 3], &[0x45, 0, 0]),
                false,
            ),
        ] {
            let mut flow = foreign.open().await;
            flow.request.send_data(capsule).await.unwrap();
            if is_last {
                flow.request.finish().await.unwrap();
            }
            ends(&mut flow, what).await;
            foreign.goes_on(&good, what).await;
        }
        // The good one, and the terminal's.
        sleep(ROUND_TRIP).await;
        assert_eq!(foreign.world.at_gateway.snapshot().open_udp, 2);
    });
}

#[test]
fn what_nobody_understands_is_skipped_and_the_flow_goes_on() {
    in_virtual_time(async |clock| {
        let mut foreign = Foreign::new(&clock).await;
        let mut flow = foreign.open().await;
        for context in [7, 16, 63, 1 << 20, ENDLESS] {
            foreign.datagram(flow.quarter, &numbers(&[context], b"of nobody"));
        }
        foreign.goes_on(&flow, "unknown contexts").await;
        assert_eq!(foreign.dropped("unknown_context"), 5);
        for (what, capsule) in [
            ("an unknown context", numbers(&[DATAGRAM, 4, 16], b"abc")),
            ("an unknown type", numbers(&[UNKNOWN, 3], b"abc")),
            ("an empty one", numbers(&[UNKNOWN, 0], b"")),
            ("a narrow path", numbers(&[PATH_MTU, 1], &[1])),
        ] {
            flow.request.send_data(capsule).await.unwrap();
            foreign.goes_on(&flow, what).await;
        }
        // Byte by byte.
        for byte in numbers(&[UNKNOWN, 2], b"ab")
            .into_iter()
            .chain(numbers(&[DATAGRAM, 6], b"\0whole"))
        {
            flow.request
                .send_data(Bytes::copy_from_slice(&[byte]))
                .await
                .unwrap();
        }
        assert_eq!(
            timeout(ROUND_TRIP, flow.peer.receive())
                .await
                .unwrap()
                .unwrap(),
            b"whole"
        );
        // It is skipped as it comes, for as long as it comes.
        flow.request
            .send_data(numbers(&[UNKNOWN, ENDLESS], b""))
            .await
            .unwrap();
        for _ in 0..64 {
            let sent = flow.request.send_data(vec![0; 1 << 18].into());
            timeout(PATIENCE, sent)
                .await
                .expect("it is read on")
                .unwrap();
        }
        foreign.goes_on(&flow, "16 MiB of nothing").await;
    });
}

#[test]
fn datagrams_that_come_before_their_request_or_its_answer_find_it() {
    in_virtual_time(async |clock| {
        let mut foreign = Foreign::new(&clock).await;
        let good = foreign.open().await;
        let (_request, quarter) = foreign.request().await;
        for number in 0..50 {
            foreign.datagram(quarter, &[0, number]);
        }
        // Of a request that is still to come, and of others that never do.
        for number in 0..50 {
            foreign.datagram(quarter + 1, &[0, 100 + number]);
            foreign.datagram(quarter + 1000, &[0, 200]);
        }
        sleep(Duration::from_secs(1)).await;
        let (_next, next) = foreign.request().await;
        assert_eq!(next, quarter + 1);
        for first in [0, 100] {
            let peer = timeout(PATIENCE, foreign.peers.recv())
                .await
                .unwrap()
                .unwrap();
            for number in 0..50 {
                let came = timeout(PATIENCE, peer.receive()).await.unwrap().unwrap();
                assert_eq!(came, [first + number]);
            }
            assert!(timeout(PATIENCE, peer.receive()).await.is_err());
        }
        foreign.goes_on(&good, "early ones").await;
    });
}

#[test]
fn what_is_held_of_datagrams_without_a_flow_and_of_capsules_without_an_end_is_bounded() {
    const FLOWS: usize = 100;
    const LONG: u64 = 65_000;
    in_virtual_time(async |clock| {
        let mut foreign = Foreign::new(&clock).await;
        let good = foreign.open().await;
        let mut over = foreign.open().await;
        over.request.finish().await.unwrap();
        while let Ok(Some(mut data)) = over.request.recv_data().await {
            data.advance(data.remaining());
        }
        for number in 0..10_000 {
            for quarter in [over.quarter, over.quarter + 100 + number] {
                let frame = numbers(&[quarter], &[0; 1000]);
                let sent = foreign.session.connection().send_datagram_wait(frame);
                sent.await.unwrap();
            }
        }
        sleep(PATIENCE).await;
        foreign
            .goes_on(&good, "datagrams for flows that are over or never were")
            .await;
        // All but what 64 KiB hold.
        let dropped = foreign.dropped("no_request");
        assert!(dropped > 19_900, "{dropped}");

        let mut flows = Vec::new();
        for _ in 0..FLOWS {
            let mut flow = foreign.open().await;
            let capsule = numbers(&[DATAGRAM, LONG], &vec![0; 60_000]);
            flow.request.send_data(capsule).await.unwrap();
            flows.push(flow);
        }
        foreign
            .goes_on(&good, "capsules that are not complete")
            .await;
        let mut complete = 0;
        for flow in &mut flows {
            flow.request.send_data(vec![0; 5_000].into()).await.unwrap();
            if let Ok(Some(came)) = timeout(ROUND_TRIP, flow.peer.receive()).await {
                assert_eq!(came.len(), 64_999);
                complete += 1;
            }
            foreign.goes_on(flow, "behind its capsule").await;
        }
        // As many as 4 MiB hold; the others were lost, as datagrams are, and counted.
        assert!(complete > 60 && complete < 72, "{complete}");
        let lost = foreign.dropped("receive_queue_full");
        assert_eq!(lost, (FLOWS - complete) as u64);
        drop(flows);
        sleep(PATIENCE).await;
        assert_eq!(foreign.world.at_gateway.snapshot().open_udp, 2);
    });
}
