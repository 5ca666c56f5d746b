//! Names to addresses, without threads that block: one slow name delays no other.
//!
//! /etc/resolv.conf and /etc/hosts are read again when they have changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use tokio::sync::Semaphore;

/// What says how to resolve.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
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
}

type Changed = [Option<SystemTime>; 2];

#[derive(Debug)]
struct Configured {
    changed: Changed,
    resolver: TokioResolver,
}

impl Default for Resolver {
    fn default() -> Self {
        Self(Arc::new(State {
            current: Mutex::new(None),
            under_way: Semaphore::new(MOST),
        }))
    }
}

impl Resolver {
    /// The addresses of `host`: those first to which there is a route, and IPv6 before IPv4.
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let _place = self.0.under_way.acquire().await.map_err(io::Error::other)?;
        let answer = self.current()?.lookup_ip(host).await;
        let mut addresses: Vec<_> = answer.map_err(io::Error::other)?.iter().collect();
        addresses.sort_by_key(|address| (!has_route(*address), address.is_ipv4()));
        addresses.dedup();
        Ok(addresses)
    }

    fn current(&self) -> io::Result<TokioResolver> {
        let changed = FILES.map(|file| std::fs::metadata(file).and_then(|m| m.modified()).ok());
        let mut current = self
            .0
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(configured) = &*current
            && configured.changed == changed
        {
            return Ok(configured.resolver.clone());
        }
        let mut builder = TokioResolver::builder_tokio().map_err(io::Error::other)?;
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
        options.timeout = TIMEOUT;
        options.attempts = ATTEMPTS;
        let resolver = builder.build().map_err(io::Error::other)?;
        *current = Some(Configured {
            changed,
            resolver: resolver.clone(),
        });
        Ok(resolver)
    }
}

/// Whether the kernel knows a way to `address`. Sends nothing.
fn has_route(address: IpAddr) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    UdpSocket::bind((any, 0))
        .and_then(|socket| socket.connect(SocketAddr::new(address, 9)))
        .is_ok()
}
