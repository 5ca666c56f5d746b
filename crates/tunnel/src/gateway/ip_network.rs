//! The network of a gateway's terminals: the addresses that they are lent, and the interface
//! by which their packets come and go.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use tokio::sync::mpsc;

use crate::flow::packet::Header;
use crate::identity::Fingerprint;
use crate::sockets::PacketDevice;
use crate::wire::proxy_status::{ErrorKind, Refusal};

/// Packets that wait for a session; more are lost, as at any router.
const WAITING: usize = 256;
/// Addresses of one family that one terminal may have at the same time: a request that has
/// been given up may still hold one.
const MOST_OF_ONE: usize = 4;
/// Addresses of a network that are tried for a terminal.
const TRIED: u32 = 65_536;

/// The network of a gateway's terminals. Clones are the same.
#[derive(Clone)]
pub struct IpNetwork(Arc<Shared>);

struct Shared {
    device: Box<dyn PacketDevice>,
    /// At most one of each family; the first address of each is the gateway's.
    networks: Vec<IpNet>,
    lent: Mutex<BTreeMap<IpAddr, Lent>>,
}

struct Lent {
    key: Fingerprint,
    session: mpsc::Sender<Vec<u8>>,
}

impl IpNetwork {
    /// Terminals have addresses of `networks`, whose packets come and go by `device`.
    pub fn new(networks: Vec<IpNet>, device: Box<dyn PacketDevice>) -> Self {
        Self(Arc::new(Shared {
            device,
            networks,
            lent: Mutex::default(),
        }))
    }

    /// The address that the gateway has in `network`: its first.
    pub fn gateway_address(network: &IpNet) -> IpAddr {
        nth(network, 1)
    }

    /// Hands packets for terminals to their sessions until the device fails.
    pub async fn deliver(&self) -> io::Error {
        loop {
            let packet = std::future::poll_fn(|context| self.0.device.poll_receive(context));
            let packet = match packet.await {
                Ok(packet) => packet,
                Err(error) => return error,
            };
            if let Some(header) = Header::read(&packet)
                && let Some(lent) = self.lent().get(&header.destination)
            {
                // Without room it is lost.
                let _ = lent.session.try_send(packet);
            }
        }
    }

    fn lent(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Lent>> {
        self.0.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends the terminal with `key` an address of each family, the same as the last time if
    /// nobody else has it.
    pub(super) fn lend(&self, key: Fingerprint) -> Result<Lease, Refusal> {
        let (session, inbox) = mpsc::channel(WAITING);
        let mut lease = Lease {
            network: self.clone(),
            addresses: Vec::new(),
            inbox: tokio::sync::Mutex::new(inbox),
        };
        for network in &self.0.networks {
            let mut lent = self.lent();
            let of_key = lent
                .iter()
                .filter(|(address, other)| other.key == key && network.contains(*address))
                .count();
            let free = (of_key < MOST_OF_ONE)
                .then(|| candidates(network, &key).find(|address| !lent.contains_key(address)))
                .flatten();
            let Some(address) = free else {
                return Err(Refusal {
                    kind: ErrorKind::ConnectionLimitReached,
                    detail: format!("no address of {network} is free for this terminal"),
                });
            };
            let session = session.clone();
            lent.insert(address, Lent { key, session });
            drop(lent);
            lease.addresses.push(address);
        }
        Ok(lease)
    }
}

/// The addresses of `network` that the terminal with `key` may have, its preferred first: not
/// the network's own, the gateway's nor the last.
fn candidates(network: &IpNet, key: &Fingerprint) -> impl Iterator<Item = IpAddr> + use<> {
    let network = *network;
    let bits = network.max_prefix_len() - network.prefix_len();
    let hosts = (1u32 << bits.min(16)).saturating_sub(3);
    let [a, b, c, d, ..] = *key.as_bytes();
    let first = u32::from_be_bytes([a, b, c, d]);
    (0..hosts.min(TRIED)).map(move |tried| nth(&network, 2 + first.wrapping_add(tried) % hosts))
}

/// The address with number `n` of `network`.
fn nth(network: &IpNet, n: u32) -> IpAddr {
    match network {
        IpNet::V4(network) => {
            std::net::Ipv4Addr::from(u32::from(network.network()).wrapping_add(n)).into()
        }
        IpNet::V6(network) => {
            std::net::Ipv6Addr::from(u128::from(network.network()).wrapping_add(n.into())).into()
        }
    }
}

/// Addresses that are a session's until this is dropped.
pub(super) struct Lease {
    network: IpNetwork,
    pub(super) addresses: Vec<IpAddr>,
    inbox: tokio::sync::Mutex<mpsc::Receiver<Vec<u8>>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut lent = self.network.lent();
        for address in &self.addresses {
            lent.remove(address);
        }
    }
}

impl Lease {
    /// The next packet for the session.
    pub(super) async fn next(&self) -> Option<Vec<u8>> {
        self.inbox.lock().await.recv().await
    }

    /// Hands a packet of the session's to the machine.
    pub(super) fn send(&self, packet: &[u8]) {
        self.network.0.device.send(packet);
    }

    /// The networks that all terminals' addresses are of.
    pub(super) fn networks(&self) -> &[IpNet] {
        &self.network.0.networks
    }
}
