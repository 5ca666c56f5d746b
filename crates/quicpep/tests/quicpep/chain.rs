//! Three proxies in a row, with two satellite hops between them.

use std::time::Duration;

use crate::support::{Row, Setup, geo, ground, in_virtual_time, lan, satellite, soon};
use bentpipe_quicpep::close::Code;
use bentpipe_quicpep::proxy::Mode;
use bentpipe_quicpep::routes::{Kind, Route};
use bentpipe_vnet::clock::Clock;
use bytes::Bytes;
use noq::{ConnectionError, ReadError, ReadToEndError, VarInt, WriteError};

/// Client, proxy, satellite, proxy, satellite, proxy, server; connections are ready.
async fn chain(clock: &Clock, mode: Mode) -> Row {
    let mut row = Row::new(clock, &[lan(), geo(), geo(), lan()]);
    let to_proxy = |hop| Route {
        kind: Kind::Pep,
        name: Some(crate::support::NAME.into()),
        ..Route::server(crate::support::address(hop).to_string())
    };
    row.proxy(
        2,
        Setup {
            clients: satellite(),
            next: ground(),
            ..Setup::default()
        },
    );
    row.proxy(
        1,
        Setup {
            clients: satellite(),
            route: Some(to_proxy(2)),
            ..Setup::default()
        },
    );
    row.proxy(
        0,
        Setup {
            mode,
            route: Some(to_proxy(1)),
            ..Setup::default()
        },
    );
    tokio::time::sleep(Duration::from_secs(20)).await;
    row
}

const MODES: [Mode; 2] = [Mode::Default, Mode::H3Capable];

#[test]
fn three_proxies_carry_streams_with_their_ids_ends_and_codes() {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = chain(&clock, mode).await;
            let server = row.server(&["test"], &ground());
            let config = row.client_config(&["test"], &ground());
            let connecting = (row.client()).connect_with(
                config,
                crate::support::address(0),
                crate::support::NAME,
            );
            let accepting = async { soon(server.accept()).await.unwrap().await.unwrap() };
            let (client, server) = tokio::join!(connecting.unwrap(), accepting);
            let client = client.unwrap();
            let content: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
            for (here, there) in [(&client, &server), (&server, &client)] {
                for _ in 0..2 {
                    let mut send = here.open_uni().await.unwrap();
                    let sending = async {
                        send.write_all(&content).await.unwrap();
                        send.finish().unwrap();
                    };
                    let receiving = async {
                        let mut receive = soon(there.accept_uni()).await.unwrap();
                        let read = soon(receive.read_to_end(2 << 20)).await.unwrap();
                        (receive.id(), read)
                    };
                    let ((), (id, read)) = tokio::join!(sending, receiving);
                    assert_eq!(id, send.id());
                    assert!(read == content, "{} bytes", read.len());
                }
                let (mut send, answers) = here.open_bi().await.unwrap();
                send.write_all(b"question").await.unwrap();
                let (mut back, mut receive) = soon(there.accept_bi()).await.unwrap();
                assert_eq!(receive.id(), send.id());
                send.reset(VarInt::from_u32(41)).unwrap();
                let error = soon(receive.read_to_end(100)).await.unwrap_err();
                let ReadToEndError::Read(ReadError::Reset(code)) = error else {
                    panic!("{error:?}");
                };
                assert_eq!(code, VarInt::from_u32(41));
                drop(answers);
                let stopped = soon(async {
                    loop {
                        if let Err(error) = back.write_all(b"answer").await {
                            return error;
                        }
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                });
                assert!(matches!(stopped.await, WriteError::Stopped(_)));
            }
            client.send_datagram(Bytes::from_static(b"news")).unwrap();
            assert_eq!(&*soon(server.read_datagram()).await.unwrap(), b"news");
            server.close(VarInt::from_u32(9), b"enough");
            let ConnectionError::ApplicationClosed(close) = soon(client.closed()).await else {
                panic!("an application's close");
            };
            assert_eq!(
                (close.error_code, &*close.reason),
                (VarInt::from_u32(9), &b"enough"[..])
            );
        });
    }
}

#[test]
fn what_goes_wrong_behind_the_third_is_told_to_the_client() {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = chain(&clock, mode).await;
            let server = row.server(&["test"], &ground());
            tokio::spawn(async move {
                while let Some(incoming) = server.accept().await {
                    let _ = incoming.await;
                }
            });
            let config = row.client_config(&["other"], &ground());
            let connecting = (row.client()).connect_with(
                config,
                crate::support::address(0),
                crate::support::NAME,
            );
            let ended = match soon(connecting.unwrap()).await {
                Ok(connection) => soon(connection.closed()).await,
                Err(error) => error,
            };
            let ConnectionError::ApplicationClosed(close) = ended else {
                panic!("{ended:?}");
            };
            assert_eq!(close.error_code, Code::Protocol.into());
            let reason = String::from_utf8_lossy(&close.reason);
            assert!(reason.contains("192.0.2.4:4433"), "{reason}");
        });
    }
}
