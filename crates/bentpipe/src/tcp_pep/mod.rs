//! `bentpipe tcp-pep`: a proxy that splits TCP connections, as PEPsal does.

mod header;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_os::initial_window::InitialWindow;
use bentpipe_os::machine::Machine;
use bentpipe_os::tcp::TcpFlow;
use bentpipe_os::tcp_options::TcpOptions;
use bentpipe_os::tproxy::{self, Capture, Fail, Protocols, Transparent};
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::sockets::{Dial as _, Socket as _};
use bentpipe_units::Bytes;
use clap::Args;
use ipnet::IpNet;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::daemon;
use crate::failure::Failure;

/// What is carried at once in each direction of a connection, bytes.
const BUFFER: usize = 64 * 1024;
/// Connections at a time, at most: with two buffers each, 512 MiB.
const CONNECTIONS: usize = 4096;
/// Descriptors of a connection: the client's, and the one onwards.
const DESCRIPTORS: u64 = 2;
/// A box that has not said where to by then is let go.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);
/// An origin that has not answered by then is not waited for, as by the gateway of a tunnel.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Wait after a failed accept: out of memory, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// That connections have to wait is said once in so long.
const FULL_AGAIN: Duration = Duration::from_secs(60);
/// What tells the marks of the two sides apart ("bq" and "br" in ASCII), beside the port.
const MARKS: [u32; 2] = [0x6271_0000, 0x6272_0000];

/// A proxy that splits TCP connections, without encryption
///
/// It takes TCP connections that pass through this machine, and makes others onwards, so that
/// each part of the way has congestion control of its own; applications notice nothing. Alone
/// at the gateway (integrated), or in boxes one behind the other (distributed), two around the
/// satellite or more: the first with --via, the last with --listen, those between with both. IT
/// ADDS NO ENCRYPTION, also not between the boxes: what was readable stays readable. It is here to be compared with; the tunnel is for use. Needs
/// root.
#[derive(Debug, Args)]
pub struct Command {
    /// Take the connections that come in through these interfaces (transparent)
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        required_unless_present = "listen"
    )]
    interfaces: Vec<String>,
    /// Loopback port of transparent connections; different for each proxy of a machine
    #[arg(long, default_value_t = 5990, value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "listen")]
    port: u16,
    /// Leave the connections to these networks alone
    #[arg(
        long,
        value_name = "NETWORK",
        value_delimiter = ',',
        conflicts_with = "listen"
    )]
    leave: Vec<IpNet>,
    /// The next box: address and TCP port of its --listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    via: Option<SocketAddr>,
    /// Be a box behind another: take its connections at this address
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        requires = "from",
        conflicts_with = "interfaces"
    )]
    listen: Option<SocketAddr>,
    /// With --listen: where the box before is; nobody else is served
    #[arg(
        long,
        value_name = "NETWORK",
        value_delimiter = ',',
        requires = "listen"
    )]
    from: Vec<IpNet>,
    /// With --listen: networks that may be dialled although they are not public
    #[arg(
        long,
        value_name = "NETWORK",
        value_delimiter = ',',
        requires = "listen",
        conflicts_with = "via"
    )]
    allow: Vec<IpNet>,
    /// Congestion controller towards clients, by the kernel's name
    #[arg(long, value_name = "NAME")]
    client_controller: Option<String>,
    /// Initial window towards clients, packets
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    client_window: Option<u32>,
    /// Congestion controller towards the next hop, by the kernel's name
    #[arg(long, value_name = "NAME")]
    next_controller: Option<String>,
    /// Initial window towards the next hop, packets
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    next_window: Option<u32>,
}

/// How connections come in.
#[derive(Debug)]
enum Incoming {
    /// On their way to somewhere else: TPROXY leaves the destination in place.
    Taken,
    /// From another box in these networks, which says where they were going.
    Told(Vec<IpNet>),
}

/// Where connections go on.
#[derive(Debug)]
enum Onwards {
    /// To where they were going.
    Destination,
    /// To where another box says that they were going, if that may be dialled.
    Allowed(Egress, Machine),
    /// To the next box, which is told where they were going.
    Via(SocketAddr),
}

#[derive(Debug)]
struct Proxy {
    incoming: Incoming,
    onwards: Onwards,
    next: TcpOptions,
    room: Arc<Semaphore>,
}

pub fn run(command: Command) -> Result<(), Failure> {
    daemon::run(|open_files| serve(command, open_files))
}

async fn serve(command: Command, open_files: u64) -> Result<(), Failure> {
    let mut signals = daemon::StopSignals::new();
    let clients = command.side("client", &command.client_controller, command.client_window)?;
    let next = command.side("next", &command.next_controller, command.next_window)?;
    let (listeners, rules) = listeners(&command).await?;
    let proxy = Arc::new(Proxy {
        incoming: match command.listen {
            Some(_) => Incoming::Told(command.from),
            None => Incoming::Taken,
        },
        onwards: match (command.via, command.listen) {
            (Some(next), _) => Onwards::Via(next),
            (None, Some(_)) => {
                Onwards::Allowed(Egress::new(command.allow), Machine::new(Bytes::new(0)))
            }
            (None, None) => Onwards::Destination,
        },
        next,
        room: Arc::new(Semaphore::new(most_connections(open_files))),
    });
    let mut accepting = JoinSet::new();
    for listener in listeners {
        clients
            .apply(&SockRef::from(&listener))
            .map_err(anyhow::Error::from)?;
        accepting.spawn(accept(listener, proxy.clone()));
    }
    daemon::ready(format_args!(
        "tcp-pep: splitting TCP connections, unencrypted"
    ));
    tokio::select! {
        _ = signals.stop() => {}
        () = keep(rules.as_ref()) => {}
    }
    daemon::stopping();
    if let Some(rules) = rules
        && let Err(error) = rules.remove().await
    {
        tracing::error!("{error}");
    }
    daemon::say(format_args!("stopped"));
    Ok(())
}

/// Keeps the rules of transparent ingress, for ever.
async fn keep(rules: Option<&tproxy::Rules>) {
    match rules {
        Some(rules) => match rules.keep().await {},
        None => std::future::pending().await,
    }
}

impl Command {
    /// The connections of one side: their controller, which this kernel has, and the routes with
    /// their initial window.
    fn side(
        &self,
        name: &str,
        controller: &Option<String>,
        window: Option<u32>,
    ) -> Result<TcpOptions, Failure> {
        let port = self.listen.map_or(self.port, |listen| listen.port());
        let mark = u32::from(port) + if name == "client" { MARKS[0] } else { MARKS[1] };
        let installed = window.map(|packets| InitialWindow::install(packets, mark));
        let initial_window = installed
            .transpose()
            .map_err(|error| Failure::Configuration(format!("--{name}-window: {error}")))?;
        let options = TcpOptions {
            controller: controller.clone(),
            initial_window: initial_window.map(Arc::new),
            ..TcpOptions::default()
        };
        let probe = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
        probe
            .and_then(|probe| options.apply(&probe))
            .map_err(|error| Failure::Configuration(format!("--{name}-controller: {error}")))?;
        Ok(options)
    }
}

async fn listeners(
    command: &Command,
) -> Result<(Vec<TcpListener>, Option<tproxy::Rules>), Failure> {
    if let Some(listen) = command.listen {
        let listener = daemon::listen("--listen", listen).await?;
        return Ok((vec![listener], None));
    }
    let capture = Capture {
        interfaces: command.interfaces.clone(),
        port: command.port,
        leave: command.leave.clone(),
        // Without the proxy connections go on unsplit, and no less readable.
        after_origin: Vec::new(),
        fail: Fail::Open,
        protocols: Protocols::Tcp,
        tun: None,
    };
    let installed = tproxy::install(capture).await;
    let Transparent {
        ipv4, ipv6, rules, ..
    } = installed.map_err(anyhow::Error::from)?;
    Ok((
        [Some(ipv4), ipv6].into_iter().flatten().collect(),
        Some(rules),
    ))
}

/// Connections at a time when `open_files` may be open: one that is taken must find the descriptor
/// for its way onwards.
fn most_connections(open_files: u64) -> usize {
    let by_files = open_files.saturating_sub(daemon::LEAST_FILES) / DESCRIPTORS;
    usize::try_from(by_files).map_or(CONNECTIONS, |by_files| by_files.clamp(1, CONNECTIONS))
}

/// Takes the connections of `listener`, for ever. Those beyond the room wait in the kernel's queue.
async fn accept(listener: TcpListener, proxy: Arc<Proxy>) {
    let mut said: Option<Instant> = None;
    loop {
        if proxy.room.available_permits() == 0
            && said.is_none_or(|said| said.elapsed() > FULL_AGAIN)
        {
            tracing::warn!(
                "no room for more connections: the next ones wait; what there is goes by the open files permitted (`ulimit -Hn`, LimitNOFILE= in a systemd unit), up to {CONNECTIONS} connections"
            );
            said = Some(Instant::now());
        }
        let Ok(room) = proxy.room.clone().acquire_owned().await else {
            return;
        };
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("no connection can be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Incoming::Told(from) = &proxy.incoming
            && !from
                .iter()
                .any(|net| net.contains(&client.ip().to_canonical()))
        {
            tracing::warn!(%client, "not among --from: not served");
            continue;
        }
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let _room = room;
            if let Err(error) = proxy.carry(stream, client).await {
                tracing::debug!(%client, "{error}");
            }
        });
    }
}

impl Proxy {
    /// Carries a client's connection on, until both directions have ended or one end is reset, and be it while
    /// nothing can be written to the other; then the other is reset.
    async fn carry(&self, stream: TcpStream, client: SocketAddr) -> io::Result<()> {
        let own_address = stream.local_addr()?;
        let mut here = TcpFlow::new(stream)?;
        let gone = here.reset();
        let mut there = tokio::select! {
            there = self.onwards(&mut here, client, own_address) => there?,
            error = gone => return Err(error),
        };
        let gone = (here.reset(), there.reset());
        tokio::select! {
            carried = copy_bidirectional_with_sizes(&mut here, &mut there, BUFFER, BUFFER) => carried?,
            error = gone.0 => return Err(error),
            error = gone.1 => return Err(error),
        };
        here.close();
        there.close();
        Ok(())
    }

    /// The connection onwards for a client's, whose destination is its `own_address` where it was taken.
    async fn onwards(
        &self,
        here: &mut TcpFlow,
        client: SocketAddr,
        own_address: SocketAddr,
    ) -> io::Result<TcpFlow> {
        let (client, destination) = match &self.incoming {
            Incoming::Taken => (client, own_address),
            Incoming::Told(_) => {
                let told = tokio::time::timeout(HEADER_PATIENCE, header::read(here));
                told.await.map_err(|_| io::ErrorKind::TimedOut)??
            }
        };
        if let Onwards::Allowed(egress, machine) = &self.onwards {
            let own = machine.own_addresses()?;
            egress
                .check(destination.ip(), &own)
                .map_err(|why| io::Error::other(format!("{destination}: {why}")))?;
        }
        let to = match self.onwards {
            Onwards::Via(next) => next,
            Onwards::Destination | Onwards::Allowed(..) => destination,
        };
        let connected = tokio::time::timeout(CONNECT_PATIENCE, self.next.connect(to)).await;
        let mut there = TcpFlow::new(connected.map_err(|_| io::ErrorKind::TimedOut)??)?;
        if let Onwards::Via(_) = self.onwards {
            let header = header::write(client, destination)?;
            there.write_all(&header).await?;
        }
        Ok(there)
    }
}
