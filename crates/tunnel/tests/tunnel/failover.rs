//! A terminal with two gateways: which of them it uses, and what becomes of flows.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::{
    GATEWAY, Internet, Setup, Stream, endpoint, identity, in_virtual_time, link, now, outage,
    sockets, stream_pair,
};
use bentpipe_link::Scenario;
use bentpipe_link::spec::Change;
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::gateway::policy::Unlimited;
use bentpipe_tunnel::gateway::{Configuration, Gateway, server_config};
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_units::{OneWayDelay, Span};
use bentpipe_vnet::clock::Clock;
use bentpipe_vnet::network::Network;
use bentpipe_vnet::plan::{LinkPlan, Towards};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const ORIGIN: &str = "93.184.216.34:80";
const SECOND: &str = "192.0.2.9:4433";
const SECOND_SEED: u8 = 7;

/// A terminal and its two gateways, whose origins are told apart.
struct Pair {
    terminal: Terminal,
    network: Network,
    setup: Setup,
    origins: [UnboundedReceiver<Stream>; 2],
    internets: [Internet; 2],
    tasks: Vec<JoinHandle<()>>,
}

impl Pair {
    fn start(clock: &Clock) -> Self {
        Self::over(clock, link("250 ms"))
    }

    fn over(clock: &Clock, scenario: Scenario) -> Self {
        let setup = Setup {
            scenario,
            ..Setup::default()
        };
        let (network, terminal_socket, _) = sockets(clock, &setup.scenario);
        let ours = endpoint(clock, terminal_socket, None);
        Self::with(clock, setup, network, [ours.clone(), ours])
    }

    /// The way to the first gateway is `links`' first, to the second its second.
    fn at_two_distances(clock: &Clock, links: [LinkPlan; 2]) -> Self {
        let network = Network::new(clock, &links, 1, NonZeroUsize::MIN);
        let ends = [("192.0.2.2:50000", 0), ("192.0.2.3:50000", 1)];
        let ends = ends.map(|(address, link)| {
            let socket = network.terminal(address.parse().unwrap(), &[link]);
            endpoint(clock, socket, None)
        });
        Self::with(clock, Setup::default(), network, ends)
    }

    fn with(clock: &Clock, setup: Setup, network: Network, ends: [noq::Endpoint; 2]) -> Self {
        let internets = [Internet::default(), Internet::default()];
        let origins = [internets[0].serve(ORIGIN), internets[1].serve(ORIGIN)];
        let [first, second] = ends;
        let first = setup.connector(first);
        let mut second = setup.connector(second);
        second.gateway = SECOND.parse().unwrap();
        second.gateway_keys = std::sync::Arc::new(identity(SECOND_SEED).fingerprint());
        let (terminal, keep) = Terminal::with_gateways(vec![first, second]);
        let keep = tokio::spawn(async move {
            keep.await;
        });
        let mut pair = Self {
            terminal,
            network,
            setup,
            origins,
            internets,
            tasks: vec![keep],
        };
        pair.start_gateway(clock, 0);
        pair.start_gateway(clock, 1);
        pair
    }

    fn start_gateway(&mut self, clock: &Clock, which: usize) {
        let (address, seed) = [
            (GATEWAY, crate::support::GATEWAY_SEED),
            (SECOND, SECOND_SEED),
        ][which];
        let socket = self.network.gateway(address.parse().unwrap());
        let list = self.setup.list.clone();
        let server = server_config(&identity(seed), list.clone(), &self.setup.transport);
        let gateway = Gateway::new(
            endpoint(clock, socket, Some(server.clone())),
            Configuration {
                server,
                registry: list,
                transport: self.setup.transport.clone(),
                egress: Egress::default(),
                dialler: self.internets[which].clone(),
                paths: Default::default(),
                ip: None,
                policies: std::sync::Arc::new(Unlimited::default()),
            },
        );
        self.tasks
            .push(tokio::spawn(async move { gateway.run().await }));
    }

    fn connect(&self) -> Stream {
        let (application, terminals_side) = stream_pair(256 * 1024);
        let terminal = self.terminal.clone();
        let target = ORIGIN.parse().unwrap();
        tokio::spawn(async move { terminal.carry(terminals_side, target).await });
        application
    }

    /// A request, and by which gateway it was answered.
    async fn request(&mut self) -> Option<usize> {
        let mut application = self.connect();
        application.write_all(b"?").await.ok()?;
        let [first, second] = &mut self.origins;
        let (which, mut served) = tokio::select! {
            served = first.recv() => (0, served?),
            served = second.recv() => (1, served?),
            _ = application.read_u8() => return None,
        };
        served.write_all(b"!").await.ok()?;
        application.read_u8().await.ok()?;
        Some(which)
    }
}

#[test]
fn when_the_gateway_dies_the_other_serves_new_requests_within_ten_seconds() {
    in_virtual_time(async |clock| {
        let mut pair = Pair::start(&clock);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(pair.request().await, Some(0), "the first that is listed");
        let mut open = pair.connect();
        open.write_all(b"?").await.unwrap();
        let _served = pair.origins[0].recv().await.unwrap();

        pair.network.remove(GATEWAY.parse().unwrap());
        let begin = now();
        let answered = loop {
            match timeout(Duration::from_secs(60), pair.request()).await {
                Ok(Some(which)) => break which,
                Ok(None) => {}
                Err(_) => panic!("no answer of either"),
            }
        };
        assert_eq!(answered, 1);
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(12), "{took:?}");
        open.read_u8().await.expect_err("the flow there was reset");
        let ended = begin.elapsed();
        assert!(ended < Duration::from_secs(20), "{ended:?}");
        let in_use: Vec<_> = pair.terminal.gateways().iter().map(|g| g.in_use).collect();
        assert_eq!(in_use, [false, true]);
    });
}

#[test]
fn with_the_first_dead_from_the_start_the_second_is_used() {
    in_virtual_time(async |clock| {
        let mut pair = Pair::start(&clock);
        pair.network.remove(GATEWAY.parse().unwrap());
        assert_eq!(pair.request().await, Some(1));
    });
}

/// Both are equally far: there is no reason to go back, however often one is measured.
#[test]
fn a_gateway_that_is_back_is_not_returned_to_unless_it_is_nearer() {
    in_virtual_time(async |clock| {
        let mut pair = Pair::start(&clock);
        sleep(Duration::from_secs(5)).await;
        pair.network.remove(GATEWAY.parse().unwrap());
        sleep(Duration::from_secs(30)).await;
        pair.start_gateway(&clock, 0);
        sleep(Duration::from_secs(300)).await;
        assert_eq!(pair.request().await, Some(1));
        let delays: Vec<_> = pair.terminal.gateways().iter().map(|g| g.delay).collect();
        assert!(delays.iter().all(Option::is_some), "{delays:?}");
    });
}

/// The link is out for both: nothing is moved, and nothing is lost.
#[test]
fn an_outage_moves_nothing() {
    in_virtual_time(async |clock| {
        let mut pair = Pair::over(&clock, outage("250 ms", "10 s", "20 s"));
        sleep(Duration::from_secs(5)).await;
        let mut open = pair.connect();
        open.write_all(b"?").await.unwrap();
        let mut served = pair.origins[0].recv().await.unwrap();
        sleep(Duration::from_secs(10)).await;
        open.write_all(b"!").await.unwrap();
        let mut both = [0; 2];
        served.read_exact(&mut both).await.unwrap();
        assert_eq!(&both, b"?!");
        assert_eq!(pair.request().await, Some(0));
    });
}

fn both(link: LinkPlan, at: Span, delay: u64) -> LinkPlan {
    let change = || Change {
        delay: Some(OneWayDelay::new(Span::from_millis(delay))),
        ..Change::default()
    };
    link.change(at, Towards::Terminal, change())
        .change(at, Towards::Gateway, change())
}

/// The second is nearer, until its way becomes longer; then it is nearer again, and dies.
#[test]
fn of_two_at_different_distances_the_nearer_is_used_and_flows_stay_where_they_are() {
    in_virtual_time(async |clock| {
        let second = both(
            LinkPlan::of(&link("50 ms")),
            Span::from_millis(400_000),
            450,
        );
        let second = both(second, Span::from_millis(1_000_000), 50);
        let links = [LinkPlan::of(&link("250 ms")), second];
        let mut pair = Pair::at_two_distances(&clock, links);
        sleep(Duration::from_secs(5)).await;
        let mut open = pair.connect();
        open.write_all(b"?").await.unwrap();
        let listed_first = pair.origins[0].recv();
        let mut served = timeout(Duration::from_secs(5), listed_first)
            .await
            .unwrap()
            .unwrap();

        sleep(Duration::from_secs(200)).await;
        assert_eq!(pair.request().await, Some(1), "it is nearer");
        let delays: Vec<_> = pair.terminal.gateways().iter().map(|g| g.delay).collect();
        let near = |delay: Option<Duration>, millis: u64| {
            delay.unwrap().abs_diff(Duration::from_millis(millis)) < Duration::from_millis(10)
        };
        assert!(near(delays[0], 500) && near(delays[1], 100), "{delays:?}");
        served.write_all(b"!").await.unwrap();
        assert_eq!(open.read_u8().await.unwrap(), b'!', "open flows stay");

        sleep(Duration::from_secs(500)).await;
        assert_eq!(pair.request().await, Some(0), "the other has moved away");
        sleep(Duration::from_secs(600)).await;
        assert_eq!(pair.request().await, Some(1), "it is back");

        pair.network.remove(SECOND.parse().unwrap());
        let begin = now();
        while pair.request().await != Some(0) {}
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(12), "{took:?}");
    });
}
