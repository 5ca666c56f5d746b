//! Both ends restart: the first session of the new processes starts with what the last
//! one of the old processes knew, and no faster than that.

use std::time::Duration;

use crate::support::{
    GATEWAY_SEED, Setup, TERMINAL_SEED, endpoint, identity, in_virtual_time, now, sockets,
};
use bentpipe_cc::Choice;
use bentpipe_link::Scenario;
use bentpipe_tunnel::paths::{Paths, SavedPath};
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_vnet::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const RTT: Duration = Duration::from_millis(610);
const ORIGIN: &str = "93.184.216.34:80";
/// Enough to learn the path from.
const LONG: usize = 10 << 20;
/// A round trip of 600 ms at 20 Mbit/s holds 1.5 MB.
const SHORT: usize = 2_000_000;
const GEO: &str = "name = \"geo\"\n\
    [forward]\nrate = \"20 Mbit/s\"\ndelay = \"300 ms\"\nqueue = \"375 kB\"\n\
    [return]\nrate = \"2 Mbit/s\"\ndelay = \"300 ms\"\nqueue = \"100 kB\"\n";

/// What one life of both ends found out.
struct Life {
    /// How long each download took.
    took: Vec<Duration>,
    /// What terminal and gateway leave behind.
    paths: [Paths; 2],
}

/// Both ends are started with `paths`, carry `downloads` and end.
async fn life(clock: &Clock, controller: Choice, paths: [Paths; 2], downloads: &[usize]) -> Life {
    let mut setup = Setup {
        scenario: Scenario::parse(GEO).unwrap(),
        paths: paths.clone(),
        ..Setup::default()
    };
    setup.transport.controller = controller.into();
    let world = setup.start(clock);
    let mut origin = world.internet.serve(ORIGIN);
    world.warm().await;
    let mut took = Vec::new();
    for &bytes in downloads {
        let begin = now();
        let mut application = world.connect(ORIGIN);
        application.write_all(b"GET").await.unwrap();
        let mut served = origin.recv().await.unwrap();
        tokio::spawn(async move {
            served.write_all(&vec![b'x'; bytes]).await.unwrap();
            served.shutdown().await.unwrap();
            // The application leaves when it has what it wanted; how is not looked at here.
            let _ = served.read_to_end(&mut Vec::new()).await;
        });
        application.read_exact(&mut vec![0; bytes]).await.unwrap();
        took.push(begin.elapsed());
    }
    let paths = paths.map(|paths| Paths::restored(paths.saved()));
    Life { took, paths }
}

/// The bound is one round trip and the bytes at the link's rate: 600 ms + 835 ms. Half of
/// what was known may leave in the first round (RFC 9959, section 4.3), all in the next:
/// 1.4 times the bound; CUBIC's window then has the half as its start.
#[test]
fn slow_start_is_left_behind() {
    in_virtual_time(async |clock| {
        for (controller, limit) in [(Choice::Satellite, 1.4), (Choice::Cubic, 1.75)] {
            let first = life(&clock, controller, Default::default(), &[SHORT, LONG, LONG]).await;
            let cold = first.took[0].as_secs_f64();
            let second = life(&clock, controller, first.paths, &[SHORT]).await;
            let resumed = second.took[0].as_secs_f64();
            let bound = 0.6 + SHORT as f64 * 8.0 * 1500.0 / 1437.0 / 20e6;
            println!("{controller}: cold {cold:.2} s, resumed {resumed:.2} s, bound {bound:.2} s");
            assert!(
                resumed <= limit * bound && resumed < cold - 0.1,
                "{controller}: resumed {resumed:.2} s, cold {cold:.2} s, limit {limit} x {bound:.2} s"
            );
        }
    });
}

/// The gateway is who sends: what the terminal remembers does not make it faster, and what
/// it remembers of one terminal is of no use to another.
#[test]
fn what_is_known_is_known_by_whom_and_of_whom() {
    in_virtual_time(async |clock| {
        let first = life(
            &clock,
            Choice::Satellite,
            Default::default(),
            &[SHORT, LONG, LONG],
        )
        .await;
        let [terminals, gateways] = first.paths;
        let known = |paths: &Paths, seed| paths.known(&identity(seed).fingerprint(), RTT);
        assert!(known(&gateways, TERMINAL_SEED).is_some());
        assert_eq!(known(&gateways, GATEWAY_SEED), None);
        assert_eq!(known(&gateways, 9), None);
        let second = life(
            &clock,
            Choice::Satellite,
            [terminals, Paths::default()],
            &[SHORT],
        )
        .await;
        assert_eq!(second.took[0], first.took[0], "as if nothing were known");
    });
}

/// A terminal whose gateway is away tries to reach it all the time, which is no use of the path.
#[test]
fn what_is_known_ages_while_the_gateway_cannot_be_reached() {
    in_virtual_time(async |clock| {
        let first = life(&clock, Choice::Cubic, Default::default(), &[LONG, LONG]).await;
        let [_, gateways] = first.paths;
        // As if the terminal had been told what the gateway knows.
        let saved = gateways.saved().into_iter().map(|saved| SavedPath {
            peer: identity(GATEWAY_SEED).fingerprint(),
            ..saved
        });
        let paths = Paths::restored(saved);
        let setup = Setup {
            paths: [paths.clone(), Paths::default()],
            ..Setup::default()
        };
        let (_network, socket, _nobody) = sockets(&clock, &setup.scenario);
        let (_terminal, keep) = Terminal::new(setup.connector(endpoint(&clock, socket, None)));
        let known = || paths.known(&identity(GATEWAY_SEED).fingerprint(), RTT);
        assert!(known().is_some());
        let hour = Duration::from_secs(3600);
        assert!(
            tokio::time::timeout(hour, keep).await.is_err(),
            "it goes on trying"
        );
        assert_eq!(known(), None);
    });
}
