//! UDP sockets in memory for the async runtime, on a [graph](crate::graph) of links.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bentpipe_link::Counters;
use bentpipe_units::Time;
use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, EcnCodepoint, UdpSender, udp};

use crate::clock::{Alarm, Clock, Timer};
use crate::graph::{Datagram, Graph, HostId};
use crate::host::Host;
use crate::plan::{LinkPlan, Towards};
use crate::timer::{Turn, Turns};

/// What a socket holds that is not read, payload bytes, as the daemons ask of the kernel.
const SOCKET_BUFFER: usize = 4 << 20;

/// A graph of links with sockets at its ends. Clones are the same network.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    clock: Clock,
    segments: NonZeroUsize,
    state: Mutex<State>,
}

struct State {
    graph: Graph,
    /// Goes off when something may have arrived.
    alarm: Alarm,
    sockets: BTreeMap<HostId, Socket>,
    /// Datagrams that a full socket had no room for.
    overflowed: u64,
}

#[derive(Debug)]
struct Socket {
    address: SocketAddr,
    inbox: VecDeque<Datagram>,
    held: usize,
    reader: Option<Waker>,
    /// What it sends reaches nobody.
    gone: bool,
    /// Whose programs do not run whenever something arrives.
    late: Option<Late>,
}

/// A socket's machine that is not an ideal one.
#[derive(Debug)]
struct Late {
    host: Arc<Mutex<Host>>,
    /// When the reader is woken up.
    alarm: Alarm,
    woken: Woken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// Nothing has arrived.
    No,
    /// The alarm is set.
    Soon,
    /// It reads until nothing is left.
    Yes,
}

impl Network {
    /// A network of `links`, in which everything random derives from `seed`. Sockets
    /// hand over up to `segments` datagrams at once (generic segmentation offload); each
    /// is a packet of its own on the links.
    pub fn new(clock: &Clock, links: &[LinkPlan], seed: u64, segments: NonZeroUsize) -> Self {
        Self(Arc::new_cyclic(|network: &Weak<Inner>| {
            let network = network.clone();
            Inner {
                clock: clock.clone(),
                segments,
                state: Mutex::new(State {
                    graph: Graph::new(links, seed, Turns::default()),
                    alarm: clock.alarm(move |now| {
                        if let Some(network) = network.upgrade() {
                            lock(&network).receive(now);
                        }
                    }),
                    sockets: BTreeMap::new(),
                    overflowed: 0,
                }),
            }
        }))
    }

    /// A gateway's socket at `address`.
    pub fn gateway(&self, address: SocketAddr) -> MemorySocket {
        let host = self.lock().graph.gateway(address);
        self.socket(host, address)
    }

    /// A terminal's socket at `address`, behind the links of `path`, from the gateways on.
    ///
    /// # Panics
    /// If `path` is empty or names a link that is not there.
    pub fn terminal(&self, address: SocketAddr, path: &[usize]) -> MemorySocket {
        let host = self.lock().graph.terminal(address, path);
        self.socket(host, address)
    }

    fn socket(&self, host: HostId, address: SocketAddr) -> MemorySocket {
        let socket = Socket {
            address,
            inbox: VecDeque::new(),
            held: 0,
            reader: None,
            gone: false,
            late: None,
        };
        self.lock().sockets.insert(host, socket);
        MemorySocket {
            network: self.clone(),
            host,
        }
    }

    /// The terminal at `from` has the address `to` from now on, behind `path`. What is on
    /// its way to the old address finds nobody.
    pub fn r#move(&self, from: SocketAddr, to: SocketAddr, path: &[usize]) {
        let state = &mut *self.lock();
        if let Some(host) = state.graph.at(from) {
            state.graph.remove_address(from);
            state.graph.add_address(host, to);
            state.graph.reroute(host, path);
            if let Some(socket) = state.sockets.get_mut(&host) {
                socket.address = to;
            }
        }
    }

    /// The machine at `address` is gone, without a word: nothing reaches it, and what it
    /// sends reaches nobody. Another may be put there.
    pub fn remove(&self, address: SocketAddr) {
        let state = &mut *self.lock();
        if let Some(host) = state.graph.at(address) {
            state.graph.remove_address(address);
            if let Some(socket) = state.sockets.get_mut(&host) {
                socket.gone = true;
            }
        }
    }

    /// What became of the packets of each direction: its link's number, where it leads, and
    /// the counts.
    pub fn counters(&self) -> Vec<(usize, Towards, Counters)> {
        self.lock().graph.counters().collect()
    }

    /// Datagrams that were longer than the network takes, went to nobody, or found a socket
    /// full.
    pub fn undeliverable(&self) -> u64 {
        let state = self.lock();
        state.graph.undeliverable() + state.overflowed
    }

    /// Puts a datagram on its way that claims to be from `from` and comes from where
    /// `socket` is.
    pub fn inject(&self, socket: SocketAddr, from: SocketAddr, to: SocketAddr, payload: Vec<u8>) {
        let mut state = self.lock();
        if let Some(host) = state.graph.at(socket) {
            let now = self.0.clock.now();
            state.send(now, host, Datagram::new(from, to, &payload));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

fn lock(inner: &Inner) -> MutexGuard<'_, State> {
    inner.state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn send(&mut self, now: Time, host: HostId, datagram: Datagram) {
        self.graph.handle_send(now, host, datagram);
        self.set_alarm();
    }

    /// Takes what has arrived by `now` to its socket.
    fn receive(&mut self, now: Time) {
        while let Some((host, datagram)) = self.graph.poll_arrival(Turn::last(now)) {
            let Some(socket) = self.sockets.get_mut(&host) else {
                continue;
            };
            if socket.held + datagram.payload.len() > SOCKET_BUFFER {
                self.overflowed += 1;
                continue;
            }
            socket.held += datagram.payload.len();
            socket.inbox.push_back(datagram);
            socket.wake(now);
        }
        self.set_alarm();
    }

    fn set_alarm(&mut self) {
        let next = self.graph.poll_timeout();
        self.alarm.set(next.map(|turn| turn.at));
    }

    fn socket(&mut self, host: HostId) -> &mut Socket {
        (self.sockets.get_mut(&host)).expect("a host's socket stays as long as its network")
    }
}

impl Socket {
    /// Something has arrived.
    fn wake(&mut self, now: Time) {
        match &mut self.late {
            Some(late) if late.woken == Woken::No => {
                late.woken = Woken::Soon;
                late.alarm.set(Some(guard(&late.host).arrival(now)));
            }
            Some(_) => {}
            None => self.wake_reader(),
        }
    }

    /// The machine's alarm: it runs, unless it stalls.
    fn runs(&mut self, now: Time) {
        if let Some(late) = &mut self.late {
            let runs = guard(&late.host).runs(now);
            if runs > now {
                late.alarm.set(Some(runs));
                return;
            }
            late.woken = Woken::Yes;
        }
        self.wake_reader();
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Whether its reader runs.
    fn is_awake(&self) -> bool {
        (self.late.as_ref()).is_none_or(|late| late.woken == Woken::Yes)
    }

    /// Its reader has read `count` datagrams.
    fn read(&mut self, now: Time, count: usize) {
        if let Some(late) = &mut self.late {
            guard(&late.host).spend(now, count as u64);
            if self.inbox.is_empty() && late.woken == Woken::Yes {
                late.woken = Woken::No;
            }
        }
    }
}

fn guard(host: &Mutex<Host>) -> MutexGuard<'_, Host> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Network")
    }
}

/// A UDP socket of a [`Network`].
#[derive(Debug)]
pub struct MemorySocket {
    network: Network,
    host: HostId,
}

impl MemorySocket {
    /// The socket on the machine that `clock` is on.
    #[must_use]
    pub fn on(self, clock: &Clock) -> Self {
        if let Some(host) = clock.host() {
            let (network, id) = (Arc::downgrade(&self.network.0), self.host);
            let alarm = clock.alarm(move |now| {
                if let Some(network) = network.upgrade() {
                    lock(&network).socket(id).runs(now);
                }
            });
            let woken = Woken::No;
            self.network.lock().socket(self.host).late = Some(Late { host, alarm, woken });
        }
        self
    }

    /// Its machine, unless it is an ideal one.
    fn late_host(&self) -> Option<Arc<Mutex<Host>>> {
        let mut state = self.network.lock();
        (state.socket(self.host).late.as_ref()).map(|late| late.host.clone())
    }
}

#[derive(Debug)]
struct MemorySender {
    network: Network,
    host: HostId,
    /// The machine that it costs time, and what waits for that.
    late: Option<(Arc<Mutex<Host>>, Timer)>,
}

impl AsyncUdpSocket for MemorySocket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        let timer = || self.network.0.clock.timer();
        Box::pin(MemorySender {
            network: self.network.clone(),
            host: self.host,
            late: self.late_host().map(|host| (host, timer())),
        })
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let now = self.network.0.clock.now();
        let mut state = self.network.lock();
        let socket = state.socket(self.host);
        if !socket.is_awake() {
            socket.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            let Some(datagram) = socket.inbox.pop_front() else {
                break;
            };
            let len = datagram.payload.len();
            socket.held -= len;
            buffer[..len].copy_from_slice(&datagram.payload);
            *meta = RecvMeta::default();
            meta.addr = datagram.from;
            meta.len = len;
            meta.stride = len;
            meta.ecn = (datagram.ecn).and_then(|ecn| udp::EcnCodepoint::from_bits(ecn as u8));
            count += 1;
        }
        socket.read(now, count);
        if count == 0 {
            socket.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.network.lock().socket(self.host).address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl UdpSender for MemorySender {
    fn poll_send(
        self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let now = self.network.0.clock.now();
        if let Some((host, timer)) = &self.late {
            let mut host = guard(host);
            let runs = host.runs(now).max(host.spend(now, 0));
            // The QUIC library does not wait with answers that belong to no connection: its waker is none. The
            // kernel's queue has room for them.
            let waits = !context.waker().data().is_null();
            if runs > now && waits {
                timer.set(Some(runs));
                return timer.poll_fired(context).map(Ok);
            }
            host.spend(now, 1);
        }
        let mut state = self.network.lock();
        let socket = state.socket(self.host);
        if socket.gone {
            return Poll::Ready(Ok(()));
        }
        let from = socket.address;
        let ecn = (transmit.ecn).and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len());
        // A datagram may be empty, a segment not.
        let empty = transmit.contents.is_empty().then_some(&[][..]);
        for payload in empty
            .into_iter()
            .chain(transmit.contents.chunks(segment.max(1)))
        {
            let datagram = Datagram::new(from, transmit.destination, payload).with_ecn(ecn);
            state.send(now, self.host, datagram);
        }
        Poll::Ready(Ok(()))
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        let segments = self.network.0.segments;
        match &self.late {
            Some((host, _)) => segments.min(guard(host).batch()),
            None => segments,
        }
    }
}
