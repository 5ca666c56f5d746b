//! What a client and a server see of each other through a proxy: a conversation for each
//! thing that QUIC can say.

use std::time::Duration;

use crate::support::{Row, Setup, geo, ground, in_virtual_time, lan, soon};
use bentpipe_quicpep::proxy::Mode;
use bentpipe_quicpep::transport::Side;
use bytes::Bytes;
use noq::{Connection, ConnectionError, ReadError, VarInt, WriteError};

const MODES: [Mode; 2] = [Mode::Default, Mode::H3Capable];

/// A client and a server with a proxy before a satellite hop between them.
async fn talk<F: Future<Output = ()>>(
    row: &mut Row,
    setup: Setup,
    work: impl FnOnce(Connection, Connection) -> F,
) {
    let server = row.server(&["test"], &ground());
    let _proxy = row.proxy(0, setup);
    let client = row.client();
    let config = row.client_config(&["test"], &ground());
    let connecting = client
        .connect_with(config, crate::support::address(0), crate::support::NAME)
        .unwrap();
    let accepting = async { soon(server.accept()).await.unwrap().await.unwrap() };
    let (connected, accepted) = tokio::join!(connecting, accepting);
    work(connected.unwrap(), accepted).await;
}

/// The same in both modes.
fn in_both_modes<F: Future<Output = ()>>(work: impl Fn(Connection, Connection) -> F + Copy) {
    for mode in MODES {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            let setup = Setup {
                mode,
                ..Setup::default()
            };
            talk(&mut row, setup, work).await;
        });
    }
}

fn code(number: u32) -> VarInt {
    VarInt::from_u32(number)
}

/// Reads a stream to its end.
async fn read(stream: &mut noq::RecvStream) -> Vec<u8> {
    soon(stream.read_to_end(64 << 20)).await.unwrap()
}

#[test]
fn each_side_has_its_version_of_quic() {
    for (clients, next) in [(2, 2), (2, 1), (1, 2)] {
        in_virtual_time(async |clock| {
            let mut row = Row::new(&clock, &[lan(), geo()]);
            let side = |version, side| Side { version, ..side };
            let setup = Setup {
                clients: side(clients, ground()),
                next: side(next, crate::support::satellite()),
                ..Setup::default()
            };
            let server = row.server(&["test"], &ground());
            let _proxy = row.proxy(0, setup);
            let client = row.client();
            let config = row.client_config(&["test"], &side(clients, ground()));
            let connecting =
                client.connect_with(config, crate::support::address(0), crate::support::NAME);
            let (connected, accepted) = tokio::join!(connecting.unwrap(), async {
                soon(server.accept()).await.unwrap().await.unwrap()
            });
            let connected = connected.unwrap();
            let mut send = connected.open_uni().await.unwrap();
            send.write_all(b"news").await.unwrap();
            send.finish().unwrap();
            let mut news = soon(accepted.accept_uni()).await.unwrap();
            assert_eq!(read(&mut news).await, b"news");
        });
    }
}

#[test]
fn streams_of_all_four_kinds_keep_their_ids_and_their_bytes() {
    in_both_modes(async |client, server| {
        for _ in 0..3 {
            for (here, there) in [(&client, &server), (&server, &client)] {
                let (mut send, mut receive) = here.open_bi().await.unwrap();
                send.write_all(b"question").await.unwrap();
                send.finish().unwrap();
                let (mut answer, mut question) = soon(there.accept_bi()).await.unwrap();
                assert_eq!(question.id(), send.id());
                assert_eq!(read(&mut question).await, b"question");
                answer.write_all(b"answer").await.unwrap();
                answer.finish().unwrap();
                assert_eq!(read(&mut receive).await, b"answer");

                let mut send = here.open_uni().await.unwrap();
                send.write_all(b"news").await.unwrap();
                send.finish().unwrap();
                let mut news = soon(there.accept_uni()).await.unwrap();
                assert_eq!(news.id(), send.id());
                assert_eq!(read(&mut news).await, b"news");
            }
        }
    });
}

#[test]
fn a_stream_that_was_skipped_comes_later_with_its_own_id() {
    in_both_modes(async |client, server| {
        let (mut first, _) = client.open_bi().await.unwrap();
        let (mut second, _) = client.open_bi().await.unwrap();
        second.write_all(b"second").await.unwrap();
        second.finish().unwrap();
        // The library hands out the skipped stream first; nothing has come on it.
        let (_, mut skipped) = soon(server.accept_bi()).await.unwrap();
        let (_, mut came) = soon(server.accept_bi()).await.unwrap();
        assert_eq!((skipped.id(), came.id()), (first.id(), second.id()));
        assert_eq!(read(&mut came).await, b"second");
        first.write_all(b"first").await.unwrap();
        first.finish().unwrap();
        assert_eq!(read(&mut skipped).await, b"first");
    });
}

#[test]
fn half_closed_streams_stay_open_the_other_way() {
    in_both_modes(async |client, server| {
        let (mut send, mut receive) = client.open_bi().await.unwrap();
        send.write_all(b"all of it").await.unwrap();
        send.finish().unwrap();
        let (mut answer, mut question) = soon(server.accept_bi()).await.unwrap();
        assert_eq!(read(&mut question).await, b"all of it");
        tokio::time::sleep(Duration::from_secs(20)).await;
        answer.write_all(b"late").await.unwrap();
        answer.finish().unwrap();
        assert_eq!(read(&mut receive).await, b"late");
    });
}

#[test]
fn a_reset_arrives_with_its_code() {
    in_both_modes(async |client, server| {
        let (mut send, _receive) = client.open_bi().await.unwrap();
        send.write_all(b"half of").await.unwrap();
        let (_answer, mut question) = soon(server.accept_bi()).await.unwrap();
        question.read_exact(&mut [0; 7]).await.unwrap();
        send.reset(code(4711)).unwrap();
        let error = soon(question.read(&mut [0; 1])).await.unwrap_err();
        assert_eq!(error, ReadError::Reset(code(4711)));
    });
}

#[test]
fn a_reset_is_heard_although_its_receiver_does_not_read() {
    in_both_modes(async |client, server| {
        let (mut send, _receive) = client.open_bi().await.unwrap();
        let mut sent = 0;
        // Until everybody's windows are full.
        while let Ok(written) =
            tokio::time::timeout(Duration::from_secs(30), send.write(&[7; 65536])).await
        {
            sent += written.unwrap();
        }
        assert!(sent > 500_000, "{sent} bytes");
        let (_answer, mut question) = soon(server.accept_bi()).await.unwrap();
        send.reset(code(9)).unwrap();
        assert_eq!(soon(question.received_reset()).await, Ok(Some(code(9))));
    });
}

#[test]
fn stop_sending_arrives_with_its_code() {
    in_both_modes(async |client, server| {
        let (mut send, mut receive) = client.open_bi().await.unwrap();
        send.write_all(b"x").await.unwrap();
        let (mut answer, mut question) = soon(server.accept_bi()).await.unwrap();
        question.stop(code(17)).unwrap();
        assert_eq!(soon(send.stopped()).await.unwrap(), Some(code(17)));
        // The other direction of the stream lives on, and can be stopped by the client.
        answer.write_all(b"answer").await.unwrap();
        receive.read_exact(&mut [0; 6]).await.unwrap();
        receive.stop(code(18)).unwrap();
        assert_eq!(soon(answer.stopped()).await.unwrap(), Some(code(18)));
        let error = answer.write(b"more").await.unwrap_err();
        assert_eq!(error, WriteError::Stopped(code(18)));
    });
}

#[test]
fn a_close_arrives_with_code_and_reason_both_ways() {
    for from_client in [true, false] {
        in_both_modes(move |client, server| async move {
            let (here, there) = if from_client {
                (client, server)
            } else {
                (server, client)
            };
            here.close(code(0x123), b"for a reason");
            let ConnectionError::ApplicationClosed(close) = soon(there.closed()).await else {
                panic!("an application's close");
            };
            assert_eq!(close.error_code, code(0x123));
            assert_eq!(close.reason, Bytes::from_static(b"for a reason"));
        });
    }
}

#[test]
fn what_was_acknowledged_is_delivered_before_a_close() {
    in_both_modes(async |client, server| {
        let (mut send, mut receive) = client.open_bi().await.unwrap();
        send.write_all(b"get").await.unwrap();
        send.finish().unwrap();
        let (mut answer, _question) = soon(server.accept_bi()).await.unwrap();
        let body = vec![5; 3 << 20];
        soon(answer.write_all(&body)).await.unwrap();
        answer.finish().unwrap();
        // The proxy has acknowledged it all; the client may be seconds behind.
        soon(answer.stopped()).await.unwrap();
        server.close(code(0), b"done");
        assert_eq!(read(&mut receive).await, body);
        assert!(matches!(
            soon(client.closed()).await,
            ConnectionError::ApplicationClosed(_)
        ));
    });
}

#[test]
fn a_cut_stream_never_looks_finished() {
    in_both_modes(async |client, server| {
        let mut send = client.open_uni().await.unwrap();
        send.write_all(b"half of it").await.unwrap();
        let mut half = soon(server.accept_uni()).await.unwrap();
        half.read_exact(&mut [0; 10]).await.unwrap();
        client.close(code(1), b"gone");
        let error = soon(half.read(&mut [0; 1])).await.unwrap_err();
        assert!(matches!(error, ReadError::ConnectionLost(_)), "{error:?}");
    });
}

#[test]
fn datagrams_go_both_ways() {
    in_both_modes(async |client, server| {
        for (here, there) in [(&client, &server), (&server, &client)] {
            for number in 0..10u8 {
                here.send_datagram(Bytes::copy_from_slice(&[number; 100]))
                    .unwrap();
            }
            for number in 0..10u8 {
                let datagram = soon(there.read_datagram()).await.unwrap();
                assert_eq!(datagram, Bytes::copy_from_slice(&[number; 100]));
            }
        }
    });
}

#[test]
fn a_stalled_reader_stops_its_own_sender_only() {
    in_both_modes(async |client, server| {
        let mut stalled = client.open_uni().await.unwrap();
        let endless = async {
            loop {
                if stalled.write_all(&[1; 65536]).await.is_err() {
                    return;
                }
            }
        };
        let others = async {
            let _unread = soon(server.accept_uni()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(20)).await;
            for _ in 0..20 {
                let mut send = client.open_uni().await.unwrap();
                let body = vec![2; 500_000];
                let write = async {
                    send.write_all(&body).await.unwrap();
                    send.finish().unwrap();
                };
                let read = async {
                    let mut receive = soon(server.accept_uni()).await.unwrap();
                    assert_eq!(read(&mut receive).await, body);
                };
                soon(async { tokio::join!(write, read) }).await;
            }
        };
        tokio::select! {
            () = endless => panic!("the connection is lost"),
            () = others => {}
        }
    });
}

/// A client that lets the proxy send one byte at a time.
#[test]
fn windows_of_one_byte_only_slow_their_client_down() {
    in_virtual_time(async |clock| {
        let mut row = Row::new(&clock, &[lan(), geo()]);
        let server = row.server(&["test"], &ground());
        let _proxy = row.proxy(0, Setup::default());
        let mut pairs = Vec::new();
        for window in [1, 1 << 20] {
            let mut config = row.client_config(&["test"], &ground());
            let mut transport = crate::support::plain(&ground());
            let window = VarInt::from_u32(window);
            transport
                .stream_receive_window(window)
                .receive_window(window);
            config.transport_config(std::sync::Arc::new(transport));
            let client = row.client();
            let connecting = client
                .connect_with(config, crate::support::address(0), crate::support::NAME)
                .unwrap();
            let accepting = async { soon(server.accept()).await.unwrap().await.unwrap() };
            let (connected, accepted) = tokio::join!(connecting, accepting);
            pairs.push((connected.unwrap(), accepted));
        }
        for (client, server) in &pairs {
            let (mut ask, mut receive) = client.open_bi().await.unwrap();
            ask.write_all(b"?").await.unwrap();
            ask.finish().unwrap();
            let (mut send, _) = soon(server.accept_bi()).await.unwrap();
            send.write_all(&[7; 300]).await.unwrap();
            send.finish().unwrap();
            assert_eq!(read(&mut receive).await, [7; 300]);
        }
    });
}

#[test]
fn ten_thousand_streams_are_opened_and_abandoned() {
    in_both_modes(async |client, server| {
        let abandon = async {
            for number in 0..10_000u32 {
                let (mut send, mut receive) = client.open_bi().await.unwrap();
                send.write_all(b"and then").await.unwrap();
                send.reset(code(number)).unwrap();
                receive.stop(code(number)).unwrap();
            }
        };
        let serve = async {
            for _ in 0..10_000 {
                drop(soon(server.accept_bi()).await.unwrap());
            }
        };
        soon(async { tokio::join!(abandon, serve) }).await;
        let (mut send, _receive) = soon(client.open_bi()).await.unwrap();
        send.write_all(b"still there").await.unwrap();
        send.finish().unwrap();
        let (_, mut question) = soon(server.accept_bi()).await.unwrap();
        assert_eq!(question.id().index(), 10_000);
        assert_eq!(read(&mut question).await, b"still there");
    });
}
