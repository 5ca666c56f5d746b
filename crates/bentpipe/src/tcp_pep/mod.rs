//! `bentpipe tcp-pep`: a proxy that splits TCP connections, as PEPsal does.

mod header;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_os::tcp::TcpFlow;
use bentpipe_os::tcp_side::TcpSide;
use bentpipe_os::tproxy::{self, Capture, Fail, Transparent};
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::sockets::{Dial as _, Socket as _};
use bentpipe_units::Bytes;
use clap::Args;
use ipnet::IpNet;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::daemon;
use crate::failure::Failure;

/// What is carried at once in each direction of a connection, bytes.
const BUFFER: usize = 64 * 1024;
/// Connections at a time: with two buffers each, 512 MiB.
const CONNECTIONS: usize = 4096;
/// A box that has not said where to by then is let go.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);
/// Wait after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What tells the marks of the two sides apart ("bq" and "br" in ASCII), beside the port.
const MARKS: [u32; 2] = [0x6271_0000, 0x6272_0000];

/// A proxy that splits TCP connections, without encryption
///
/// It takes TCP connections that pass through this machine, and makes others onwards, so that
/// each part of the way has congestion control of its own; applications notice nothing. Alone
/// at the gateway (integrated), or in two boxes around the satellite (distributed): the first
/// with --via, the second with --listen. IT ADDS NO ENCRYPTION, also not between the two: what
/// was readable stays readable. It is here to be compared with; the tunnel is for use. Needs
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
    #[arg(long, default_value_t = 5990)]
    port: u16,
    /// Leave the connections to these networks alone
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    leave: Vec<IpNet>,
    /// The second box: address and TCP port of its --listen
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "listen")]
    via: Option<SocketAddr>,
    /// Be the second box: take the connections of the first one at this address
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        requires = "from",
        conflicts_with = "interfaces"
    )]
    listen: Option<SocketAddr>,
    /// With --listen: where the first box is; nobody else is served
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    from: Vec<IpNet>,
    /// With --listen: networks that may be dialled although they are not public
    #[arg(
        long,
        value_name = "NETWORK",
        value_delimiter = ',',
        requires = "listen"
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

/// Where connections go on.
#[derive(Debug)]
enum Onwards {
    /// To where they were going.
    Destination,
    /// To the second box, which is told where they were going.
    Via(SocketAddr),
    /// This is the second box: to where the first says, if that may be dialled.
    Told(Egress),
}

#[derive(Debug)]
struct Proxy {
    onwards: Onwards,
    next: TcpSide,
    room: Semaphore,
}

pub fn run(command: Command) -> Result<(), Failure> {
    bentpipe_os::limits::raise_open_files();
    daemon::block_on(serve(command))
}

async fn serve(command: Command) -> Result<(), Failure> {
    let port = command.listen.map_or(command.port, |listen| listen.port());
    let side = |controller: Option<String>, initial_window, mark| TcpSide {
        controller,
        initial_window,
        mark: mark + u32::from(port),
    };
    let clients = side(
        command.client_controller.clone(),
        command.client_window,
        MARKS[0],
    );
    let next = side(
        command.next_controller.clone(),
        command.next_window,
        MARKS[1],
    );
    let mut signals = daemon::StopSignals::new();
    let (listeners, rules) = listeners(&command).await?;
    for side in [&clients, &next] {
        if let Err(error) = side.install() {
            remove(rules.as_ref(), [&clients, &next]).await;
            return Err(Failure::Configuration(error.to_string()));
        }
    }
    let proxy = Arc::new(Proxy {
        onwards: match (command.listen, command.via) {
            (Some(_), _) => Onwards::Told(Egress::new(command.allow)),
            (None, Some(box_two)) => Onwards::Via(box_two),
            (None, None) => Onwards::Destination,
        },
        next: next.clone(),
        room: Semaphore::new(CONNECTIONS),
    });
    for listener in listeners {
        clients.listen(&listener).map_err(anyhow::Error::from)?;
        tokio::spawn(accept(listener, proxy.clone(), command.from.clone()));
    }
    daemon::ready(format_args!(
        "tcp-pep: splitting TCP connections, unencrypted"
    ));
    signals.stop().await;
    daemon::stopping();
    remove(rules.as_ref(), [&clients, &next]).await;
    daemon::say(format_args!("stopped"));
    Ok(())
}

async fn listeners(
    command: &Command,
) -> Result<(Vec<TcpListener>, Option<tproxy::Rules>), Failure> {
    if let Some(listen) = command.listen {
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|error| daemon::cannot_listen("--listen", "TCP", listen, &error))?;
        return Ok((vec![listener], None));
    }
    let capture = Capture {
        interfaces: command.interfaces.clone(),
        port: command.port,
        leave: command.leave.clone(),
        // Without the proxy connections go on unsplit, and no less readable.
        fail: Fail::Open,
    };
    let installed = tproxy::install(capture).await;
    let Transparent { ipv4, ipv6, rules } = installed.map_err(anyhow::Error::from)?;
    Ok((
        [Some(ipv4), ipv6].into_iter().flatten().collect(),
        Some(rules),
    ))
}

async fn remove(rules: Option<&tproxy::Rules>, sides: [&TcpSide; 2]) {
    if let Some(rules) = rules {
        rules.remove().await;
    }
    for side in sides {
        side.remove();
    }
}

async fn accept(listener: TcpListener, proxy: Arc<Proxy>, from: Vec<IpNet>) {
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("no connection can be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let address = client.ip().to_canonical();
        if matches!(proxy.onwards, Onwards::Told(_))
            && !from.iter().any(|network| network.contains(&address))
        {
            tracing::warn!(%client, "not among --from: not served");
            continue;
        }
        let proxy = proxy.clone();
        tokio::spawn(async move {
            // Beyond the limit a connection is reset, which its client understands.
            let Ok(_room) = proxy.room.try_acquire() else {
                return tracing::warn!(%client, "no room for more than {CONNECTIONS} connections");
            };
            if let Err(error) = proxy.carry(stream, client).await {
                tracing::debug!(%client, "{error}");
            }
        });
    }
}

impl Proxy {
    /// Carries a client's connection on, until both directions have ended or one has failed;
    /// then the other is reset.
    async fn carry(&self, stream: TcpStream, client: SocketAddr) -> io::Result<()> {
        // TPROXY leaves the destination in place: it is this socket's own address.
        let destination = stream.local_addr()?;
        let mut here = TcpFlow::new(stream)?;
        let mut there = match &self.onwards {
            Onwards::Destination => TcpFlow::new(self.next.connect(destination).await?)?,
            Onwards::Via(second) => {
                let mut there = TcpFlow::new(self.next.connect(*second).await?)?;
                there
                    .write_all(&header::write(client, destination)?)
                    .await?;
                there
            }
            Onwards::Told(egress) => {
                let told = tokio::time::timeout(HEADER_PATIENCE, header::read(&mut here));
                let destination = told.await.map_err(|_| io::ErrorKind::TimedOut)??;
                let own = bentpipe_os::machine::Machine::new(Bytes::new(0)).own_addresses()?;
                egress
                    .check(destination.ip(), &own)
                    .map_err(|why| io::Error::other(format!("{destination}: {why}")))?;
                TcpFlow::new(self.next.connect(destination).await?)?
            }
        };
        copy_bidirectional_with_sizes(&mut here, &mut there, BUFFER, BUFFER).await?;
        here.close();
        there.close();
        Ok(())
    }
}
