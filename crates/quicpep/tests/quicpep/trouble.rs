//! What goes wrong, and what a client is told of it.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Identity, Row, Setup, geo, ground, in_virtual_time, lan, link, soon};
use bentpipe_quic::version2::keys::application_protocol;
use bentpipe_quicpep::close::Code;
use bentpipe_quicpep::proxy::Mode;
use bentpipe_quicpep::routes::Route;
use bentpipe_quicpep::tls;
use futures_util::future::join_all;
use noq::crypto::rustls::QuicClientConfig;
use noq::{ConnectionError, VarInt};
use tokio::time::Instant;

const MODES: [Mode; 3] = [Mode::Default, Mode::H3Capable, Mode::H3Parallel];

/// Connects with `protocols` and waits for the end of the connection.
async fn closed(row: &mut Row, protocols: &[&str]) -> (VarInt, String) {
    let client = row.client();
    let config = row.client_config(protocols, &ground());
    let connecting = client.connect_with(config, crate::support::address(0), crate::support::NAME);
    let ended = match soon(connecting.unwrap()).await {
        Ok(connection) => soon(connection.closed()).await,
        Err(error) => error,
    };
    match ended {
        ConnectionError::ApplicationClosed(close) => (
            close.error_code,
            String::from_utf8(close.reason.to_vec()).unwrap(),
        ),
        other => panic!("closed with a code and a reason, not {other:?}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's clock, which is virtual here"
)]
fn now() -> Instant {
    Instant::now()
}

/// A server that takes every connection and says nothing.
fn accept_all(server: &noq::Endpoint) {
    let server = server.clone();
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            tokio::spawn(async move {
                if let Ok(connection) = incoming.await {
                    connection.closed().await;
                }
            });
        }
    });
}

#[test]
fn a_next_hop_that_does_not_answer_is_told_of() {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            row.proxy(
                0,
                Setup {
                    mode,
                    ..Setup::default()
                },
            );
            let begin = now();
            let (code, reason) = closed(&mut row, &["test"]).await;
            assert_eq!(code, Code::Unreachable.into());
            assert_eq!(reason, "192.0.2.2:4433 does not answer");
            // The proxy gives up after 12 s; the client knows within a round trip of 1 ms, and
            // where it has to finish its handshake first, within two.
            let late = begin.elapsed() - bentpipe_quicpep::next_hop::PATIENCE;
            assert!(late <= Duration::from_millis(4), "{late:?}");
        });
    }
}

/// Handshakes that take longer than a silent server is given, because there are so many, are waited for.
#[test]
fn a_next_hop_that_is_busy_with_others_is_waited_for() {
    const CROWD: usize = 40;
    in_virtual_time(async |clock| {
        let slow = link("80 kbit/s", "20 ms", "0 %");
        let mut row = Row::new(&clock, &[lan(), slow]);
        let server = row.server(&["test"], &ground());
        row.proxy(0, Setup::default());
        let begin = now();
        let mut clients = Vec::new();
        for _ in 0..CROWD {
            let config = row.client_config(&["test"], &ground());
            let connecting = (row.client()).connect_with(
                config,
                crate::support::address(0),
                crate::support::NAME,
            );
            clients.push(connecting.unwrap().await.unwrap());
        }
        let serving = (0..CROWD).map(|_| async { server.accept().await.unwrap().await.unwrap() });
        let served = soon(join_all(serving)).await;
        let last = begin.elapsed();
        println!("{CROWD} handshakes took {last:?}");
        assert!(last > 2 * bentpipe_quicpep::next_hop::PATIENCE, "{last:?}");
        for connection in clients.iter().chain(&served) {
            assert_eq!(connection.close_reason(), None);
        }
    });
}

#[test]
fn a_name_that_does_not_resolve_is_told_of_at_once() {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            let route = Some(Route::server("nobody.example:443"));
            row.proxy(
                0,
                Setup {
                    mode,
                    route,
                    ..Setup::default()
                },
            );
            let begin = now();
            let (code, reason) = closed(&mut row, &["test"]).await;
            assert_eq!(code, Code::Unreachable.into());
            assert_eq!(reason, "nobody.example:443 does not resolve: no such name");
            assert!(begin.elapsed() <= Duration::from_millis(4));
        });
    }
}

#[test]
fn an_untrusted_certificate_is_told_of() {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            accept_all(&row.server(&["test"], &ground()));
            let roots = Some(Identity::new("server.test").roots());
            row.proxy(
                0,
                Setup {
                    mode,
                    roots,
                    ..Setup::default()
                },
            );
            let begin = now();
            let (code, reason) = closed(&mut row, &["test"]).await;
            assert_eq!(code, Code::Untrusted.into(), "{reason}");
            assert!(
                reason.starts_with("the certificate of 192.0.2.2:4433 is not to be trusted: "),
                "{reason}"
            );
            // One satellite round trip, and the client's.
            assert!(begin.elapsed() <= Duration::from_millis(510));
        });
    }
}

/// By an authority that is trusted, and yet not to be believed.
#[test]
fn a_certificate_that_has_expired_or_is_for_another_name_is_told_of() {
    let bad = [
        (
            Identity::until(crate::support::NAME, 2020),
            "certificate expired",
        ),
        (Identity::new("other.test"), "not valid for name"),
    ];
    for (shown, said) in bad {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            accept_all(&row.server_that_shows(shown.certificates(), &["test"], &ground()));
            let roots = Some(shown.roots());
            row.proxy(
                0,
                Setup {
                    roots,
                    ..Setup::default()
                },
            );
            let (code, reason) = closed(&mut row, &["test"]).await;
            assert_eq!(code, Code::Untrusted.into(), "{reason}");
            assert!(reason.contains(said), "{reason}");
        });
    }
}

#[test]
fn an_application_protocol_that_the_server_does_not_speak_is_told_of() {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            accept_all(&row.server(&["test"], &ground()));
            row.proxy(
                0,
                Setup {
                    mode,
                    ..Setup::default()
                },
            );
            let (code, reason) = closed(&mut row, &["other"]).await;
            assert_eq!(code, Code::Protocol.into(), "{reason}");
            assert!(reason.contains("does not speak the application protocol"));
        });
    }
}

#[test]
fn a_server_that_closes_during_the_handshake_is_passed_on() {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            let server = row.server(&["test"], &ground());
            tokio::spawn(async move {
                let connecting = server.accept().await.unwrap().accept().unwrap();
                let (connection, _) = connecting.into_0rtt().unwrap();
                connection.close(VarInt::from_u32(77), b"not today");
                std::future::pending::<()>().await;
            });
            row.proxy(
                0,
                Setup {
                    mode,
                    ..Setup::default()
                },
            );
            let (code, reason) = closed(&mut row, &["test"]).await;
            // QUIC leaves out code and reason before the handshake is done (RFC 9000, 10.2.3).
            assert_eq!(code, Code::Refused.into(), "{reason}");
            assert!(reason.contains("closed during the handshake"), "{reason}");
        });
    }
}

#[test]
fn a_version_that_nobody_speaks_is_answered_with_those_that_are_spoken() {
    /// Draft 29, which the client's library has.
    const OTHER: u32 = 0xff00_001d;
    in_virtual_time(async |clock| {
        let mut row = Row::new(&clock, &[lan(), geo()]);
        let proxy = row.proxy(0, Setup::default());
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[0; 32]);
        let mut config = noq::EndpointConfig::new(Arc::new(key));
        config.supported_versions(vec![OTHER]);
        let socket = row
            .network
            .terminal("10.0.9.9:50000".parse().unwrap(), &[0]);
        let runtime = Arc::new(clock.clone());
        let client =
            noq::Endpoint::new_with_abstract_socket(config, None, Box::new(socket), runtime);
        let mut tls = tls::client(row.identity.roots());
        tls.alpn_protocols = vec![b"test".to_vec()];
        let tls = QuicClientConfig::try_from(tls).unwrap();
        let mut config = noq::ClientConfig::new(Arc::new(tls));
        config.version(OTHER);
        let connecting = (client.unwrap()).connect_with(
            config,
            crate::support::address(0),
            crate::support::NAME,
        );
        let begin = now();
        let ended = soon(connecting.unwrap()).await.err();
        assert_eq!(ended, Some(ConnectionError::VersionMismatch));
        assert!(begin.elapsed() <= Duration::from_millis(2));
        assert_eq!(proxy.open(), 0);
    });
}

#[test]
fn a_client_too_many_is_told_that_there_is_no_room() {
    in_virtual_time(async |clock| {
        let mut row = Row::new(&clock, &[lan(), geo()]);
        accept_all(&row.server(&["test"], &ground()));
        let proxy = row.proxy(
            0,
            Setup {
                memory: 1 << 20,
                ..Setup::default()
            },
        );
        let mut connected = Vec::new();
        for _ in 0..2 {
            let config = row.client_config(&["test"], &ground());
            let connecting = (row.client()).connect_with(
                config,
                crate::support::address(0),
                crate::support::NAME,
            );
            connected.push(soon(connecting.unwrap()).await.unwrap());
        }
        let (code, reason) = closed(&mut row, &["test"]).await;
        assert_eq!(code, Code::Full.into());
        assert_eq!(reason, "this proxy has room for 2 connections");
        connected[0].close(VarInt::from_u32(0), b"done");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(proxy.open(), 1);
        let config = row.client_config(&["test"], &ground());
        let connecting =
            (row.client()).connect_with(config, crate::support::address(0), crate::support::NAME);
        let again = soon(connecting.unwrap()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(again.close_reason(), None);
    });
}

/// Those for whom there is not even room for a reason are refused by a packet.
#[test]
fn a_crowd_that_there_is_no_room_for_is_refused() {
    in_virtual_time(async |clock| {
        let mut row = Row::new(&clock, &[lan(), geo()]);
        accept_all(&row.server(&["test"], &ground()));
        let memory = 1 << 20;
        let proxy = row.proxy(
            0,
            Setup {
                memory,
                ..Setup::default()
            },
        );
        let mut connecting = Vec::new();
        for _ in 0..40 {
            let config = row.client_config(&["test"], &ground());
            let connection = (row.client()).connect_with(
                config,
                crate::support::address(0),
                crate::support::NAME,
            );
            connecting.push(connection.unwrap());
        }
        let ended = connecting.into_iter().map(|connecting| async {
            match connecting.await {
                Err(error) => Some(error),
                Ok(connection) => {
                    let ten_seconds = Duration::from_secs(10);
                    tokio::time::timeout(ten_seconds, connection.closed())
                        .await
                        .ok()
                }
            }
        });
        let mut counts = [0; 3];
        for ended in join_all(ended).await {
            match ended {
                None => counts[0] += 1,
                Some(ConnectionError::ApplicationClosed(close))
                    if close.error_code == Code::Full.into() =>
                {
                    counts[1] += 1;
                }
                Some(ConnectionError::ConnectionClosed(_)) => counts[2] += 1,
                Some(other) => panic!("{other:?}"),
            }
        }
        println!("served, told that there is no room, refused: {counts:?}");
        assert!(counts[0] <= 2 && counts[2] >= 30, "{counts:?}");
        assert!(proxy.open() <= 2);
    });
}

#[test]
fn a_client_that_goes_away_early_leaves_nothing_behind() {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            let server = row.server(&["test"], &ground());
            accept_all(&server);
            let proxy = row.proxy(
                0,
                Setup {
                    mode,
                    ..Setup::default()
                },
            );
            let client = row.client();
            let config = row.client_config(&["test"], &ground());
            let connecting = client
                .connect_with(config, crate::support::address(0), crate::support::NAME)
                .unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(connecting);
            tokio::time::sleep(Duration::from_secs(120)).await;
            assert_eq!(proxy.open(), 0);
            assert_eq!(server.open_connections(), 0);
        });
    }
}

/// A proxy that asks servers first that it does not know, and only those.
#[test]
fn a_server_that_has_answered_is_not_waited_for_until_it_fails() {
    in_virtual_time(async |clock| {
        let mut row = Row::new(&clock, &[lan(), geo()]);
        let server = row.server(&["test"], &ground());
        accept_all(&server);
        row.proxy(
            0,
            Setup {
                mode: Mode::H3Parallel,
                ..Setup::default()
            },
        );
        // The server does not have the client's first choice.
        let connect = |row: &mut Row| {
            let config = row.client_config(&["newest", "test"], &ground());
            (row.client())
                .connect_with(config, crate::support::address(0), crate::support::NAME)
                .unwrap()
        };
        for (what, least, most) in [("unknown", 500, 510), ("known", 0, 3)] {
            let begin = now();
            let connection = soon(connect(&mut row)).await.unwrap();
            let took = begin.elapsed();
            let [least, most] = [least, most].map(Duration::from_millis);
            assert!((least..=most).contains(&took), "{what}: {took:?}");
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(connection.close_reason(), None);
            assert_eq!(application_protocol(&connection), Some(b"test".to_vec()));
            connection.close(VarInt::from_u32(0), b"done");
        }
        server.close(VarInt::from_u32(0), b"gone");
        // One client is answered for a server that is gone, and the next is not.
        for (what, answered) in [("first", true), ("second", false)] {
            let begin = now();
            let connecting = soon(connect(&mut row)).await;
            let soon_answered = begin.elapsed() < Duration::from_millis(500);
            assert_eq!(soon_answered, answered, "{what}");
            let ended = match connecting {
                Ok(connection) => soon(connection.closed()).await,
                Err(error) => error,
            };
            assert!(
                matches!(ended, ConnectionError::ApplicationClosed(_)),
                "{what}: {ended:?}"
            );
        }
    });
}
