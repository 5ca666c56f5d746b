//! A server whose clients leave behind what they have begun, over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_cc::PathMemory;
use bentpipe_perf::clock::Clock;
use bentpipe_perf::parameters::{Parameters, STREAMS};
use bentpipe_perf::protocol::{ALPN, header};
use bentpipe_perf::server::Service;
use bentpipe_perf::tls::{self, Credentials, Trust};
use bentpipe_units::Span;
use noq::{ClientConfig, Connection, Endpoint, ServerConfig, TokioRuntime, VarInt};

/// A client's connection to a server, with `uni` streams that the server may open.
async fn connected(uni: u32) -> (Connection, Endpoint) {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (credentials, _) = Credentials::generate(vec!["server.test".into()]).expect("a key");
    let key = credentials.fingerprint().expect("a fingerprint");
    let parameters = Parameters::default();
    let transport = |uni| {
        let mut transport = parameters.transport(PathMemory::default());
        transport.max_concurrent_uni_streams(VarInt::from_u32(uni));
        Arc::new(transport)
    };
    let tls = tls::server(credentials, &[ALPN], None).expect("TLS");
    let mut config = ServerConfig::with_crypto(tls);
    config.transport_config(transport(STREAMS));
    let server = Endpoint::server(config, any).expect("a socket");
    let address = server.local_addr().expect("it is bound");
    let service = Service {
        clock: Clock::new(Arc::new(TokioRuntime)),
        parameters: (&parameters).into(),
        interval: Span::from_millis(1_000),
        connections: 1,
        tell: Arc::new(|_| {}),
        files: None,
    };
    tokio::spawn(service.quic(server));
    let endpoint = Endpoint::client(any).expect("a socket");
    let tls = tls::client(&Trust::Key(key), ALPN, Arc::default(), None);
    let mut config = ClientConfig::new(tls);
    config.transport_config(transport(uni));
    let connecting = endpoint.connect_with(config, address, "server.test");
    let connection = connecting.expect("it begins").await.expect("a handshake");
    (connection, endpoint)
}

/// Each request is read to its end, so that the next may come, and its answer waits for a stream that is never allowed.
#[tokio::test]
async fn answers_that_nobody_lets_out_are_bounded() {
    let (connection, _endpoint) = connected(0).await;
    let most = 10 * STREAMS;
    let ask = async {
        for asked in 0..most {
            let Ok(opened) =
                tokio::time::timeout(Duration::from_secs(2), connection.open_uni()).await
            else {
                return asked;
            };
            let mut stream = opened.expect("the connection stands");
            stream.write_all(&header(1)).await.expect("it stands");
            stream.finish().expect("it is open");
        }
        most
    };
    let asked = ask.await;
    assert!(asked < most, "{asked} streams wait to be answered");
}

#[tokio::test]
async fn a_client_that_abandons_ten_thousand_streams_is_still_answered() {
    let (connection, _endpoint) = connected(STREAMS).await;
    for number in 0..10_000 {
        let (mut send, mut receive) = connection.open_bi().await.expect("the connection stands");
        send.write_all(&header(u64::MAX)).await.expect("it stands");
        match number % 3 {
            0 => drop(send.reset(1_u32.into())),
            1 => drop(send.finish()),
            // Within the header.
            _ => drop(send.reset(2_u32.into())),
        }
        let _ = receive.stop(0_u32.into());
    }
    let (mut send, mut receive) = connection.open_bi().await.expect("the connection stands");
    send.write_all(&header(1_000)).await.expect("it stands");
    send.finish().expect("it is open");
    assert_eq!(
        receive.read_to_end(2_000).await.expect("an answer").len(),
        1_000
    );
}
