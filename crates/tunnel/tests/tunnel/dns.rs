//! Names through the tunnel, in virtual time: what a question costs, what is answered when, and what both
//! come to for a page.

use std::sync::Arc;
use std::time::Duration;

use crate::support::names::{Names, addresses, question};
use crate::support::{NAME_SERVER, Setup, Stream, World, in_virtual_time, now, outage_from, tls};
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Round trip of the tests' link.
const RTT: Duration = Duration::from_millis(500);
const NAME: &str = "www.example.com.";
const ADDRESS: &str = "93.184.216.34";

fn sleep(seconds: u64) -> impl Future<Output = ()> {
    tokio::time::sleep(Duration::from_secs(seconds))
}

#[test]
fn a_name_costs_one_round_trip_and_the_name_server_then_nothing() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.internet.1.put(NAME, 300, &[ADDRESS]);
        let names = Names::of(&world);
        world.warm().await;
        let (took, reply) = names.ask(NAME).await;
        assert_eq!(addresses(&reply), [ADDRESS]);
        assert_eq!((reply.metadata.id, reply.answers[0].ttl), (99, 300));
        let physics = RTT + NAME_SERVER;
        println!("first: {took:?}, of which {physics:?} are physics");
        assert!(
            took >= physics && took <= physics + Duration::from_millis(5),
            "{took:?}"
        );
        sleep(10).await;
        let (took, reply) = names.ask("WWW.example.COM.").await;
        assert_eq!(addresses(&reply), [ADDRESS]);
        assert_eq!(reply.queries[0].name().to_string(), "WWW.example.COM.");
        assert_eq!(reply.answers[0].ttl, 300 - 11);
        println!("again: {took:?}");
        assert!(took < Duration::from_millis(1), "{took:?}");
        assert_eq!(world.internet.1.asked().len(), 1);
    });
}

#[test]
fn the_same_question_of_many_is_asked_once() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        // It holds for this once.
        world.internet.1.put(NAME, 0, &[ADDRESS]);
        let names = Names::of(&world);
        world.warm().await;
        let asking = (0..50).map(|_| names.ask(NAME));
        for (took, reply) in futures_util::future::join_all(asking).await {
            assert_eq!(addresses(&reply), [ADDRESS]);
            assert!(took < 2 * RTT, "{took:?}");
        }
        assert_eq!(world.internet.1.asked().len(), 1);
        names.ask(NAME).await;
        assert_eq!(world.internet.1.asked().len(), 2);
    });
}

#[test]
fn a_name_in_use_never_waits_for_the_satellite_again() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.internet.1.put(NAME, 30, &[ADDRESS]);
        let names = Names::of(&world);
        world.warm().await;
        names.ask(NAME).await;
        for _ in 0..40 {
            sleep(7).await;
            let (took, reply) = names.ask(NAME).await;
            assert!(took < Duration::from_millis(1), "{took:?}");
            assert!(reply.answers[0].ttl <= 30 && reply.answers[0].ttl >= 1);
        }
        // Nobody asks any more: it is renewed once more at most, and then no longer.
        sleep(60).await;
        let asked = world.internet.1.asked().len();
        sleep(600).await;
        assert_eq!(world.internet.1.asked().len(), asked);
    });
}

#[test]
fn in_an_outage_what_was_known_is_answered() {
    in_virtual_time(async |clock| {
        let setup = Setup {
            scenario: outage_from("20 s"),
            ..Setup::default()
        };
        let world = setup.start(&clock);
        world.internet.1.put(NAME, 10, &[ADDRESS]);
        let names = Names::of(&world);
        world.warm().await;
        names.ask(NAME).await;
        sleep(40).await;
        let (took, reply) = names.ask(NAME).await;
        assert_eq!(addresses(&reply), [ADDRESS]);
        assert_eq!(reply.answers[0].ttl, 30);
        assert!(took <= Duration::from_millis(1800), "{took:?}");
        // What could not be renewed just now is given at once.
        sleep(12).await;
        let (took, _) = names.ask(NAME).await;
        assert!(took < Duration::from_millis(1), "{took:?}");
        // What was never known is told to be unanswerable, and in time.
        let (took, reply) = names.ask("other.example.com.").await;
        assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
        assert!(took <= Duration::from_secs(11), "{took:?}");
    });
}

#[test]
fn an_answer_with_a_private_address_is_refused_unless_listed() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        let server = &world.internet.1;
        server.put("rebound.example.", 300, &["93.184.216.34", "192.168.1.1"]);
        server.put("loop.example.", 300, &["127.0.0.1"]);
        server.put("listed.example.", 300, &["10.9.0.7"]);
        let names = Names::of(&world);
        world.warm().await;
        for name in ["rebound.example.", "loop.example."] {
            let mut asked = question(name);
            asked.set_edns(Edns::new());
            let (_, reply) = names.send(asked).await;
            assert_eq!(
                reply.metadata.response_code,
                ResponseCode::Refused,
                "{name}"
            );
            assert_eq!(reply.answers.len(), 0);
            let error = reply.edns.as_ref().unwrap().option(EdnsCode::Unknown(15));
            assert!(
                format!("{error:?}").contains("112, 114, 105, 118"),
                "{error:?}"
            );
        }
        let (_, reply) = names.ask("listed.example.").await;
        assert_eq!(addresses(&reply), ["10.9.0.7"]);
    });
}

#[test]
fn nobody_learns_who_asks_and_dnssec_is_passed_through() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.internet.1.put(NAME, 300, &[ADDRESS]);
        let names = Names::of(&world);
        world.warm().await;
        let mut asked = question(NAME);
        asked.metadata.checking_disabled = true;
        let mut edns = Edns::new();
        edns.set_dnssec_ok(true);
        let network = ClientSubnet::new("192.168.7.0".parse().unwrap(), 24, 0);
        edns.options_mut().insert(EdnsOption::Subnet(network));
        asked.set_edns(edns);
        let (_, reply) = names.send(asked).await;
        assert!(reply.metadata.authentic_data && reply.metadata.checking_disabled);
        assert!(reply.edns.unwrap().flags().dnssec_ok);
        let seen = &world.internet.1.asked()[0];
        assert!(seen.metadata.checking_disabled && seen.metadata.recursion_desired);
        let edns = seen.edns.as_ref().unwrap();
        assert!(edns.flags().dnssec_ok);
        assert!(edns.option(EdnsCode::Subnet).is_none());
        // Who does not ask for it is not told that it is authentic; kept apart from the first.
        let (_, reply) = names.ask(NAME).await;
        assert!(!reply.metadata.authentic_data && !reply.metadata.checking_disabled);
        assert_eq!(world.internet.1.asked().len(), 2);
    });
}

#[test]
fn what_belongs_to_this_network_is_never_asked_for() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        let names = Names::of(&world);
        world.warm().await;
        let (_, reply) = names.ask("localhost.").await;
        assert_eq!(addresses(&reply), ["127.0.0.1"]);
        for name in [
            "printer.local.",
            "1.1.168.192.in-addr.arpa.",
            "9.0.20.172.in-addr.arpa.",
        ] {
            let (_, reply) = names.ask(name).await;
            assert_eq!(
                reply.metadata.response_code,
                ResponseCode::NXDomain,
                "{name}"
            );
        }
        assert_eq!(world.internet.1.asked().len(), 0);
    });
}

#[test]
fn a_flood_of_questions_is_bounded_and_other_hosts_are_answered() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        for number in 0..1000 {
            let name = format!("host-{number}.example.");
            world.internet.1.put(&name, 300, &[ADDRESS]);
        }
        world.internet.1.put(NAME, 300, &[ADDRESS]);
        let names = Names::of(&world);
        world.warm().await;
        let flood = (0..1000).map(|number| {
            let names = &names;
            async move { names.ask(&format!("host-{number}.example.")).await.1 }
        });
        let flood = futures_util::future::join_all(flood);
        let (flooded, (_, other)) = tokio::join!(flood, names.ask_from(2, NAME));
        assert_eq!(addresses(&other), [ADDRESS]);
        let failed = |reply: &&Message| reply.metadata.response_code == ResponseCode::ServFail;
        assert_eq!(flooded.iter().filter(failed).count(), 1000 - 192);
        let done = names.resolver.snapshot();
        assert_eq!((done.asked, done.too_many), (193, 1000 - 192));
        // The flood has left nothing behind.
        let (_, reply) = names.ask("host-999.example.").await;
        assert_eq!(addresses(&reply), [ADDRESS]);
    });
}

/// Of one that asks, and does not wait for the answers.
#[test]
fn a_host_with_all_the_questions_that_it_may_have_keeps_nobody_else_from_asking() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.internet.1.put(NAME, 300, &[ADDRESS]);
        let names = Names::of(&world);
        world.warm().await;
        for round in 0..10 {
            let asked = (0..100).map(|number| {
                let names = &names;
                async move { names.ask(&format!("host-{round}-{number}.example.")).await }
            });
            let asked = futures_util::future::join_all(asked);
            let _ = tokio::time::timeout(RTT / 100, asked).await;
        }
        let (took, reply) = names.ask_from(2, NAME).await;
        assert_eq!(addresses(&reply), [ADDRESS]);
        assert!(took < 2 * RTT, "{took:?}");
    });
}

#[test]
fn a_question_survives_the_loss_of_its_session() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.internet.1.put(NAME, 300, &[ADDRESS]);
        let names = Names::of(&world);
        world.warm().await;
        let session = world.terminal.session().borrow().clone().unwrap();
        let lose = async {
            tokio::time::sleep(RTT / 4).await;
            session.close();
        };
        let ((took, reply), ()) = tokio::join!(names.ask(NAME), lose);
        assert_eq!(addresses(&reply), [ADDRESS]);
        assert!(took < Duration::from_secs(4), "{took:?}");
    });
}

/// A server of HTTPS and a client that believes its certificate.
fn tls() -> (TlsAcceptor, TlsConnector) {
    let (server, client) = tls::configurations(NAME.trim_end_matches('.'));
    (Arc::new(server).into(), Arc::new(client).into())
}

/// Answers a request on each connection.
async fn answer(mut connections: UnboundedReceiver<Stream>, tls: TlsAcceptor) {
    while let Some(stream) = connections.recv().await {
        let mut stream = tls.accept(stream).await.unwrap();
        let mut request = [0; 16];
        stream.read_exact(&mut request).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK").await.unwrap();
        stream.flush().await.unwrap();
        // Until the client goes.
        let _ = stream.read(&mut request).await;
    }
}

/// How long a browser's first byte takes: the name, a connection, TLS 1.3, a request.
async fn first_byte(world: &World, names: &Names, tls: &TlsConnector) -> Duration {
    let began = now();
    let (_, reply) = names.ask(NAME).await;
    let stream = world.connect(&format!("{}:443", addresses(&reply)[0]));
    let name = ServerName::try_from(NAME.trim_end_matches('.')).unwrap();
    let mut stream = tls.connect(name, stream).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    stream.flush().await.unwrap();
    stream.read_u8().await.unwrap();
    began.elapsed()
}

#[test]
fn the_first_byte_by_https_takes_two_round_trips_when_the_name_is_known() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.internet.1.put(NAME, 300, &[ADDRESS]);
        let (server, client) = tls();
        let origin = world.internet.serve(&format!("{ADDRESS}:443"));
        let serving = tokio::spawn(answer(origin, server));
        let names = Names::of(&world);
        world.warm().await;
        let ours = Duration::from_millis(10);
        let unknown = first_byte(&world, &names, &client).await;
        let physics = 3 * RTT + NAME_SERVER;
        assert!(
            unknown >= physics && unknown <= physics + ours,
            "{unknown:?}"
        );
        let known = first_byte(&world, &names, &client).await;
        println!("{unknown:?} and, the name known, {known:?}");
        assert!(known >= 2 * RTT && known <= 2 * RTT + ours, "{known:?}");
        serving.abort();
    });
}
