//! Connections that are held back until their origin has answered.
//!
//! Their first packet (SYN) is dropped by a rule of the terminal's table, which hands the terminal
//! a copy ([`nflog`]). The gateway is asked for the connection. When the origin accepts, the same
//! packet is sent to the listener of transparent ingress by way of loopback ([`raw`]), and the
//! connection that is accepted there belongs to the flow that stands already. When it does not,
//! the application is told so in the origin's name: by RST, or by ICMP. Without a terminal nothing
//! is answered.
//!
//! Which connections these are: those to certain ports, whose servers speak first, so that nothing
//! is lost by waiting; and those to destinations that have refused lately ([`refused`]).

mod nflog;
mod raw;
pub(super) mod refused;
mod table;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use bentpipe_tunnel::flow::packet::Why;
use bentpipe_tunnel::flow::syn::Syn;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_tunnel::wire::proxy_status::{ErrorKind, Refusal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::tcp::TcpFlow;
use nflog::Log;
use table::{Key, Table};

/// Copies that wait to be looked at; more are lost, as any packet may be.
const COPIES: usize = 1024;
/// A connection that was let in is accepted within this: its sender has to answer once.
const ARRIVAL: Duration = Duration::from_secs(10);
/// A first packet that comes again so long after it was let in was not: something drops it on its
/// way to the listener.
const LOST: Duration = Duration::from_millis(500);

/// Why connections cannot be held back.
#[derive(Debug, thiserror::Error)]
pub enum HeldError {
    /// Copies of packets are not to be had.
    #[error("copies of first packets cannot be had from the kernel's nfnetlink_log: {0}")]
    Log(io::Error),
    /// Packets cannot be sent.
    #[error("packets cannot be sent as they are, which needs CAP_NET_RAW: {0}")]
    Raw(io::Error),
}

/// The connections that are held back. Clones are the same.
#[derive(Debug, Clone)]
pub struct Held(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    mark: u32,
    open: Mutex<Table<Waiting>>,
    /// That connections do not arrive is told once.
    lost: Once,
    changes: mpsc::Sender<refused::Change>,
}

/// A connection of which the application has not heard yet.
#[derive(Debug)]
struct Waiting {
    /// Its first packet, the latest.
    syn: Syn,
    /// When it was let in.
    let_in: Option<Instant>,
    /// Who waits for it to be accepted.
    give: oneshot::Sender<TcpFlow>,
    /// Who asks the gateway for it.
    asks: AbortHandle,
}

/// The copies of first packets, and what becomes of refused destinations.
#[derive(Debug)]
pub struct Source {
    port: u16,
    log: Log,
    changes: mpsc::Receiver<refused::Change>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Log")
    }
}

/// Prepares to hold back connections that the rules of `port` drop and log to the group of that
/// number.
pub(super) fn open(port: u16, mark: u32) -> Result<(Held, Source), HeldError> {
    raw::check().map_err(HeldError::Raw)?;
    let log = Log::open(port).map_err(HeldError::Log)?;
    let (send, changes) = mpsc::channel(refused::WAITING);
    let held = Held(Arc::new(Shared {
        mark,
        open: Mutex::default(),
        lost: Once::new(),
        changes: send,
    }));
    Ok((held, Source { port, log, changes }))
}

/// Checks that connections can be held back, without doing so.
pub(crate) fn check() -> Result<(), HeldError> {
    raw::check().map_err(HeldError::Raw)?;
    // Of no terminal: this is no port.
    Log::open(0).map(|_| ()).map_err(HeldError::Log)
}

impl Held {
    /// Serves first packets from `source`, for ever; `by_name`: the gateway is asked by name for
    /// those whose client has asked for the name.
    pub async fn serve(self, source: Source, by_name: bool, terminal: Terminal) -> io::Error {
        let Source { port, log, changes } = source;
        let (send, mut copies) = mpsc::channel(COPIES);
        let thread = std::thread::Builder::new().name("first packets".into());
        let reader = thread.spawn(move || {
            loop {
                let packets = match log.receive() {
                    Ok(packets) => packets,
                    Err(error) => return error,
                };
                for packet in packets {
                    if let Err(mpsc::error::TrySendError::Closed(_)) = send.try_send(packet) {
                        return io::ErrorKind::BrokenPipe.into();
                    }
                }
            }
        });
        let reader = match reader {
            Ok(reader) => reader,
            Err(error) => return error,
        };
        let serve = async {
            while let Some(packet) = copies.recv().await {
                if let Some(syn) = Syn::read(&packet) {
                    self.begin(syn, by_name, &terminal);
                }
            }
        };
        tokio::select! {
            () = serve => {}
            () = refused::keep(port, changes) => {}
        }
        reader
            .join()
            .unwrap_or_else(|_| io::Error::other("the thread has failed"))
    }

    fn begin(&self, syn: Syn, by_name: bool, terminal: &Terminal) {
        let key = (syn.client, syn.destination);
        let mut open = self.lock();
        if let Some(waiting) = open.get_mut(&key) {
            if waiting.let_in.is_some_and(|at| at.elapsed() > LOST) {
                self.0.lost.call_once(|| tracing::warn!(
                    client = %key.0, destination = %key.1,
                    "a connection that was held back does not reach the terminal: an input chain drops packets with mark {:#x} that come in by lo; let them in, or set ingress.transparent.after_origin = []",
                    self.0.mark
                ));
            }
            waiting.syn = syn;
            return;
        }
        if !open.has_room_for(key.0.ip()) {
            tracing::debug!(client = %key.0, destination = %key.1, "too many connections of this host wait for their origins");
            return;
        }
        let (give, socket) = oneshot::channel();
        let (held, terminal) = (self.clone(), terminal.clone());
        let asks = tokio::spawn(async move { held.carry(key, socket, by_name, terminal).await });
        let waiting = Waiting {
            syn,
            let_in: None,
            give,
            asks: asks.abort_handle(),
        };
        if let Some((gone, waiting)) = open.insert(key, waiting) {
            waiting.asks.abort();
            tracing::debug!(client = %gone.0, destination = %gone.1, "gives way: too many connections wait for their origins");
        }
    }

    async fn carry(
        &self,
        key: Key,
        socket: oneshot::Receiver<TcpFlow>,
        by_name: bool,
        terminal: Terminal,
    ) {
        let (client, destination) = key;
        let mut target = Target::from(destination);
        if by_name {
            target = terminal.named(client.ip(), target);
        }
        let (told, heard) = oneshot::channel();
        let accepted = async {
            let accepted = tokio::time::timeout(ARRIVAL, socket).await;
            accepted
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
                .map_err(io::Error::other)
        };
        let answer = async {
            match heard.await {
                Ok(Ok(())) => {
                    self.let_in(&key);
                    self.note(destination, false);
                }
                Ok(Err(refusal)) => {
                    self.refuse(&key, &refusal);
                    self.refused(destination, &refusal);
                }
                // There is no place for another flow.
                Err(_) => drop(self.lock().remove(&key)),
            }
        };
        tokio::join!(
            terminal.carry_accepted(client.ip(), target, told, accepted),
            answer
        );
        // Let in, but never accepted: whoever waited for it is gone, and the place with it.
        (self.lock()).remove_if(&key, |waiting| waiting.give.is_closed());
    }

    /// Lets the connection reach the listener.
    fn let_in(&self, key: &Key) {
        let mut open = self.lock();
        let Some(waiting) = open.get_mut(key) else {
            return;
        };
        waiting.let_in = Some(Instant::now());
        let sent = raw::send(waiting.syn.packet(), key.1.ip(), Some(self.0.mark));
        if let Err(error) = sent {
            open.remove(key);
            tracing::warn!(client = %key.0, destination = %key.1, "a connection that was held back cannot be let in: {error}");
        }
    }

    /// Tells the application that the connection is not to be had, and why.
    fn refuse(&self, key: &Key, refusal: &Refusal) {
        let Some(Waiting { syn, .. }) = self.lock().remove(key) else {
            return;
        };
        let packet = match Answer::to(refusal.kind) {
            Some(Answer::Reset) => syn.refused(),
            Some(Answer::Icmp(why)) => syn.unreachable(why),
            None => None,
        };
        if let Some(packet) = packet
            && let Err(error) = raw::send(&packet, key.0.ip(), None)
        {
            tracing::debug!(client = %key.0, destination = %key.1, "not told: {error}");
        }
    }

    /// Who waits for the connection of `client` to `destination`, which was accepted.
    pub(crate) fn waiting(
        &self,
        client: SocketAddr,
        destination: SocketAddr,
    ) -> Option<oneshot::Sender<TcpFlow>> {
        let waiting = self.lock().remove(&(client, destination));
        waiting.map(|waiting| waiting.give)
    }

    /// Remembers that `destination` has refused a connection, if the refusal is one.
    pub(crate) fn refused(&self, destination: SocketAddr, refusal: &Refusal) {
        if Answer::to(refusal.kind).is_some() {
            self.note(destination, true);
        }
    }

    fn note(&self, destination: SocketAddr, refused: bool) {
        // Should it be forgotten, an application sees a reset where it could see a refusal.
        let _ = self.0.changes.try_send((destination, refused));
    }

    fn lock(&self) -> MutexGuard<'_, Table<Waiting>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an application is told in the origin's name.
enum Answer {
    Reset,
    Icmp(Why),
}

impl Answer {
    /// Nothing: it is not the destination's doing, and its sender may try again.
    fn to(kind: ErrorKind) -> Option<Self> {
        match kind {
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionTerminated => Some(Self::Reset),
            ErrorKind::DestinationIpProhibited => Some(Self::Icmp(Why::Prohibited)),
            ErrorKind::DestinationIpUnroutable
            | ErrorKind::DestinationNotFound
            | ErrorKind::DnsError
            | ErrorKind::DnsTimeout
            | ErrorKind::ConnectionTimeout => Some(Self::Icmp(Why::Unreachable)),
            _ => None,
        }
    }
}
