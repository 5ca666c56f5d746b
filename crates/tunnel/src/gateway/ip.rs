//! IP packets of terminals (CONNECT-IP), and which of them may leave.
//!
//! The gateway is a router between its sessions and a network interface of its own: it lends a
//! terminal addresses of the interface's network ([`super::ip_network`]), and hands the machine those of its packets
//! that egress and the terminal's policy let through. Everything else of a router, forwarding,
//! hop limits, translation of addresses, errors, is the machine's.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bentpipe_quic::clock::now;
use bytes::Bytes;
use tokio::time::Instant;

use super::client::RequestStream;
use super::ip_network::{IpNetwork, Lease};
use super::requests::{Peer, Requests, refuse};
use super::usage::Place;
use crate::flow::FlowError;
use crate::flow::ip::{self, Packets};
use crate::flow::packet::{self, Header, Why};
use crate::flow::stream::{Down as _, Up as _};
use crate::flow::udp::Activity;
use crate::sockets::Dial;
use crate::target::{Host, Target};
use crate::wire::capsule::MalformedCapsule;
use crate::wire::connect_ip::{self, ADDRESS_ASSIGN, ADDRESS_REQUEST, Address};
use crate::wire::connect_udp;
use crate::wire::proxy_status::{ErrorKind, Refusal};

/// How long the machine's own addresses are believed.
const OWN_ADDRESSES: Duration = Duration::from_secs(1);

/// The machine's side of a terminal's packets: its router.
struct Router<'a, D> {
    requests: &'a Requests<D>,
    lease: Lease,
    place: &'a Place,
    /// The gateway's addresses, and when they were asked for.
    own: Mutex<Option<(Instant, Arc<[IpAddr]>)>>,
}

impl<D: Dial> Packets for Router<'_, D> {
    async fn next(&self) -> Result<Vec<u8>, FlowError> {
        let next = self.lease.next().await;
        // The sender is in the network, until the lease is over.
        next.ok_or(FlowError::Stopped)
    }

    fn take(&self, packet: Bytes) -> Result<Option<Vec<u8>>, FlowError> {
        let Some(header) = Header::read(&packet) else {
            return Ok(None);
        };
        // Section 11 of RFC 9484: nobody sends as another.
        if !self.lease.addresses.contains(&header.source) {
            return Ok(None);
        }
        match self.check(&header) {
            Ok(()) => {
                self.lease.send(&packet);
                Ok(None)
            }
            Err(why) => {
                tracing::debug!("packet denied: {why}");
                let networks = self.lease.networks().iter();
                let from = networks
                    .map(IpNetwork::gateway_address)
                    .find(|from| from.is_ipv4() == header.source.is_ipv4());
                Ok(from.and_then(|from| packet::error(&header, &packet, from, Why::Prohibited)))
            }
        }
    }

    fn told(&self, kind: u64, content: &[u8]) -> Result<Option<Bytes>, MalformedCapsule> {
        if kind != ADDRESS_REQUEST {
            return Ok(None);
        }
        let asked = connect_ip::read_addresses(content)?;
        let answers: Vec<_> = asked.iter().map(|asked| self.answer(asked)).collect();
        Ok(Some(connect_ip::addresses(ADDRESS_ASSIGN, &answers)))
    }
}

impl<D: Dial> Router<'_, D> {
    /// The address that is assigned for one that is asked for: the same whatever is asked for,
    /// or none, of a family that there is no network of (section 4.7.2).
    fn answer(&self, asked: &Address) -> Address {
        let same_family = |address: &&IpAddr| address.is_ipv4() == asked.address.is_ipv4();
        let none = match asked.address {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0; 16]),
        };
        let assigned = self.lease.addresses.iter().find(same_family);
        Address::whole(asked.request, assigned.copied().unwrap_or(none))
    }

    /// What the terminal is told first: its addresses, and where they lead.
    fn begin(&self) -> Bytes {
        let mut assigned = Vec::new();
        let mut protocols = [None, None];
        for address in &self.lease.addresses {
            assigned.push(Address::whole(0, *address));
            let family = usize::from(address.is_ipv6());
            let permitted = self.place.policy().ip.iter();
            let mut numbers: Vec<_> = permitted.map(|p| p.numbers()[family]).collect();
            numbers.sort_unstable();
            numbers.dedup();
            if numbers.first() == Some(&0) {
                numbers.truncate(1);
            }
            protocols[family] = Some(numbers);
        }
        let [ipv4, ipv6] = &protocols;
        let mut capsules = connect_ip::addresses(ADDRESS_ASSIGN, &assigned).to_vec();
        capsules.extend(connect_ip::routes([ipv4.as_deref(), ipv6.as_deref()]));
        capsules.into()
    }

    /// Whether a packet may leave. The error says why not.
    fn check(&self, header: &Header) -> Result<(), String> {
        let Header {
            destination,
            protocol,
            ..
        } = *header;
        let policy = self.place.policy();
        let family = usize::from(destination.is_ipv6());
        let permitted = policy
            .ip
            .iter()
            .map(|permitted| permitted.numbers()[family]);
        if !permitted
            .into_iter()
            .any(|number| number == 0 || number == protocol)
        {
            return Err(format!(
                "protocol {protocol} is not in this terminal's policy.ip"
            ));
        }
        // What belongs to a link, not to a network: redirects, and neighbour discovery.
        let of_link = match header.icmp {
            Some(kind) if destination.is_ipv4() => kind == 5,
            Some(kind) => matches!(kind, 130..=137 | 143),
            None => false,
        };
        if of_link {
            return Err("it is ICMP of a link".into());
        }
        if header.fragment && policy.has_ports() && !header.is_icmp() {
            return Err("it is a fragment, and the policy goes by ports".into());
        }
        if self
            .lease
            .networks()
            .iter()
            .any(|n| n.contains(&destination))
        {
            return Err(format!("{destination} is in the network of terminals"));
        }
        let own = self.own_addresses()?;
        let target = Target {
            host: Host::Address(destination),
            port: header.port.unwrap_or(0),
        };
        self.requests
            .dialler
            .check(&target, destination, policy, &own)
    }

    fn own_addresses(&self) -> Result<Arc<[IpAddr]>, String> {
        let mut known = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        if let Some((at, addresses)) = &*known
            && now - *at < OWN_ADDRESSES
        {
            return Ok(addresses.clone());
        }
        let addresses = self.requests.dialler.own_addresses();
        let addresses: Arc<[IpAddr]> = addresses.map_err(|refusal| refusal.detail)?;
        *known = Some((now, addresses.clone()));
        Ok(addresses)
    }
}

impl<D: Dial> Requests<D> {
    /// Carries packets between `stream`, a request for the host with number `host`, and the
    /// gateway's network.
    pub(super) async fn carry_ip(
        self: Arc<Self>,
        mut stream: RequestStream,
        peer: Arc<Peer>,
        host: u32,
    ) {
        // What arrives meanwhile is kept.
        let datagrams =
            peer.flows
                .datagrams
                .open(stream.send_id(), host.into(), packet::mark_congested);
        let stopped = peer.flows.stops.stopped(stream.send_id());
        let (mut place, lease) = match self.open_ip(&peer) {
            Ok(opened) => opened,
            Err(refusal) => {
                tracing::debug!("IP packets refused: {refusal}");
                self.tally.failed(refusal.kind.name());
                Box::pin(refuse(stream, &refusal)).await;
                return;
            }
        };
        let accepted = stream.send_response(connect_udp::accepted());
        if Box::pin(accepted).await.is_err() {
            return;
        }
        tracing::debug!(addresses = ?lease.addresses, "IP packets begin");
        let _open = self.tally.open_udp();
        let activity = Activity::default();
        let (mut up, mut down) = stream.split();
        let router = Router {
            requests: &self,
            lease,
            place: &place,
            own: Mutex::default(),
        };
        let result = ip::carry(
            &router,
            &datagrams,
            (&mut up, &mut down),
            router.begin(),
            async |_: &mut _| Ok(()),
            stopped,
            &activity,
        )
        .await;
        drop(router);
        match &result {
            // An error means that nobody is there to hear it.
            Ok(()) => drop(Box::pin(up.finish()).await),
            Err(_) => up.abort(),
        }
        down.abort();
        let carried = activity.carried();
        place.add(carried.up + carried.down);
        self.tally.over(carried, &result);
        tracing::debug!("IP packets ended: {result:?}");
    }

    fn open_ip(&self, peer: &Peer) -> Result<(Place, Lease), Refusal> {
        let prohibited = |detail: &str| Refusal {
            kind: ErrorKind::DestinationIpProhibited,
            detail: detail.into(),
        };
        let network = self.ip.as_ref().ok_or_else(|| {
            prohibited(
                "the gateway has no network for IP packets; its operator can give it one in [ip]",
            )
        })?;
        let place = self.usages.enter(peer.key, &self.policies)?;
        if place.policy().ip.is_empty() {
            return Err(prohibited(
                "IP packets are not allowed to this terminal; the gateway's operator can in policy.ip",
            ));
        }
        Ok((place, network.lend(peer.key)?))
    }
}
