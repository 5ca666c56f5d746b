//! Who may talk to whom, and what those are told who may not.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{GATEWAY, GATEWAY_SEED, Setup, TERMINAL_SEED, identity, in_virtual_time};
use bentpipe_tunnel::identity::enrolment_line::EnrolmentLine;
use bentpipe_tunnel::identity::{Identity, PeerRole, Registry as _};
use bentpipe_vnet::clock::Clock;
use tokio::time::timeout;

/// Opens a session as `setup` says and gives what the terminal and the gateway learn.
async fn attempt(clock: &Clock, setup: &Setup) -> (Result<(), String>, Result<(), String>) {
    let (_network, terminal_socket, gateway_socket) =
        crate::support::sockets(clock, &setup.scenario);
    let gateway = crate::support::endpoint(clock, gateway_socket, Some(setup.server()));
    let accepting = gateway.clone();
    let at_gateway = tokio::spawn(async move {
        let incoming = accepting.accept().await.expect("an attempt arrives");
        match incoming.await {
            Ok(connection) => {
                let closed = timeout(Duration::from_secs(5), connection.closed()).await;
                closed.map_or(Ok(()), |error| {
                    Err(bentpipe_tunnel::session::describe(&error))
                })
            }
            Err(error) => Err(bentpipe_tunnel::session::describe(&error)),
        }
    });
    let connector = setup.connector(crate::support::endpoint(clock, terminal_socket, None));
    // Held until the gateway has had its time: dropping a session closes it.
    let opened = connector.open().await;
    let at_terminal = match &opened {
        Ok(session) => session.confirmed().await,
        Err(error) => Err(error.to_string()),
    };
    (at_terminal, at_gateway.await.unwrap())
}

#[test]
fn the_right_keys_open_a_session() {
    in_virtual_time(async |clock| {
        assert_eq!(attempt(&clock, &Setup::default()).await, (Ok(()), Ok(())));
    });
}

#[test]
fn a_wrong_gateway_is_told_at_both_ends() {
    in_virtual_time(async |clock| {
        let setup = Setup {
            expects: 9,
            ..Setup::default()
        };
        let (terminal, gateway) = attempt(&clock, &setup).await;
        for said in [terminal.unwrap_err(), gateway.unwrap_err()] {
            let (shown, expected) = (
                identity(GATEWAY_SEED).fingerprint(),
                identity(9).fingerprint(),
            );
            assert!(
                said.contains(&format!("the gateway's key is {shown}")),
                "{said}"
            );
            assert!(said.contains(&format!("expects {expected}")), "{said}");
        }
    });
}

#[test]
fn a_stranger_is_told_at_both_ends() {
    in_virtual_time(async |clock| {
        let setup = Setup {
            terminal: 9,
            ..Setup::default()
        };
        let (terminal, gateway) = attempt(&clock, &setup).await;
        for said in [terminal.unwrap_err(), gateway.unwrap_err()] {
            let stranger = identity(9).fingerprint();
            assert!(
                said.contains(&format!("the terminal's key is {stranger}")),
                "{said}"
            );
            assert!(
                said.contains(&identity(GATEWAY_SEED).fingerprint().to_string()),
                "{said}"
            );
        }
    });
}

#[test]
fn one_line_enrols_one_terminal() {
    in_virtual_time(async |clock| {
        let line = EnrolmentLine::new(
            GATEWAY.parse().unwrap(),
            identity(GATEWAY_SEED).fingerprint(),
            [5; 32],
        );
        let line: EnrolmentLine = line.to_string().parse().unwrap();
        let setup = Setup::default();
        let list = setup.list.clone();
        list.enrolments
            .lock()
            .unwrap()
            .insert(line.one_time_identity().fingerprint(), None);
        let (_network, terminal_socket, gateway_socket) =
            crate::support::sockets(&clock, &setup.scenario);
        let _serving = setup.gateway(crate::support::endpoint(
            &clock,
            gateway_socket,
            Some(setup.server()),
        ));
        let mut connector =
            setup.connector(crate::support::endpoint(&clock, terminal_socket, None));

        connector.identity = tokio::sync::watch::channel(Arc::new(line.one_time_identity())).1;
        let session = connector.open().await.unwrap();
        let target = GATEWAY.parse().unwrap();
        let (new, other) = (identity(20).fingerprint(), identity(21).fingerprint());
        let mut flow = session
            .connect(&"93.184.216.34:80".parse().unwrap(), 0)
            .await
            .unwrap();
        assert_eq!(
            flow.recv_response().await.unwrap().status(),
            403,
            "a one-time key can only enrol"
        );
        session.enrol(&target, &new).await.unwrap();
        session
            .enrol(&target, &new)
            .await
            .expect("asking again does no harm");
        let error = session.enrol(&target, &other).await.unwrap_err();
        assert!(error.contains("used by another"), "{error}");
        assert_eq!(
            (list.role(&new), list.role(&other)),
            (PeerRole::Terminal, PeerRole::Unknown)
        );

        connector.identity = tokio::sync::watch::channel(Arc::new(identity(TERMINAL_SEED))).1;
        let session = connector.open().await.unwrap();
        let error = session.enrol(&target, &other).await.unwrap_err();
        assert!(error.contains("cannot enrol others"), "{error}");
    });
}

#[test]
fn an_identity_reads_back_and_keeps_its_fingerprint() {
    let one = identity(3);
    let again = Identity::from_pem(one.to_pem()).unwrap();
    assert_eq!(one.fingerprint(), again.fingerprint());
    assert_ne!(one.fingerprint(), identity(4).fingerprint());
    assert_eq!(one.fingerprint().to_string().parse(), Ok(one.fingerprint()));
    assert!(Identity::from_pem("rubbish").is_err());
}

#[test]
fn a_damaged_line_says_what_is_wrong_with_it() {
    let line = EnrolmentLine::new(GATEWAY.parse().unwrap(), identity(1).fingerprint(), [5; 32])
        .to_string();
    for (damaged, said) in [
        (
            line.replace("bentpipe://", "https://"),
            "does not start with",
        ),
        (line.replace("secret=", "sekret="), "\"secret\" is missing"),
        (
            line[..line.len() - 3].to_owned(),
            "the secret in it is damaged",
        ),
        (
            line.replace("192.0.2.1:4433", "192.0.2.1"),
            "port is missing",
        ),
        (String::new(), "not a URI"),
    ] {
        let error = damaged.parse::<EnrolmentLine>().unwrap_err().to_string();
        assert!(error.contains(said), "{damaged}: {error}");
    }
}
