//! Two proxies with a satellite between them: what their clients no longer wait for.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Names, Row, Setup, ground, in_virtual_time, lan, link, satellite, soon};
use bentpipe_cc::Choice;
use bentpipe_quicpep::close::Code;
use bentpipe_quicpep::proxy::{Mode, Proxy};
use bentpipe_quicpep::routes::{Kind, Route};
use bentpipe_quicpep::transport::Side;
use bentpipe_units::{Rate, Span};
use futures_util::FutureExt as _;
use noq::{Connection, ConnectionError, VarInt};
use tokio::time::Instant;

/// 40 ms one way behind the gateway, as Kosek et al. have it.
const FAR: &str = "40 ms";
/// A server beside the gateway: nothing of what is measured is its own slow start.
const BESIDE: &str = "0.5 ms";

#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's clock, which is virtual here"
)]
fn now() -> Instant {
    Instant::now()
}

/// A side as the proxy at the gateway has it towards servers.
fn towards_servers() -> Side {
    Side::ground(
        Rate::from_bits_per_second(1_000_000_000),
        Span::from_millis(100),
    )
}

/// Starts the proxy beyond the satellite; those before it are set up as `clients`.
fn beyond_the_satellite(row: &mut Row, clients: Side) -> Arc<Proxy<Names>> {
    let next = towards_servers();
    row.proxy(
        1,
        Setup {
            clients,
            next,
            ..Setup::default()
        },
    )
}

/// Client, proxy, satellite, proxy, ground, server.
struct Path {
    row: Row,
    server: noq::Endpoint,
    first: Arc<Proxy<Names>>,
    second: Arc<Proxy<Names>>,
}

impl Path {
    /// Over a satellite link of 20 Mbit/s that loses `loss`, to a server that is `ground`
    /// behind it; connections are ready.
    async fn new(
        clock: &bentpipe_vnet::clock::Clock,
        loss: &str,
        ground: &str,
        mode: Mode,
        controller: Choice,
    ) -> Self {
        Self::to(clock, loss, ground, mode, controller, &towards_servers()).await
    }

    /// The same to a server that is set up as `server`.
    async fn to(
        clock: &bentpipe_vnet::clock::Clock,
        loss: &str,
        ground: &str,
        mode: Mode,
        controller: Choice,
        server: &Side,
    ) -> Self {
        let fixed = controller == Choice::Fixed;
        let contracted_rate = fixed.then_some(Rate::from_bits_per_second(20_000_000));
        let satellite_link = link("20 Mbit/s", "250 ms", loss);
        let behind = link("1 Gbit/s", ground, "0 %");
        let mut row = Row::new(clock, &[lan(), satellite_link, behind]);
        let server = row.server(&["test"], server);
        let clients = Side {
            controller: controller.into(),
            contracted_rate,
            ..satellite()
        };
        let second = beyond_the_satellite(&mut row, clients);
        let route = Route {
            kind: Kind::Pep,
            name: Some(crate::support::NAME.into()),
            ..Route::server(crate::support::address(1).to_string())
        };
        let first = row.proxy(
            0,
            Setup {
                mode,
                route: Some(route),
                ..Setup::default()
            },
        );
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(first.ready(), 4);
        Self {
            row,
            server,
            first,
            second,
        }
    }

    /// A client begins to connect.
    fn connect(&mut self, protocols: &[&str]) -> noq::Connecting {
        let client = self.row.client();
        let config = self.row.client_config(protocols, &ground());
        client
            .connect_with(config, crate::support::address(0), crate::support::NAME)
            .unwrap()
    }

    /// A client that has connected, and the server's end of it.
    async fn open(&mut self) -> (Connection, Connection) {
        let connecting = self.connect(&["test"]);
        let accepting = async { soon(self.server.accept()).await.unwrap().await.unwrap() };
        let (client, server) = tokio::join!(connecting, accepting);
        (client.unwrap(), server)
    }

    /// Serves downloads: what is asked for is a number of bytes.
    fn serve(&self) {
        let server = self.server.clone();
        tokio::spawn(async move {
            while let Some(incoming) = server.accept().await {
                tokio::spawn(async move {
                    let connection = incoming.await.unwrap();
                    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                        tokio::spawn(async move {
                            let asked = receive.read_to_end(8).await.unwrap();
                            let bytes = u64::from_be_bytes(asked.try_into().unwrap());
                            let body = vec![1; usize::try_from(bytes).unwrap()];
                            send.write_all(&body).await.unwrap();
                            send.finish().unwrap();
                            let _ = send.stopped().await;
                        });
                    }
                });
            }
        });
    }
}

/// Downloads `bytes`; how long the first byte and the last took from `begin` on.
async fn download(connection: &Connection, begin: Instant, bytes: u64) -> [Duration; 2] {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(&bytes.to_be_bytes()).await.unwrap();
    send.finish().unwrap();
    receive.read_exact(&mut [0; 1]).await.unwrap();
    let first = begin.elapsed();
    let mut left = bytes - 1;
    while let Some(chunk) = soon(receive.read_chunk(1 << 20)).await.unwrap() {
        left -= chunk.len() as u64;
    }
    assert_eq!(left, 0);
    [first, begin.elapsed()]
}

#[test]
fn a_response_begins_after_one_satellite_round_trip() {
    in_virtual_time(async |clock| {
        let mut path = Path::new(&clock, "0 %", FAR, Mode::Default, Choice::Satellite).await;
        path.serve();
        let begin = now();
        let connection = path.connect(&["test"]).await.unwrap();
        let [first, _] = download(&connection, begin, 1000).await;
        // The client's handshake, the satellite, and on the ground a handshake and the request.
        let bound = Duration::from_millis(1 + 1 + 500 + 2 * 80).as_secs_f64();
        let ratio = first.as_secs_f64() / bound;
        println!("first byte: {ratio:.3} x bound, limit 1.05");
        assert!(ratio <= 1.05, "{ratio:.4} x the bound of {bound} s");
    });
}

#[test]
fn the_next_hop_first_costs_a_satellite_round_trip_more() {
    in_virtual_time(async |clock| {
        let mut path = Path::new(&clock, "0 %", FAR, Mode::H3Capable, Choice::Satellite).await;
        path.serve();
        let begin = now();
        let connection = path.connect(&["other", "test"]).await.unwrap();
        let [first, _] = download(&connection, begin, 1000).await;
        let bound = Duration::from_millis(1 + 1 + 2 * 500 + 2 * 80).as_secs_f64();
        let ratio = first.as_secs_f64() / bound;
        println!("first byte: {ratio:.3} x bound, limit 1.05");
        assert!(ratio <= 1.05, "{ratio:.4} x the bound of {bound} s");
    });
}

/// 10 MiB through both proxies on a path that carried some before, times the bound.
async fn warm_ratio(
    clock: &bentpipe_vnet::clock::Clock,
    ground: &str,
    loss: f64,
    controller: Choice,
) -> f64 {
    let share = format!("{} %", 100.0 * loss);
    let mut path = Path::new(clock, &share, ground, Mode::Default, controller).await;
    path.serve();
    for _ in 0..2 {
        let connection = path.connect(&["test"]).await.unwrap();
        let [_, last] = download(&connection, now(), 10 << 20).await;
        println!("warming up: {last:?}");
        connection.close(VarInt::from_u32(0), b"done");
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let begin = now();
    let connection = path.connect(&["test"]).await.unwrap();
    let [_, last] = download(&connection, begin, 10 << 20).await;
    // LB_warm: the round trip of the path and the payload at the link's rate, with the headers
    // of IP, UDP, QUIC and its stream frames; and the handshakes on the ground.
    let ground = ground.trim_end_matches(" ms").parse::<f64>().unwrap() / 1000.0;
    let wire = f64::from(10 << 20) * 8.0 * bentpipe_link::bound::WIRE_PER_PAYLOAD;
    let bound = 0.5 + 4.0 * ground + 0.002 + wire / (20e6 * (1.0 - loss));
    last.as_secs_f64() / bound
}

#[test]
fn a_warm_download_takes_little_more_than_physics_asks_for() {
    for (controller, ground, loss, limit) in [
        // The rate is contracted, and need not be found.
        (Choice::Fixed, BESIDE, 0.0, 1.06),
        (Choice::Fixed, BESIDE, 0.01, 1.30),
        // Learnt by an earlier client's connection, and shared.
        (Choice::Satellite, BESIDE, 0.0, 1.06),
        (Choice::Satellite, BESIDE, 0.01, 1.30),
    ] {
        let ratio =
            in_virtual_time(async |clock| warm_ratio(&clock, ground, loss, controller).await);
        println!(
            "10 MiB, {controller}, server {ground} away, {loss} lost: {ratio:.3} x bound, limit {limit}"
        );
        assert!(ratio <= limit, "{ratio:.3} x bound, limit {limit}");
    }
}

#[test]
fn ten_clients_that_begin_together_fill_the_link_and_share_it() {
    in_virtual_time(async |clock| {
        let mut path = Path::new(&clock, "0 %", FAR, Mode::Default, Choice::Satellite).await;
        path.serve();
        let connection = path.connect(&["test"]).await.unwrap();
        download(&connection, now(), 10 << 20).await;
        connection.close(VarInt::from_u32(0), b"done");
        tokio::time::sleep(Duration::from_secs(10)).await;
        let begin = now();
        let connecting: Vec<_> = (0..10).map(|_| path.connect(&["test"])).collect();
        let downloads = connecting.into_iter().map(|connecting| async move {
            let connection = connecting.await.unwrap();
            download(&connection, begin, 1 << 20).await[1].as_secs_f64()
        });
        let times = futures_util::future::join_all(downloads).await;
        let last = times.iter().copied().fold(0.0, f64::max);
        let wire = f64::from(10 << 20) * 8.0 * bentpipe_link::bound::WIRE_PER_PAYLOAD;
        let bound = 0.5 + 2.0 * 0.080 + 0.002 + wire / 20e6;
        let ratio = last / bound;
        println!("ten times 1 MiB: the last after {ratio:.3} x the bound of all together");
        // One rate for all: nobody waits for a start of its own. Six find no connection ready,
        // and open one over the satellite.
        assert!(ratio <= 1.10, "{ratio:.3}: {times:?}");
    });
}

#[test]
fn what_goes_wrong_behind_the_second_proxy_is_told_to_the_client() {
    for mode in [Mode::Default, Mode::H3Capable] {
        in_virtual_time(async |clock| {
            let mut path = Path::new(&clock, "0 %", FAR, mode, Choice::Satellite).await;
            path.serve();
            let ended = match path.connect(&["other"]).await {
                Ok(connection) => soon(connection.closed()).await,
                Err(error) => error,
            };
            let ConnectionError::ApplicationClosed(close) = ended else {
                panic!("{ended:?}");
            };
            assert_eq!(close.error_code, Code::Protocol.into());
        });
    }
}

/// Of all the connections that were ready one tells that the proxy beyond is another; who comes next meets none of them.
#[test]
fn one_client_pays_for_a_proxy_that_was_started_anew() {
    for later in [0, 50, 450, 2000] {
        in_virtual_time(async |clock| {
            let mut path = Path::new(&clock, "0 %", FAR, Mode::Default, Choice::Satellite).await;
            path.serve();
            (path.row.network).remove(crate::support::address(1));
            path.second = beyond_the_satellite(&mut path.row, satellite());
            let client = path.connect(&["test"]).await.unwrap();
            let (mut send, _receive) = client.open_bi().await.unwrap();
            send.write_all(&[0; 8]).await.unwrap();
            let ConnectionError::ApplicationClosed(close) = soon(client.closed()).await else {
                panic!("its proxy says what has happened");
            };
            assert_eq!(close.error_code, Code::Lost.into());
            tokio::time::sleep(Duration::from_millis(later)).await;
            let client = path.connect(&["test"]).await.unwrap();
            soon(download(&client, now(), 1000)).await;
        });
    }
}

#[test]
fn streams_between_proxies_keep_their_ids_at_the_ends() {
    in_virtual_time(async |clock| {
        let mut path = Path::new(&clock, "0 %", FAR, Mode::Default, Choice::Satellite).await;
        let (client, server) = path.open().await;
        for (here, there) in [(&client, &server), (&server, &client)] {
            for _ in 0..3 {
                let mut send = here.open_uni().await.unwrap();
                send.write_all(b"news").await.unwrap();
                send.finish().unwrap();
                let mut news = soon(there.accept_uni()).await.unwrap();
                assert_eq!(news.id(), send.id());
                assert_eq!(soon(news.read_to_end(10)).await.unwrap(), b"news");
            }
        }
        client.close(VarInt::from_u32(5), b"enough");
        let ConnectionError::ApplicationClosed(close) = soon(server.closed()).await else {
            panic!("an application's close");
        };
        assert_eq!(close.error_code, VarInt::from_u32(5));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(path.first.open(), 0);
        assert_eq!(path.first.ready(), 4);
        // The second proxy holds what the first keeps ready.
        assert_eq!(path.second.open(), 4);
    });
}

/// What the windows of both ends and of the proxies hold of one stream is the most that goes into it.
#[test]
fn a_stalled_reader_stops_its_own_sender_only_through_two_proxies() {
    in_virtual_time(async |clock| {
        let mut path = Path::new(&clock, "0 %", BESIDE, Mode::Default, Choice::Satellite).await;
        let (client, server) = path.open().await;
        let windows: u64 = [ground(), satellite(), towards_servers()]
            .iter()
            .map(|side| side.send_window() + side.stream_window())
            .sum();
        for (here, there) in [(&client, &server), (&server, &client)] {
            let written = Cell::new(0);
            let mut stalled = here.open_uni().await.unwrap();
            let endless = async {
                loop {
                    match stalled.write(&[1; 65536]).await {
                        Ok(bytes) => written.set(written.get() + bytes as u64),
                        Err(error) => return error,
                    }
                }
            };
            let others = async {
                let _unread = soon(there.accept_uni()).await.unwrap();
                tokio::time::sleep(Duration::from_secs(20)).await;
                let stopped_at = written.get();
                assert!(stopped_at <= windows, "{stopped_at} bytes of {windows}");
                for _ in 0..20 {
                    let mut send = here.open_uni().await.unwrap();
                    let body = vec![2; 500_000];
                    let write = async {
                        send.write_all(&body).await.unwrap();
                        send.finish().unwrap();
                    };
                    let read = async {
                        let mut receive = soon(there.accept_uni()).await.unwrap();
                        soon(receive.read_to_end(body.len())).await.unwrap()
                    };
                    let ((), read) = tokio::join!(write, read);
                    assert_eq!(read, body);
                }
                assert_eq!(written.get(), stopped_at);
            };
            tokio::select! {
                error = endless => panic!("{error}"),
                () = others => {}
            }
        }
    });
}

/// The server sees no more streams than it takes at a time, and each proxy holds no more than it takes.
#[test]
fn limits_of_streams_hold_through_two_proxies() {
    const STREAMS: u32 = 400;
    in_virtual_time(async |clock| {
        let few = Side {
            streams: 3,
            ..towards_servers()
        };
        let (mode, controller) = (Mode::Default, Choice::Satellite);
        let mut path = Path::to(&clock, "0 %", BESIDE, mode, controller, &few).await;
        let (client, server) = path.open().await;
        let opened = Cell::new(0);
        let open = async {
            for number in 0..STREAMS {
                let mut send = client.open_uni().await.unwrap();
                opened.set(opened.get() + 1);
                send.write_all(&number.to_be_bytes()).await.unwrap();
                send.finish().unwrap();
            }
        };
        let read = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            let mut unread = VecDeque::new();
            while let Some(stream) = server.accept_uni().now_or_never() {
                unread.push_back(stream.unwrap());
            }
            assert_eq!(unread.len(), 3);
            let held = opened.get() - few.streams;
            assert!(
                held <= ground().streams + satellite().streams,
                "{held} streams"
            );
            for number in 0..STREAMS {
                let mut stream = match unread.pop_front() {
                    Some(stream) => stream,
                    None => soon(server.accept_uni()).await.unwrap(),
                };
                let read = soon(stream.read_to_end(4)).await.unwrap();
                assert_eq!(read, number.to_be_bytes());
            }
        };
        tokio::join!(open, read);
    });
}
