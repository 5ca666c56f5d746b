//! `bentpipe doctor --network`: what the network between this terminal and a gateway does to
//! UDP and TCP, and whether bentpipe helps there.
//!
//! All that is asked of the gateway is asked in a session, with the terminal's own key.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_os::doctor::{Check, State};
use bentpipe_os::machine::Machine;
use bentpipe_tunnel::paths::Paths;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::{Connector, Terminal};
use bentpipe_tunnel::transport::KEEP_ALIVE;
use tokio::net::TcpStream;

use super::download::Download;
use super::session::{closed, path_mtu};
use super::silence::{self, Tried};
use crate::failure::Failure;
use crate::files::{Files, PairedGateway};
use crate::terminal;

/// Ports that a TCP handshake is tried at: it does not matter whether they are open.
const TCP_PORTS: [u16; 3] = [443, 80, 22];
/// A handshake is answered by this at the latest, or not at all.
const TCP_PATIENCE: Duration = Duration::from_secs(5);
/// Below this a tunnel has little to gain on plain TCP.
const SHORT: Duration = Duration::from_millis(50);

/// Examines the network between this terminal and the gateway that it knows as `gateway`.
/// `url`: what is downloaded with the machine's own TCP, and through the tunnel. `longest`: the
/// longest silence after which an answer is waited for.
pub async fn check(
    files: &Files,
    gateway: &str,
    url: Option<&Download>,
    longest: Duration,
) -> Result<Vec<Check>, Failure> {
    let config = files.read_terminal()?;
    let paired = find(files, gateway)?;
    let identity = tokio::sync::watch::channel(Arc::new(files.identity()?)).1;
    let endpoint = terminal::endpoint(&identity.borrow(), config.ingress.mark())?;
    let connector = || {
        terminal::connector(
            files,
            &config,
            &endpoint,
            &identity,
            &paired,
            Paths::default(),
        )
    };
    let mut report = Report::default();
    let opened = connector()?.open().await;
    let session = match opened {
        Ok(session) => session,
        Err(error) => {
            let tcp = tcp_answers(&addresses(&paired.gateway).await).await;
            report.udp_fails(&error.to_string(), tcp);
            return Ok(report.checks);
        }
    };
    let accepted = session.accepted().await;
    let address = bentpipe_tunnel::session::remote_address(session.connection());
    // The first round trips have the handshake's signatures in them.
    let mtu = path_mtu(&session).await;
    let rtt = session.rtt();
    report.udp(rtt, accepted);
    report.mtu(mtu);
    let tcp = tcp_answers(&address.map(|a| a.ip()).into_iter().collect::<Vec<_>>()).await;
    let pep = report.tcp(rtt, tcp);
    session.close();
    closed(&endpoint).await;
    let tcp = async {
        match url {
            Some(url) => silence::tcp(url, longest).await,
            None => Tried::default(),
        }
    };
    let (udp, tcp) = tokio::join!(
        silence::udp(&connector, config.ingress.mark(), longest),
        tcp
    );
    report.udp_silence(&udp);
    report.tcp_silence(&tcp);
    let mut rates = None;
    if let Some(url) = url {
        let direct = url
            .over(TcpStream::connect((url.host.as_str(), url.port)))
            .await;
        let tunnel = through_tunnel(connector()?, url).await;
        rates = report.rates(direct, tunnel);
    }
    report.verdict(rtt, pep, rates);
    Ok(report.checks)
}

fn find(files: &Files, gateway: &str) -> Result<PairedGateway, Failure> {
    let paired = files.read_pairing()?;
    let is = |paired: &&PairedGateway| {
        paired.gateway.to_string() == gateway || paired.gateway_key.to_string() == gateway
    };
    let names: Vec<_> = paired
        .iter()
        .map(|paired| paired.gateway.to_string())
        .collect();
    let found = paired.iter().find(is).cloned();
    found.ok_or_else(|| {
        Failure::Configuration(format!(
            "--network {gateway}: this terminal is not paired with it; it is paired with {}",
            names.join(", ")
        ))
    })
}

async fn addresses(gateway: &Target) -> Vec<IpAddr> {
    let resolver = bentpipe_os::resolver::Resolver::default();
    match &gateway.host {
        bentpipe_tunnel::target::Host::Address(address) => vec![*address],
        bentpipe_tunnel::target::Host::Name(name) => {
            resolver.resolve(name).await.unwrap_or_default()
        }
    }
}

/// A TCP handshake with a host, and how soon it was answered.
#[derive(Debug, Clone, Copy)]
struct TcpAnswer {
    port: u16,
    after: Duration,
    /// The connection was accepted, by the host or in its place.
    accepted: bool,
}

/// The soonest answer of one of `hosts` to a TCP handshake.
async fn tcp_answers(hosts: &[IpAddr]) -> Option<TcpAnswer> {
    let mut soonest: Option<TcpAnswer> = None;
    for (host, port) in hosts
        .iter()
        .flat_map(|host| TCP_PORTS.map(|port| (*host, port)))
    {
        let began = Instant::now();
        let connecting = TcpStream::connect(SocketAddr::new(host, port));
        let Ok(ended) = tokio::time::timeout(TCP_PATIENCE, connecting).await else {
            continue;
        };
        let accepted = match ended {
            Ok(_) => true,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => false,
            Err(_) => continue,
        };
        let after = began.elapsed();
        if soonest.is_none_or(|soonest| after < soonest.after) {
            soonest = Some(TcpAnswer {
                port,
                after,
                accepted,
            });
        }
    }
    soonest
}

async fn through_tunnel(connector: Connector<Machine>, url: &Download) -> std::io::Result<f64> {
    let (terminal, keep) = Terminal::new(connector);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let local = listener.local_addr()?;
    let carrying = async {
        let (stream, _) = listener.accept().await?;
        let flow = bentpipe_os::tcp::TcpFlow::new(stream)?;
        terminal.carry(flow, url.target()).await;
        std::io::Result::Ok(())
    };
    tokio::select! {
        never = keep => match never {},
        (rate, _) = async { tokio::join!(url.over(TcpStream::connect(local)), carrying) } => rate,
    }
}

/// The findings, in the order in which they were made.
#[derive(Default)]
struct Report {
    checks: Vec<Check>,
}

impl Report {
    fn add(&mut self, name: &'static str, state: State, found: String, remedy: Option<String>) {
        self.checks.push(Check {
            name,
            needed_for: "terminal",
            state,
            found,
            remedy,
        });
    }

    fn udp_fails(&mut self, why: &str, tcp: Option<TcpAnswer>) {
        let remedy = match tcp {
            Some(tcp) => format!(
                "the machine answers TCP (port {}, {}), so that UDP is dropped on the way, or the gateway does not run: look at both ends' firewalls and at the operator's",
                tcp.port,
                milliseconds(tcp.after)
            ),
            None => "the machine answers no TCP either: look whether it is on, and whether this machine is on the internet".to_owned(),
        };
        self.add("UDP", State::Missing, why.to_owned(), Some(remedy));
    }

    fn udp(&mut self, rtt: Duration, accepted: Result<(), String>) {
        match accepted {
            Ok(()) => {
                let found = format!("reaches the gateway; round trip {}", milliseconds(rtt));
                self.add("UDP", State::Ok, found, None);
            }
            Err(why) => {
                let remedy = "the gateway's log says more".to_owned();
                self.add("UDP", State::Missing, why, Some(remedy));
            }
        }
    }

    fn mtu(&mut self, mtu: u16) {
        let found = format!("{mtu} bytes of UDP payload pass unfragmented");
        if mtu >= 1400 {
            return self.add("path MTU", State::Ok, found, None);
        }
        let remedy = "something on the way has a small MTU, a tunnel perhaps; bentpipe goes with it, at some cost per packet".to_owned();
        self.add("path MTU", State::Worse, found, Some(remedy));
    }

    /// How long NATs and firewalls on the way let an answer of the gateway's through.
    fn udp_silence(&mut self, tried: &Tried) {
        let name = "UDP after silence";
        let Some((found, lost)) = tried.found() else {
            return;
        };
        if lost.is_none_or(|lost| lost > KEEP_ALIVE * 2) {
            return self.add(name, State::Ok, found, None);
        }
        let remedy = format!(
            "sessions speak every {}, which may not keep them open; have the time-out for UDP raised at this site's NAT (RFC 4787 asks for two minutes)",
            silence::seconds(KEEP_ALIVE)
        );
        self.add(name, State::Worse, found, Some(remedy));
    }

    /// And a web server's, outside the tunnel.
    fn tcp_silence(&mut self, tried: &Tried) {
        let Some((found, lost)) = tried.found() else {
            return;
        };
        let remedy = lost.map(|_| "TCP connections outside the tunnel that are silent for so long are lost (RFC 5382 asks for two hours); those in the tunnel are not: its session speaks for all".to_owned());
        let state = match lost {
            Some(_) => State::Worse,
            None => State::Ok,
        };
        self.add("TCP after silence", state, found, remedy);
    }

    /// Whether somebody on the way answers TCP in the gateway's place.
    fn tcp(&mut self, rtt: Duration, answer: Option<TcpAnswer>) -> bool {
        let Some(answer) = answer else {
            let found = "the gateway's machine answers TCP at none of the ports 443, 80 and 22: whether the operator has a proxy for TCP cannot be told";
            self.add("operator's TCP proxy", State::Ok, found.to_owned(), None);
            return false;
        };
        let (after, port) = (milliseconds(answer.after), answer.port);
        let found = format!(
            "TCP port {port} is answered after {after}, UDP after {}",
            milliseconds(rtt)
        );
        // Nothing can be there and back sooner than UDP was, queues aside.
        let pep = answer.accepted && answer.after < rtt.mul_f64(0.6);
        if pep {
            let found = format!(
                "{found}: sooner than the way allows, so a proxy of the operator's (PEP) answers in the place of servers"
            );
            self.add("operator's TCP proxy", State::Ok, found, None);
        } else {
            let found = format!("{found}: no proxy between");
            self.add("operator's TCP proxy", State::Ok, found, None);
        }
        pep
    }

    /// Both rates, where both could be measured.
    fn rates(
        &mut self,
        direct: std::io::Result<f64>,
        tunnel: std::io::Result<f64>,
    ) -> Option<(f64, f64)> {
        let text = |rate: &std::io::Result<f64>| match rate {
            Ok(rate) => format!("{:.1} Mbit/s", rate / 1e6),
            Err(error) => format!("failed ({error})"),
        };
        let found = format!(
            "direct {}, through the tunnel {}",
            text(&direct),
            text(&tunnel)
        );
        let both = direct.ok().zip(tunnel.ok());
        match both {
            Some((direct, tunnel)) if tunnel < 0.8 * direct => {
                let remedy = "UDP is held back on the way, or transport.expected_rate is below what the link carries; measure again at another time of day".to_owned();
                self.add("throughput", State::Worse, found, Some(remedy));
            }
            _ => self.add("throughput", State::Ok, found, None),
        }
        both
    }

    fn verdict(&mut self, rtt: Duration, pep: bool, rates: Option<(f64, f64)>) {
        let faster = rates.map(|(direct, tunnel)| tunnel / direct);
        let (state, found) = match faster {
            Some(times) if times > 1.2 => (State::Ok, format!("yes: {times:.1} times as fast as without")),
            Some(times) if times < 0.8 => (State::Worse, format!("no, it is slower here ({times:.1} of the rate without); it encrypts, and that is all")),
            _ if pep => (State::Worse, "little in speed: the operator's proxy does for plain TCP what bentpipe does; bentpipe encrypts, and is faster than a VPN, which that proxy cannot help".to_owned()),
            _ if rtt < SHORT => (State::Worse, format!("little in speed: at a round trip of {} TCP does well by itself; it helps where packets are lost, and it encrypts", milliseconds(rtt))),
            Some(_) => (State::Ok, "one download is as fast as without; short requests gain a round trip".to_owned()),
            None => (State::Ok, "yes, by the round trip; give --url for a measurement of the throughput".to_owned()),
        };
        let remedy = (state == State::Worse).then(|| {
            "none needed: it works, and may be left away where encryption is not asked for"
                .to_owned()
        });
        self.add("would bentpipe help", state, found, remedy);
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}
