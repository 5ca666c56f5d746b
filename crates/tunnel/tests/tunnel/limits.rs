//! Limits: how much one end takes, and what those are told who come too late.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{GATEWAY, GATEWAY_SEED, Setup, TERMINAL_SEED, identity, in_virtual_time, now};
use bentpipe_tunnel::identity::{Registry as _, tls};
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_tunnel::transport::{MAX_FLOWS, Transport};
use bentpipe_units::Bytes;
use noq::VarInt;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

const ORIGIN: &str = "93.184.216.34:80";
const STUCK: Duration = Duration::from_secs(600);

#[test]
fn a_gigabyte_is_enough_for_five_hundred_terminals() {
    assert!(Transport::default().memory == Bytes::new(1 << 30));
    assert!(Transport::default().max_sessions() >= 500);
}

#[test]
fn ten_thousand_flows_are_open_in_one_session() {
    const FLOWS: usize = 10_000;
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        let mut origin = world.internet.serve(ORIGIN);
        world.warm().await;
        let mut applications = Vec::new();
        for _ in 0..FLOWS {
            let mut application = world.connect(ORIGIN);
            application.write_all(b"hello").await.unwrap();
            applications.push(application);
        }
        let mut served = Vec::new();
        for number in 0..FLOWS {
            let mut stream = timeout(STUCK, origin.recv()).await.unwrap().unwrap();
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).await.unwrap();
            stream.write_all(b"welcome").await.unwrap();
            served.push(stream);
            assert_eq!(&hello, b"hello", "flow {number}");
        }
        for application in &mut applications {
            let mut welcome = [0; 7];
            let read = timeout(STUCK, application.read_exact(&mut welcome)).await;
            read.expect("all are open at the same time").unwrap();
        }
    });
}

/// Of one that holds what it can get, and is refused the rest.
#[test]
fn a_host_with_all_the_flows_that_it_may_have_keeps_nobody_else_out() {
    const OTHERS: &str = "93.184.216.35:80";
    const ROUND_TRIP: Duration = Duration::from_millis(500);
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        let mut of_greedy = world.internet.serve(ORIGIN);
        let mut of_other = world.internet.serve(OTHERS);
        world.warm().await;
        let greedy: Vec<_> = (0..MAX_FLOWS + 1000)
            .map(|_| world.connect_from(1, ORIGIN))
            .collect();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut held = Vec::new();
        while let Ok(stream) = of_greedy.try_recv() {
            held.push(stream);
        }
        let refused = world.terminal.tally().snapshot().failed;
        let refused = refused.get("too_many_flows").copied().unwrap_or(0);
        println!("one host has {} flows, {refused} were refused", held.len());
        assert_eq!(held.len() as u64 + refused, greedy.len() as u64);
        assert!(held.len() > 10_000, "{}", held.len());

        let begin = now();
        let mut other = world.connect_from(2, OTHERS);
        other.write_all(b"hello").await.unwrap();
        let stream = timeout(ROUND_TRIP, of_other.recv()).await;
        let mut stream = stream.expect("it has a place").unwrap();
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        assert!(begin.elapsed() < ROUND_TRIP, "{:?}", begin.elapsed());
        let begin = now();
        let datagrams = timeout(STUCK, world.open_udp("93.184.216.35:5004"));
        datagrams.await.expect("so have its datagrams");
        // Whose host is the greedy one's own.
        assert!(begin.elapsed() < 2 * ROUND_TRIP, "{:?}", begin.elapsed());
    });
}

/// As of a host that looks for open ports; each attempt is a socket at the gateway.
#[test]
fn an_origin_that_says_nothing_is_not_waited_for_when_nobody_else_does() {
    const FLOWS: usize = 1000;
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.warm().await;
        // Shorter than the ten seconds that an origin has.
        let there = Duration::from_secs(2);
        let scanned: Vec<_> = (0..FLOWS)
            .map(|_| world.connect_from(1, "93.184.216.99:7"))
            .collect();
        tokio::time::sleep(there).await;
        assert_eq!(world.internet.dialling(), FLOWS);
        drop(scanned);
        tokio::time::sleep(there).await;
        assert_eq!(world.internet.dialling(), 0);
    });
}

#[test]
fn the_terminal_that_finds_no_room_is_told_what_to_change_and_backs_off() {
    in_virtual_time(async |clock| {
        let mut setup = Setup::default();
        setup.transport.memory = Bytes::new(16 << 20);
        let most = u8::try_from(setup.transport.max_sessions()).unwrap();
        for seed in 100..=100 + most {
            setup
                .list
                .terminals
                .lock()
                .unwrap()
                .push(identity(seed).fingerprint());
        }
        let (network, _, gateway) = crate::support::sockets(&clock, &setup.scenario);
        let gateway = crate::support::endpoint(&clock, gateway, Some(setup.server()));
        let _serving = setup.gateway(gateway);
        let connector = |seed: u8| {
            let socket = network.terminal(([192, 0, 2, seed], 5000).into(), &[0]);
            let mut connector = setup.connector(crate::support::endpoint(&clock, socket, None));
            connector.identity = tokio::sync::watch::channel(Arc::new(identity(seed))).1;
            connector
        };
        let mut sessions = Vec::new();
        for seed in 100..100 + most {
            let session = connector(seed).open().await.unwrap();
            session.accepted().await.unwrap();
            sessions.push(session);
        }
        let last = connector(100 + most).open().await.unwrap();
        let said = last.accepted().await.unwrap_err();
        assert!(
            said.contains("8 sessions") && said.contains("transport.memory = \"16 MiB\""),
            "{said}"
        );
        // Left to itself it tries again, but seldom: 0.5, 1, 2, 4, 8, 16 and 30 s apart.
        let (terminal, keep) = Terminal::new(connector(100 + most));
        let mut seen = terminal.session();
        let keeping = tokio::spawn(async move {
            keep.await;
        });
        let (begin, mut attempts) = (now(), 0);
        let five_minutes = Duration::from_secs(300);
        while begin.elapsed() < five_minutes {
            if timeout(five_minutes, seen.wait_for(Option::is_some))
                .await
                .is_ok()
            {
                attempts += 1;
                let _ = timeout(five_minutes, seen.wait_for(Option::is_none)).await;
            }
        }
        keeping.abort();
        assert!(
            (5..=16).contains(&attempts),
            "{attempts} attempts in five minutes"
        );
    });
}

#[test]
fn a_terminal_that_is_no_longer_enrolled_loses_its_session_at_once() {
    in_virtual_time(async |clock| {
        let setup = Setup::default();
        let list = setup.list.clone();
        let world = setup.start(&clock);
        let _origin = world.internet.serve(ORIGIN);
        world.warm().await;
        let session = world.terminal.session().borrow().clone().unwrap();
        list.terminals.lock().unwrap().clear();
        assert_eq!(
            list.role(&identity(TERMINAL_SEED).fingerprint()),
            bentpipe_tunnel::identity::PeerRole::Unknown
        );
        let begin = now();
        let why = timeout(STUCK, session.closed())
            .await
            .expect("it is closed");
        assert!(
            begin.elapsed() <= Duration::from_secs(3),
            "{:?}",
            begin.elapsed()
        );
        assert!(why.contains("no longer enrolled"), "{why}");
    });
}

/// A header section that declares a gigabyte is refused before it is held.
#[test]
fn a_header_section_without_end_is_stopped() {
    in_virtual_time(async |clock| {
        let setup = Setup::default();
        let (_network, terminal, gateway) = crate::support::sockets(&clock, &setup.scenario);
        let gateway = crate::support::endpoint(&clock, gateway, Some(setup.server()));
        let _serving = setup.gateway(gateway);
        let endpoint = crate::support::endpoint(&clock, terminal, None);
        let tls = tls::client(
            &identity(TERMINAL_SEED),
            vec![identity(GATEWAY_SEED).fingerprint()],
        );
        let config = noq::ClientConfig::new(Arc::new(tls));
        let connection = endpoint
            .connect_with(config, GATEWAY.parse().unwrap(), "bentpipe.invalid")
            .unwrap()
            .await
            .unwrap();
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        // HEADERS, 2^30 bytes.
        send.write_all(&[0x01, 0xc0, 0, 0, 0, 0x40, 0, 0, 0])
            .await
            .unwrap();
        let mut sent = 0;
        let block = [b'x'; 4096];
        let error = loop {
            match timeout(STUCK, send.write(&block)).await {
                Ok(Ok(written)) => sent += written,
                Ok(Err(error)) => break error,
                Err(_) => panic!("{sent} bytes are held and nothing is said"),
            }
        };
        let load = VarInt::from_u64(h3::error::Code::H3_EXCESSIVE_LOAD.value()).unwrap();
        assert_eq!(error, noq::WriteError::Stopped(load));
    });
}
