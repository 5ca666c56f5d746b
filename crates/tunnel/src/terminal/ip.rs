//! IP packets at the terminal, of a network interface: one request for all of them (RFC 9484).

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::flows::{Terminal, answered, within_patience};
use super::session::{DownStream, Session};
use crate::flow::FlowError;
use crate::flow::ip::{self, Packets};
use crate::flow::packet::{self, Header, Why};
use crate::flow::stream::{Down as _, Up as _};
use crate::flow::udp::Activity;
use crate::sockets::PacketDevice;
use crate::wire::capsule::MalformedCapsule;
use crate::wire::connect_ip::{self, ADDRESS_ASSIGN, ADDRESS_REQUEST, Address};
use crate::wire::proxy_status::Refusal;

/// How long it is until a gateway is asked again that has refused, or ended the request.
const REFUSED: Duration = Duration::from_secs(30);
const ENDED: Duration = Duration::from_secs(1);

impl Terminal {
    /// Carries the packets of `device`, and gives it the addresses that the gateway assigns,
    /// until it fails. While there is no way, senders are told by ICMP.
    pub async fn carry_ip(&self, device: &impl PacketDevice) -> io::Error {
        let mut told = None;
        loop {
            let session = self.open_session();
            let session = match turned_away(device, Why::Unreachable, session).await {
                Ok(Ok(session)) => session,
                Ok(Err(_)) => continue,
                Err(error) => return error,
            };
            let activity = Activity::default();
            let open = self.tally.open_udp();
            let result = self.exchange(&session, device, &activity).await;
            drop(open);
            self.tally.over(activity.carried(), &result);
            let (why, wait) = match result {
                Ok(()) => (Why::Unreachable, ENDED),
                Err(FlowError::Local(error)) => return error,
                Err(FlowError::Refused(refusal)) => {
                    // A gateway that says the same again is not worth another line.
                    let refusal = refusal.to_string();
                    if told.as_ref() != Some(&refusal) {
                        tracing::warn!(
                            "the gateway carries no IP packets for this terminal: {refusal}"
                        );
                    }
                    told = Some(refusal);
                    (Why::Prohibited, REFUSED)
                }
                Err(error) => {
                    tracing::debug!("IP packets ended: {error}");
                    (Why::Unreachable, ENDED)
                }
            };
            let again = async {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    // Another gateway may say otherwise.
                    _ = session.closed() => tokio::time::sleep(ENDED).await,
                }
            };
            if let Err(error) = turned_away(device, why, again).await {
                return error;
            }
        }
    }

    async fn exchange(
        &self,
        session: &Session,
        device: &impl PacketDevice,
        activity: &Activity,
    ) -> Result<(), FlowError> {
        // RFC 9220, section 3, and RFC 9297, section 2.1.1: the gateway's settings come first.
        let accepted = within_patience(session, session.accepted()).await?;
        accepted.map_err(|_| FlowError::NoSession)?;
        let stream = session.connect_ip().await?;
        let id = stream.id();
        let datagrams = session
            .flows()
            .datagrams
            .open(id, 0, packet::mark_congested);
        let stopped = session.flows().stops.stopped(id);
        let (mut up, mut down) = stream.split();
        let opened = async |down: &mut DownStream| {
            let answer = answered(session, down.recv_response()).await?;
            Refusal::read(&answer).map_err(FlowError::Refused)
        };
        let local = Local {
            device,
            assigned: Mutex::default(),
        };
        // Any address of either family.
        let asked = [IpAddr::from([0; 4]), IpAddr::from([0; 16])];
        let asked = [1, 2].map(|n: u64| Address::whole(n, asked[usize::from(n == 2)]));
        let begin = connect_ip::addresses(ADDRESS_REQUEST, &asked);
        let halves = (&mut up, &mut down);
        let result = ip::carry(&local, &datagrams, halves, begin, opened, stopped, activity).await;
        match &result {
            // An error means that nobody is there to hear it.
            Ok(()) => drop(up.finish().await),
            Err(_) => up.abort(),
        }
        down.abort();
        result
    }
}

/// Awaits `other` while senders of packets are told `why` there is no way for these. The error
/// is the device's.
async fn turned_away<T>(
    device: &impl PacketDevice,
    why: Why,
    other: impl Future<Output = T>,
) -> io::Result<T> {
    let tell = async {
        loop {
            let packet = std::future::poll_fn(|context| device.poll_receive(context)).await;
            let packet = match packet {
                Ok(packet) => packet,
                Err(error) => return error,
            };
            if let Some(header) = Header::read(&packet) {
                tell(device, &header, &packet, why);
            }
        }
    };
    tokio::select! {
        other = other => Ok(other),
        error = tell => Err(error),
    }
}

/// Tells the sender of `packet` why it goes no further, in the name of its destination: an
/// address of this machine's own would not be believed to come from outside.
fn tell(device: &impl PacketDevice, header: &Header, packet: &[u8], why: Why) {
    if let Some(error) = packet::error(header, packet, header.destination, why) {
        device.send(&error);
    }
}

/// The interface, and the addresses that it was given for this session.
struct Local<'a, D> {
    device: &'a D,
    assigned: Mutex<Vec<IpAddr>>,
}

impl<D: PacketDevice> Packets for Local<'_, D> {
    async fn next(&self) -> Result<Vec<u8>, FlowError> {
        loop {
            let packet = std::future::poll_fn(|context| self.device.poll_receive(context));
            let packet = packet.await.map_err(FlowError::Local)?;
            let Some(header) = Header::read(&packet) else {
                continue;
            };
            let assigned = self.assigned.lock().unwrap_or_else(PoisonError::into_inner);
            if assigned.contains(&header.source) {
                return Ok(packet);
            }
            drop(assigned);
            tell(self.device, &header, &packet, Why::Unreachable);
        }
    }

    fn take(&self, packet: Bytes) -> Result<Option<Vec<u8>>, FlowError> {
        // The gateway speaks to this terminal, not to what is behind or beside it.
        let assigned = self.assigned.lock().unwrap_or_else(PoisonError::into_inner);
        if Header::read(&packet).is_some_and(|header| assigned.contains(&header.destination)) {
            self.device.send(&packet);
        }
        Ok(None)
    }

    fn told(&self, kind: u64, content: &[u8]) -> Result<Option<Bytes>, MalformedCapsule> {
        if kind != ADDRESS_ASSIGN {
            return Ok(None);
        }
        let mut addresses: Vec<_> = connect_ip::read_addresses(content)?
            .iter()
            .map(|assigned| assigned.address)
            .filter(|address| {
                !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
            })
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut assigned = self.assigned.lock().unwrap_or_else(PoisonError::into_inner);
        if *assigned != addresses {
            tracing::debug!(?addresses, "addresses for IP packets");
            if let Err(error) = self.device.set_addresses(&addresses) {
                tracing::error!("the interface for IP packets cannot have {addresses:?}: {error}");
            }
            *assigned = addresses;
        }
        Ok(None)
    }
}
