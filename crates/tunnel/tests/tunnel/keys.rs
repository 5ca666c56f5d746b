//! Sessions with one key beside each other, and keys that change while sessions are open.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{
    GATEWAY_SEED, Internet, Setup, Stream, TERMINAL_SEED, endpoint, identity, in_virtual_time, now,
    sockets, stream_pair,
};
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::gateway::policy::Unlimited;
use bentpipe_tunnel::gateway::{Configuration, Gateway, server_config};
use bentpipe_tunnel::identity::{Fingerprint, GatewayKeys, Identity};
use bentpipe_tunnel::terminal::{Connector, Terminal};
use bentpipe_tunnel::wire::notices::Ask;
use bentpipe_vnet::clock::Clock;
use bentpipe_vnet::network::Network;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const ORIGIN: &str = "93.184.216.34:80";
const NEW_SEED: u8 = 77;

/// A gateway, and terminals that come to it.
struct World {
    clock: Clock,
    network: Network,
    setup: Setup,
    gateway: Arc<Gateway<Internet>>,
    origin: UnboundedReceiver<Stream>,
    tasks: Vec<JoinHandle<()>>,
}

impl World {
    fn start(clock: &Clock) -> Self {
        let setup = Setup::default();
        let (network, _, gateway_socket) = sockets(clock, &setup.scenario);
        let origin = setup.internet.serve(ORIGIN);
        let server = server_config(
            &identity(GATEWAY_SEED),
            setup.list.clone(),
            &setup.transport,
        );
        let gateway = Gateway::new(
            endpoint(clock, gateway_socket, Some(server.clone())),
            Configuration {
                server,
                registry: setup.list.clone(),
                transport: setup.transport.clone(),
                egress: Egress::default(),
                dialler: setup.internet.clone(),
                paths: Default::default(),
                ip: None,
                policies: Arc::new(Unlimited::default()),
            },
        );
        let serving = gateway.clone();
        Self {
            clock: clock.clone(),
            network,
            setup,
            gateway,
            origin,
            tasks: vec![tokio::spawn(async move { serving.run().await })],
        }
    }

    fn connector(&self, address: &str, instance: u64) -> Connector<Internet> {
        let socket = self.network.terminal(address.parse().unwrap(), &[0]);
        let endpoint = endpoint(&self.clock, socket, None);
        Connector {
            instance: Some(instance),
            ..self.setup.connector(endpoint)
        }
    }

    /// A terminal at `address`, the process `instance`.
    fn terminal(
        &mut self,
        address: &str,
        instance: u64,
        change: impl FnOnce(&mut Connector<Internet>),
    ) -> Terminal {
        let mut connector = self.connector(address, instance);
        change(&mut connector);
        let (terminal, keep) = Terminal::new(connector);
        self.tasks.push(tokio::spawn(async move {
            keep.await;
        }));
        terminal
    }

    /// An application's connection by way of `terminal`, and its other end.
    async fn flow(&mut self, terminal: &Terminal) -> (Stream, Stream) {
        let (mut application, terminals_side) = stream_pair(256 * 1024);
        let terminal = terminal.clone();
        tokio::spawn(async move {
            terminal
                .carry(terminals_side, ORIGIN.parse().unwrap())
                .await;
        });
        application.write_all(b"?").await.unwrap();
        let mut served = self.origin.recv().await.unwrap();
        assert_eq!(served.read_u8().await.unwrap(), b'?');
        (application, served)
    }

    /// Where sessions come from.
    fn sessions(&self) -> Vec<String> {
        let sessions = self.gateway.sessions().into_iter();
        let address =
            |connection: &_| bentpipe_tunnel::session::remote_address(connection).unwrap();
        let addresses = sessions.map(|(_, connection)| address(&connection).to_string());
        sorted(addresses.collect())
    }

    /// Where others have sessions from with the key of the session from `address`.
    fn others(&self, address: &str) -> Vec<String> {
        let sessions = self.gateway.sessions().into_iter();
        let of = |connection: &_| bentpipe_tunnel::session::remote_address(connection).unwrap();
        let mut here = sessions.filter(|(_, connection)| of(connection).to_string() == address);
        let (key, connection) = here.next().unwrap();
        let others = self.gateway.others_with_key(&key, &connection);
        sorted(others.iter().map(ToString::to_string).collect())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn sorted(mut addresses: Vec<String>) -> Vec<String> {
    addresses.sort();
    addresses
}

async fn answered((application, served): &mut (Stream, Stream)) {
    served.write_all(b"!").await.unwrap();
    assert_eq!(application.read_u8().await.unwrap(), b'!');
}

const ONE: &str = "192.0.2.21:50000";
const OTHER: &str = "192.0.2.22:50000";
const THIRD: &str = "192.0.2.23:50000";

#[test]
fn two_machines_with_one_key_both_work_and_both_are_told() {
    in_virtual_time(async |clock| {
        let mut world = World::start(&clock);
        let one = world.terminal(ONE, 1, |_| {});
        sleep(Duration::from_secs(5)).await;
        let mut early = world.flow(&one).await;
        let other = world.terminal(OTHER, 2, |_| {});
        // A third speaks by itself, to see what it is told.
        let third = world.connector(THIRD, 3).open().await.unwrap();
        let ask = Ask {
            instance: Some(3),
            ..Ask::default()
        };
        let first = third.notices(&ask).await.unwrap();
        assert!(
            first.same_key.is_empty(),
            "whether they live is not known yet"
        );
        let ask = Ask {
            seen: Some(first.revision),
            ..ask
        };
        let told = timeout(Duration::from_secs(15), third.notices(&ask));
        let told = told.await.unwrap().unwrap();
        assert_eq!(told.same_key.len(), 2);

        sleep(Duration::from_secs(30)).await;
        let mut late = world.flow(&other).await;
        answered(&mut early).await;
        answered(&mut late).await;
        assert_eq!(world.sessions(), [ONE, OTHER, THIRD]);
        assert_eq!(world.others(ONE), [OTHER, THIRD]);
        assert_eq!(world.others(OTHER), [ONE, THIRD]);
        third.close();
    });
}

#[test]
fn two_ways_of_one_terminal_stay_open_beside_each_other() {
    in_virtual_time(async |clock| {
        let mut world = World::start(&clock);
        let satellite = world.terminal(ONE, 1, |_| {});
        let terrestrial = world.terminal(OTHER, 1, |_| {});
        sleep(Duration::from_secs(30)).await;
        let mut flows = [world.flow(&satellite).await, world.flow(&terrestrial).await];
        for flow in &mut flows {
            answered(flow).await;
        }
        assert_eq!(world.sessions().len(), 2);
        assert!(world.others(OTHER).is_empty(), "it is one machine");
    });
}

#[test]
fn the_session_of_a_terminal_that_was_killed_is_ended_for_its_next_one() {
    in_virtual_time(async |clock| {
        let mut world = World::start(&clock);
        let killed = world.terminal(ONE, 1, |_| {});
        sleep(Duration::from_secs(5)).await;
        world.network.remove(ONE.parse().unwrap());
        drop(killed);
        let _next = world.terminal(OTHER, 2, |_| {});
        sleep(Duration::from_secs(15)).await;
        assert_eq!(world.sessions(), [OTHER]);
        assert!(world.others(OTHER).is_empty());
    });
}

#[test]
fn a_terminal_has_no_more_than_eight_sessions() {
    in_virtual_time(async |clock| {
        let mut world = World::start(&clock);
        let mut terminals = Vec::new();
        for number in 31..41 {
            terminals.push(world.terminal(&format!("192.0.2.{number}:50000"), 1, |_| {}));
            sleep(Duration::from_secs(3)).await;
            assert!(world.sessions().len() <= 8);
        }
    });
}

/// What a terminal knows of its gateway's keys, in memory.
#[derive(Debug)]
struct Known(Mutex<Vec<Fingerprint>>);

impl GatewayKeys for Known {
    fn accepted(&self) -> Vec<Fingerprint> {
        self.0.lock().unwrap().clone()
    }

    fn shown(&self, key: &Fingerprint) {
        let mut known = self.0.lock().unwrap();
        if known.contains(key) {
            *known = vec![*key];
        }
    }

    fn announced(&self, next: Fingerprint) -> io::Result<()> {
        let mut known = self.0.lock().unwrap();
        if !known.contains(&next) {
            known.push(next);
        }
        Ok(())
    }
}

#[test]
fn the_gateway_changes_its_key_and_no_flow_is_lost() {
    in_virtual_time(async |clock| {
        let mut world = World::start(&clock);
        let (old, new) = (identity(GATEWAY_SEED), identity(NEW_SEED));
        let known = Arc::new(Known(Mutex::new(vec![old.fingerprint()])));
        let keys = known.clone();
        let terminal = world.terminal(ONE, 1, |connector| connector.gateway_keys = keys);
        sleep(Duration::from_secs(5)).await;
        let mut flow = world.flow(&terminal).await;

        world.gateway.announce(Some(new.fingerprint()));
        sleep(Duration::from_secs(3)).await;
        assert_eq!(known.accepted(), [old.fingerprint(), new.fingerprint()]);
        let told = world.setup.list.known.lock().unwrap().clone();
        let key = identity(TERMINAL_SEED).fingerprint();
        assert_eq!(told, [(key, new.fingerprint())]);

        let server = server_config(&new, world.setup.list.clone(), &world.setup.transport);
        world.gateway.set_server(server);
        world.gateway.announce(None);
        sleep(Duration::from_secs(3)).await;
        answered(&mut flow).await;

        // The next session sees the new key, and the old one is accepted no longer.
        let session = terminal.session().borrow().clone().unwrap();
        session.close();
        sleep(Duration::from_secs(10)).await;
        let mut flow = world.flow(&terminal).await;
        answered(&mut flow).await;
        let session = terminal.session().borrow().clone().unwrap();
        let shown = Fingerprint::of_peer(session.connection());
        assert_eq!(shown, Some(new.fingerprint()));
        assert_eq!(known.accepted(), [new.fingerprint()]);
    });
}

#[test]
fn a_terminal_changes_its_key_and_no_flow_is_lost() {
    in_virtual_time(async |clock| {
        let mut world = World::start(&clock);
        let old = identity(TERMINAL_SEED).fingerprint();
        let new = Identity::from_seed(&[NEW_SEED; 32]);
        let (renew, renewed) = watch::channel(Arc::new(identity(TERMINAL_SEED)));
        let terminal = world.terminal(ONE, 1, |connector| connector.identity = renewed);
        sleep(Duration::from_secs(5)).await;
        let mut flow = world.flow(&terminal).await;
        let session = terminal.session().borrow().clone().unwrap();
        session.renew(&new.fingerprint()).await.unwrap();

        let key = new.fingerprint();
        let began = now();
        renew.send_replace(Arc::new(new));
        sleep(Duration::from_secs(5)).await;
        let mut next = world.flow(&terminal).await;
        answered(&mut next).await;
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(terminal.session().borrow().clone().unwrap().identity(), key);
        // What was open goes on in the old session, whose key is good until it ends.
        answered(&mut flow).await;
        assert!(world.setup.list.terminals.lock().unwrap().contains(&old));
        drop(flow);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(*world.setup.list.terminals.lock().unwrap(), [key]);
        assert_eq!(world.sessions().len(), 1);
        answered(&mut next).await;
    });
}
