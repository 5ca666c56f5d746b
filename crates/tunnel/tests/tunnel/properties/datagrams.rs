//! Flows of datagrams of a drawn conversation: each datagram comes whole, once and in its own flow, or is lost and counted
//! where the tunnel drops it; those that go on the stream all come. When nothing disturbs any more, each flow goes on, or
//! has ended where it may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Event, Link, STUCK};
use crate::support::{DatagramEnd, World, now};
use bentpipe_tunnel::terminal::Unreachable;

/// Peers that echo. To the second go an application's QUIC, of which nothing goes on the stream.
const PEERS: [&str; 2] = ["93.184.216.34:5004", "93.184.216.34:443"];
/// Longer ones fit into no packet of the tunnel.
const LONGEST_FRAME: usize = 1472;
/// Bytes of a datagram that say what it is.
const HEAD: usize = 12;
/// When nothing disturbs any more, one of as many that are sent, a second apart, is answered.
const PROBES: u32 = 60;

/// Flows of one host that begin together.
#[derive(Debug, Clone)]
pub struct Calls {
    pub at_ms: u32,
    pub host: u8,
    pub count: u32,
    pub peer: usize,
    /// Of each flow, in turns of these sizes.
    pub datagrams: u32,
    pub sizes: Vec<usize>,
    pub every_ms: u32,
}

pub fn drawn() -> impl Strategy<Value = Vec<Calls>> {
    let sizes = prop_oneof![
        6 => HEAD..1200,
        2 => 1200..LONGEST_FRAME + 1,
        1 => LONGEST_FRAME + 1..65_508,
    ];
    let sizes = proptest::collection::vec(sizes, 1..4);
    let counts = prop_oneof![4 => 1u32..4, 1 => 4u32..60];
    let calls = (
        0u32..15_000,
        0u8..3,
        counts,
        0..PEERS.len(),
        1u32..200,
        sizes,
        0u32..300,
    )
        .prop_map(|(at_ms, host, count, peer, datagrams, sizes, every_ms)| {
            // As much as a slow link carries in half a minute.
            let mean = sizes.iter().sum::<usize>() / sizes.len();
            let most = u32::try_from(500_000 / mean).unwrap() / count;
            Calls {
                at_ms,
                host,
                count,
                peer,
                datagrams: datagrams.min(most).max(1),
                sizes,
                every_ms,
            }
        });
    proptest::collection::vec(calls, 0..5)
}

/// The datagram with `number` of `flow`: towards the peer, or back.
fn content(flow: u32, number: u32, back: bool, length: usize) -> Vec<u8> {
    let first = flow
        .wrapping_mul(31)
        .wrapping_add(number * 7 + u32::from(back));
    let length_and_way = u32::try_from(length).unwrap() << 1 | u32::from(back);
    let head = [flow, number, length_and_way];
    let mut content = head.map(u32::to_be_bytes).concat();
    let byte = |at: usize| super::byte(first as usize % 251 + at * at);
    content.extend((content.len()..length).map(byte));
    content
}

/// Flow and number of a datagram that is as it was sent.
fn read(datagram: &[u8], back: bool) -> Option<(u32, u32)> {
    let word = |at: usize| {
        Some(u32::from_be_bytes(
            datagram.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let (flow, number) = (word(0)?, word(4)?);
    (content(flow, number, back, datagram.len()) == datagram).then_some((flow, number))
}

/// What has come, by flow, and what was wrong.
#[derive(Debug, Default)]
struct Log {
    at_peer: BTreeMap<u32, BTreeSet<u32>>,
    back: BTreeMap<u32, BTreeSet<u32>>,
    sent: u64,
    ended: u64,
    flows: u32,
    wrong: Vec<String>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Log>>);

impl Shared {
    fn with<T>(&self, f: impl FnOnce(&mut Log) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    fn wrong(&self, what: String) {
        self.with(|log| log.wrong.push(what));
    }

    /// Takes what has come at one end of a flow.
    fn take(&self, datagram: &[u8], is_back: bool, of: &mut Option<u32>) -> Option<(u32, u32)> {
        let Some((flow, number)) = read(datagram, is_back) else {
            self.wrong(format!(
                "a datagram of {} bytes was altered",
                datagram.len()
            ));
            return None;
        };
        if *of.get_or_insert(flow) != flow {
            self.wrong(format!("a datagram of flow {flow} came to flow {of:?}"));
        }
        let is_new = self.with(|log| {
            let came = if is_back {
                &mut log.back
            } else {
                &mut log.at_peer
            };
            came.entry(flow).or_default().insert(number)
        });
        if !is_new {
            self.wrong(format!("datagram {number} of flow {flow} came twice"));
        }
        Some((flow, number))
    }
}

/// The datagrams of a conversation.
pub struct Conversation<'a> {
    world: &'a World,
    link: &'a Link,
    events: &'a [(u32, Event)],
    begin: Instant,
    shared: Shared,
}

/// An application's flow, when it is over or the conversation is.
struct Flow {
    id: u32,
    application: DatagramEnd,
    _carried: JoinHandle<Option<Unreachable>>,
}

impl<'a> Conversation<'a> {
    pub fn new(world: &'a World, link: &'a Link, events: &'a [(u32, Event)]) -> Self {
        let shared = Shared::default();
        for peer in PEERS {
            let (mut sockets, shared) = (world.internet.serve_udp(peer), shared.clone());
            tokio::spawn(async move {
                while let Some(socket) = sockets.recv().await {
                    let shared = shared.clone();
                    tokio::spawn(async move {
                        let mut of = None;
                        while let Some(datagram) = socket.receive().await {
                            if let Some((flow, number)) = shared.take(&datagram, false, &mut of) {
                                socket.send(&content(flow, number, true, datagram.len()));
                            }
                        }
                    });
                }
            });
        }
        Self {
            world,
            link,
            events,
            begin: now(),
            shared,
        }
    }

    /// Carries all of them; what was wrong.
    pub async fn all(&self, calls: &[Calls]) -> Vec<String> {
        let flows = calls
            .iter()
            .flat_map(|calls| (0..calls.count).map(move |_| self.one(calls)));
        let flows = join_all(flows).await;
        // What is on its way arrives.
        sleep(Duration::from_secs(60)).await;
        for flow in &flows {
            let mut of = Some(flow.id);
            let next = async || timeout(Duration::ZERO, flow.application.receive()).await;
            while let Ok(Some(datagram)) = next().await {
                self.shared.take(&datagram, true, &mut of);
            }
        }
        self.account();
        self.shared.with(|log| std::mem::take(&mut log.wrong))
    }

    /// Where the link has lost nothing, what did not come back was dropped, and counted.
    fn account(&self) {
        let lost = self
            .world
            .network
            .counters()
            .iter()
            .any(|(_, _, counters)| {
                // What is overtaken may be taken for lost, and the path for a narrower one: what the library holds then it
                // drops without a word.
                counters.dropped.total() + counters.corrupted + counters.reordered > 0
            });
        let (sent, back, ended) = self.shared.with(|log| {
            let back = log.back.values().map(|came| came.len() as u64).sum::<u64>();
            (log.sent, back, log.ended)
        });
        if lost || ended > 0 || !self.events.is_empty() {
            return;
        }
        let drops = [self.world.terminal.tally(), &self.world.at_gateway];
        let drops = drops.map(|tally| tally.snapshot().dropped);
        let counted: u64 = drops.iter().flat_map(BTreeMap::values).sum();
        if sent != back + counted {
            self.shared.wrong(format!(
                "of {sent} datagrams {back} came back, dropped {drops:?}"
            ));
        }
    }

    /// One flow, until it goes on with nothing to disturb it.
    async fn one(&self, calls: &Calls) -> Flow {
        sleep_until(self.begin + Duration::from_millis(calls.at_ms.into())).await;
        let quiet = self.begin + Duration::from_millis(self.link.quiet_ms(self.events).into());
        let (flow, ended) = self.flow(calls, calls.datagrams, quiet).await;
        let Some((told, answered)) = ended else {
            return flow;
        };
        if !self.link.excuses(calls.at_ms, answered, self.events) {
            self.shared.wrong(format!(
                "{calls:?} ended, answered {answered}, told {told:?}"
            ));
        }
        self.shared.with(|log| log.ended += 1);
        sleep_until(quiet).await;
        // The application's next datagram begins another.
        let (flow, ended) = self.flow(calls, 0, quiet).await;
        if let Some((told, answered)) = ended {
            self.shared.wrong(format!(
                "{calls:?}: the next ended, answered {answered}, told {told:?}"
            ));
        }
        flow
    }

    /// Sends `datagrams`, and then small ones until one is answered and all long ones have come, behind which they wait; nothing of those
    /// before `quiet`. If the flow ends: what the application is told, and whether it was answered before.
    async fn flow(
        &self,
        calls: &Calls,
        datagrams: u32,
        quiet: Instant,
    ) -> (Flow, Option<(Option<Unreachable>, bool)>) {
        let id = self.shared.with(|log| {
            log.flows += 1;
            log.flows
        });
        let (application, carried) = self.world.connect_udp(calls.host, PEERS[calls.peer]);
        let send = |number: u32, size: usize| {
            self.shared.with(|log| log.sent += 1);
            application.send(&content(id, number, false, size));
        };
        let came = |number: u32| {
            self.shared
                .with(|log| log.back.get(&id).is_some_and(|back| back.contains(&number)))
        };
        let size = |number: u32| calls.sizes[number as usize % calls.sizes.len()];
        let on_the_stream = |number: &u32| calls.peer == 0 && size(*number) > LONGEST_FRAME;
        let sending = async {
            for number in 0..datagrams {
                send(number, size(number));
                sleep(Duration::from_millis(calls.every_ms.into())).await;
            }
            sleep_until(quiet).await;
            let since = now();
            let mut free_to_pass = 0;
            for probe in datagrams.. {
                send(probe, HEAD);
                sleep(Duration::from_secs(1)).await;
                let missing = (0..datagrams)
                    .filter(on_the_stream)
                    .find(|number| !came(*number));
                let answered = (datagrams..=probe).any(came);
                if answered && missing.is_none() {
                    return;
                }
                free_to_pass += u32::from(missing.is_none());
                if !answered && free_to_pass > PROBES {
                    return self.shared.wrong(format!("{calls:?} does not go on"));
                }
                if since.elapsed() > STUCK {
                    return self
                        .shared
                        .wrong(format!("{calls:?}: {missing:?} is missing"));
                }
            }
        };
        let receiving = async {
            let mut of = Some(id);
            while let Some(datagram) = application.receive().await {
                self.shared.take(&datagram, true, &mut of);
            }
        };
        let is_over = tokio::select! {
            () = sending => false,
            () = receiving => true,
        };
        if !is_over {
            let flow = Flow {
                id,
                application,
                _carried: carried,
            };
            return (flow, None);
        }
        let told = carried.await.unwrap();
        let answered = self.shared.with(|log| log.back.contains_key(&id));
        let carried = tokio::spawn(async { None });
        let flow = Flow {
            id,
            application,
            _carried: carried,
        };
        (flow, Some((told, answered)))
    }
}
