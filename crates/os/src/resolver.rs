//! Names to addresses, without threads that block: one slow name delays no other.
//!
//! /etc/resolv.conf and /etc/hosts are read again when they have changed.

mod marked_sockets;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use hickory_resolver::config::{LookupIpStrategy, ProtocolConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::client::Client;
use hickory_resolver::net::tcp::TcpClientStream;
use hickory_resolver::net::udp::UdpClientStream;
use hickory_resolver::net::{DnsHandle, NetError};
use hickory_resolver::proto::op::{
    DnsRequest, DnsRequestOptions, DnsResponse, Message, MessageType, ResponseCode,
};
use hickory_resolver::{Hosts, system_conf};
use tokio::sync::Semaphore;

use marked_sockets::{MarkedSockets, set_mark};

/// What says how to resolve.
const FILES: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", BEHIND_STUB];
/// The name servers that systemd-resolved asks, where /etc/resolv.conf names its stub alone.
const BEHIND_STUB: &str = "/run/systemd/resolve/resolv.conf";
/// Names that may be under way: each has a socket or two and next to no memory.
const MOST: usize = 512;
/// One question to one server, and how often it is asked.
const TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPTS: usize = 2;

/// A resolver. Clones are the same.
#[derive(Debug, Clone)]
pub struct Resolver(Arc<State>);

#[derive(Debug)]
struct State {
    current: Mutex<Option<Configured>>,
    under_way: Semaphore,
    sockets: MarkedSockets,
}

type Changed = [Option<SystemTime>; 3];

#[derive(Debug)]
struct Configured {
    changed: Changed,
    resolver: hickory_resolver::Resolver<MarkedSockets>,
    hosts: Arc<Hosts>,
    /// The name servers, the preferred first.
    servers: Arc<[SocketAddr]>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::marked(None)
    }
}

impl Resolver {
    /// A resolver whose sockets carry `mark`, for routing rules.
    pub fn marked(mark: Option<u32>) -> Self {
        Self(Arc::new(State {
            current: Mutex::new(None),
            under_way: Semaphore::new(MOST),
            sockets: MarkedSockets::new(mark),
        }))
    }

    /// The addresses of `host`: those first to which there is a route, and IPv6 before IPv4.
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let _place = self.0.under_way.acquire().await.map_err(io::Error::other)?;
        let resolver = self.current(|configured| configured.resolver.clone())?;
        let answer = resolver.lookup_ip(host).await;
        let mut addresses: Vec<_> = answer.map_err(io::Error::other)?.iter().collect();
        let mark = self.0.sockets.mark;
        addresses.sort_by_key(|address| (!has_route(*address, mark), address.is_ipv4()));
        addresses.dedup();
        Ok(addresses)
    }

    /// What /etc/hosts says to `question`, or else the first name server that answers it,
    /// whatever that is: a failure of one (SERVFAIL, REFUSED) is told if no other does better.
    pub async fn query(&self, question: Message) -> io::Result<Message> {
        let _place = self.0.under_way.acquire().await.map_err(io::Error::other)?;
        let (hosts, servers) =
            self.current(|configured| (configured.hosts.clone(), configured.servers.clone()))?;
        if let Some(answer) = of_hosts(&hosts, &question) {
            return Ok(answer);
        }
        let mut failure = None;
        let mut error = io::Error::other("/etc/resolv.conf names no name server");
        for server in servers.iter() {
            match ask(*server, &question, &self.0.sockets).await {
                Ok(answer) => match answer.metadata.response_code {
                    ResponseCode::ServFail | ResponseCode::Refused => failure = Some(answer),
                    _ => return Ok(answer),
                },
                Err(why) => error = io::Error::other(format!("{server}: {why}")),
            }
        }
        failure.ok_or(error)
    }

    fn current<T>(&self, part: impl FnOnce(&Configured) -> T) -> io::Result<T> {
        let changed = FILES.map(|file| std::fs::metadata(file).and_then(|m| m.modified()).ok());
        let mut current = self
            .0
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(configured) = &*current
            && configured.changed == changed
        {
            return Ok(part(configured));
        }
        let sockets = self.0.sockets.clone();
        let (config, system) = configuration(sockets.mark)?;
        let mut builder = hickory_resolver::Resolver::builder_with_config(config.clone(), sockets);
        let options = builder.options_mut();
        *options = system;
        options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
        options.timeout = TIMEOUT;
        options.attempts = ATTEMPTS;
        let resolver = builder.build().map_err(io::Error::other)?;
        let servers = config.name_servers().iter().flat_map(|server| {
            let udp = server
                .connections
                .iter()
                .filter(|connection| matches!(connection.protocol, ProtocolConfig::Udp));
            udp.map(|connection| SocketAddr::new(server.ip, connection.port))
        });
        let configured = current.insert(Configured {
            changed,
            resolver,
            hosts: Arc::new(Hosts::from_system().unwrap_or_default()),
            servers: servers.collect(),
        });
        Ok(part(configured))
    }
}

/// What /etc/resolv.conf says. For questions with a `mark` the name servers behind a stub of this
/// machine: what a stub asks carries no mark, and would be routed where questions come back from.
fn configuration(mark: Option<u32>) -> io::Result<(ResolverConfig, ResolverOpts)> {
    let read = system_conf::read_system_conf().map_err(io::Error::other)?;
    if mark.is_some()
        && is_stub(&read.0)
        && let Ok(text) = std::fs::read(BEHIND_STUB)
        && let Ok(behind) = system_conf::parse_resolv_conf(text)
    {
        return Ok(behind);
    }
    Ok(read)
}

/// Whether all name servers are on this machine.
fn is_stub(config: &ResolverConfig) -> bool {
    let servers = config.name_servers();
    servers.iter().all(|server| server.ip.is_loopback())
}

/// What /etc/hosts says to `question`.
fn of_hosts(hosts: &Hosts, question: &Message) -> Option<Message> {
    let found = hosts.lookup_static_host(question.queries.first()?)?;
    let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
    answer.add_queries(question.queries.iter().cloned());
    answer.add_answers(found.answers().iter().cloned());
    Some(answer)
}

/// Asks one name server, over UDP and, when the answer does not fit there, over TCP.
async fn ask(
    server: SocketAddr,
    question: &Message,
    sockets: &MarkedSockets,
) -> Result<Message, NetError> {
    let mut question = question.clone();
    // The identifier on the wire is nobody's business but ours.
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(|error| NetError::from(error.to_string()))?;
    question.metadata.id = u16::from_be_bytes(id);
    question.metadata.message_type = MessageType::Query;
    let udp = UdpClientStream::builder(server, sockets.clone()).with_timeout(Some(TIMEOUT));
    let (client, background) = Client::<MarkedSockets>::from_sender(udp.build());
    let answer = exchange(client, background, &question).await?;
    if !answer.truncation {
        return Ok(answer.into_message());
    }
    let (stream, sender) = TcpClientStream::new(server, None, Some(TIMEOUT), sockets.clone());
    let (client, background) = Client::<MarkedSockets>::new(stream.await?, sender);
    Ok(exchange(client, background, &question)
        .await?
        .into_message())
}

/// Sends one question, and waits for its answer while `background` does the work.
async fn exchange(
    client: Client<MarkedSockets>,
    background: impl Future,
    question: &Message,
) -> Result<DnsResponse, NetError> {
    let request = DnsRequest::new(question.clone(), DnsRequestOptions::default());
    let mut answers = client.send(request);
    tokio::select! {
        biased;
        answer = answers.next() => answer.unwrap_or(Err(NetError::Timeout)),
        _ = background => Err(NetError::NoConnections),
    }
}

/// Whether the kernel knows a way to `address`. Sends nothing.
fn has_route(address: IpAddr, mark: Option<u32>) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    UdpSocket::bind((any, 0))
        .and_then(|socket| {
            set_mark(&socket, mark);
            socket.connect(SocketAddr::new(address, 9))
        })
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_is_a_name_server_of_this_machine_alone() {
        for (text, stub) in [
            ("nameserver 127.0.0.53\n", true),
            ("nameserver ::1\nnameserver 127.0.0.1\n", true),
            ("nameserver 127.0.0.53\nnameserver 192.0.2.1\n", false),
        ] {
            let (config, _) = system_conf::parse_resolv_conf(text).unwrap();
            assert_eq!(is_stub(&config), stub, "{text}");
        }
    }
}
