//! Connections to origins: resolve, ask the egress rules, dial.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

use super::egress::Egress;
use super::policy::Policy;
use super::proxy_header;
use crate::sockets::Dial;
use crate::target::{Host, Target};
use crate::wire::proxy_status::{ErrorKind, Refusal};

/// An origin that has not answered by then is told to the terminal as a timeout.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait before the next address of a name is tried beside the last (RFC 8305, section 8).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Connects to origins that the egress rules allow.
pub struct Dialler<D> {
    egress: RwLock<Egress>,
    sockets: D,
}

impl<D: Dial> Dialler<D> {
    /// Dials with `sockets` what `egress` allows.
    pub fn new(egress: Egress, sockets: D) -> Self {
        Self {
            egress: RwLock::new(egress),
            sockets,
        }
    }

    /// Replaces the rules, for connections from now on.
    pub fn set_egress(&self, egress: Egress) {
        *self.egress.write().unwrap_or_else(PoisonError::into_inner) = egress;
    }

    /// Who answers questions of DNS.
    pub fn resolver(&self) -> &D {
        &self.sockets
    }

    /// Connects to `target`: its addresses that egress allows, one after the other,
    /// beside each other when one is slow (RFC 8305).
    ///
    /// `resolving` bounds the names that whoever asks may have under way.
    /// `policy` is the terminal's, and `client` its address, which origins are told that
    /// the policy lists.
    pub async fn connect(
        &self,
        target: &Target,
        resolving: &Semaphore,
        policy: &Policy,
        client: Option<SocketAddr>,
    ) -> Result<D::Socket, Refusal> {
        let deadline = tokio::time::sleep(DIAL_TIMEOUT);
        tokio::pin!(deadline);
        let addresses = tokio::select! {
            biased;
            addresses = self.allowed(target, resolving, policy) => addresses?,
            () = &mut deadline => {
                let detail = format!("{target} did not resolve within {} s", DIAL_TIMEOUT.as_secs());
                return Err(Refusal { kind: ErrorKind::DnsTimeout, detail });
            }
        };
        let mut waiting = addresses.into_iter();
        let mut dialling = FuturesUnordered::new();
        let mut failure = None;
        loop {
            if let Some(address) = waiting.next() {
                let address = SocketAddr::new(address, target.port);
                let dialled = self.dial(target, address, policy, client);
                dialling.push(async move { (address, dialled.await) });
            } else if dialling.is_empty() {
                return Err(failure.unwrap_or_else(|| Refusal {
                    kind: ErrorKind::DnsError,
                    detail: format!("{target} has no address"),
                }));
            }
            let more = waiting.len() > 0;
            tokio::select! {
                biased;
                Some((address, dialled)) = dialling.next() => match dialled {
                    Ok(socket) => return Ok(socket),
                    Err(error) => {
                        let detail = format!("{address}: {error}");
                        failure.get_or_insert(Refusal { kind: ErrorKind::of_dial(&error), detail });
                    }
                },
                () = tokio::time::sleep(NEXT_ADDRESS), if more => {}
                () = &mut deadline => {
                    let detail = format!("{target} did not answer within {} s", DIAL_TIMEOUT.as_secs());
                    return Err(Refusal { kind: ErrorKind::ConnectionTimeout, detail });
                }
            }
        }
    }

    /// Connects to `address` as the policy says.
    async fn dial(
        &self,
        target: &Target,
        address: SocketAddr,
        policy: &Policy,
        client: Option<SocketAddr>,
    ) -> io::Result<D::Socket> {
        let mut socket = match policy.egress_address(address.ip()) {
            Some(source) => self.sockets.dial_from(source, address).await,
            None => self.sockets.dial(address).await,
        }?;
        if let Some(client) = client.filter(|_| policy.tells_address(target, address.ip())) {
            let header = proxy_header::header(client, address);
            socket.write_all(&header).await?;
        }
        Ok(socket)
    }

    /// Opens a UDP socket that is connected to `target`: the first of its addresses that
    /// egress and `policy` allow and that there is a route to.
    ///
    /// `resolving` bounds the names that whoever asks may have under way.
    pub async fn connect_udp(
        &self,
        target: &Target,
        resolving: &Semaphore,
        policy: &Policy,
    ) -> Result<D::Datagrams, Refusal> {
        let addresses = self.allowed(target, resolving, policy);
        let addresses = tokio::time::timeout(DIAL_TIMEOUT, addresses);
        let addresses = addresses.await.map_err(|_| Refusal {
            kind: ErrorKind::DnsTimeout,
            detail: format!(
                "{target} did not resolve within {} s",
                DIAL_TIMEOUT.as_secs()
            ),
        })??;
        let mut failure = None;
        for address in addresses {
            let address = SocketAddr::new(address, target.port);
            match self.sockets.dial_udp(address).await {
                Ok(socket) => return Ok(socket),
                Err(error) => {
                    let kind = ErrorKind::of_dial(&error);
                    let detail = format!("{address}: {error}");
                    failure.get_or_insert(Refusal { kind, detail });
                }
            }
        }
        Err(failure.unwrap_or_else(|| Refusal {
            kind: ErrorKind::DnsError,
            detail: format!("{target} has no address"),
        }))
    }

    /// The addresses of the gateway itself.
    pub fn own_addresses(&self) -> Result<Arc<[IpAddr]>, Refusal> {
        self.sockets.own_addresses().map_err(|error| {
            tracing::warn!(
                "nothing is dialled: this machine's own addresses cannot be read: {error}"
            );
            Refusal {
                kind: ErrorKind::ProxyInternalError,
                detail: "the gateway does not know its own addresses now".into(),
            }
        })
    }

    /// Whether `address`, which `target` has been resolved to, may be spoken to, by anybody and
    /// by the policy; `own` are the gateway's addresses. The error says why not.
    pub fn check(
        &self,
        target: &Target,
        address: IpAddr,
        policy: &Policy,
        own: &[IpAddr],
    ) -> Result<(), String> {
        let egress = self.egress.read().unwrap_or_else(PoisonError::into_inner);
        egress
            .check(address, own)
            .map_err(|kind| format!("{address} is {kind} and not in egress.allow"))?;
        policy
            .allows(target, address)
            .map_err(|why| format!("{address} is {why}"))
    }

    /// The target's addresses that may be dialled, by anybody and by the policy.
    async fn allowed(
        &self,
        target: &Target,
        resolving: &Semaphore,
        policy: &Policy,
    ) -> Result<Vec<IpAddr>, Refusal> {
        let addresses = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let _place = resolving.acquire().await;
                self.sockets.resolve(name).await.map_err(|error| Refusal {
                    kind: ErrorKind::DnsError,
                    detail: format!("{name}: {error}"),
                })?
            }
        };
        let own = self.own_addresses()?;
        let mut denied = None;
        let allowed: Vec<_> = addresses
            .into_iter()
            .filter(|address| match self.check(target, *address, policy, &own) {
                Ok(()) => true,
                Err(detail) => {
                    denied = Some(Refusal {
                        kind: ErrorKind::DestinationIpProhibited,
                        detail,
                    });
                    false
                }
            })
            .collect();
        match denied {
            Some(refusal) if allowed.is_empty() => {
                tracing::warn!(%target, "egress denied: {}", refusal.detail);
                Err(refusal)
            }
            _ => Ok(allowed),
        }
    }
}
