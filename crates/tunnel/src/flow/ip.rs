//! A flow of IP packets: the local side, and a request of the tunnel (RFC 9484).
//!
//! The rules, the same at both ends of the tunnel:
//!
//! - A packet is one QUIC DATAGRAM frame; one that is too long for that is a capsule on the
//!   request's stream. None is cut or joined: cutting is for the routers on either side, whose
//!   device has an MTU of [`MTU`] although QUIC packets are shorter.
//! - The flow ends when the other end has ended its half of the stream, or either side fails.

use std::future::Future;

use bentpipe_quic::datagrams::FlowDatagrams;
use bentpipe_quic::drops::{DropCause, Drops};
use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::sync::mpsc;

use super::outcome::FlowError;
use super::stream::{Down, Up};
use super::udp::Activity;
use crate::wire::capsule::{self, MalformedCapsule};
use crate::wire::connect_ip::{ADDRESS_ASSIGN, ADDRESS_REQUEST, ROUTE_ADVERTISEMENT};
use crate::wire::datagram::{self, ContentError, UDP_PAYLOAD};

/// The longest packet of devices at both ends, bytes: an Ethernet's.
pub const MTU: u32 = 1500;
/// Answers to packets and capsules that wait to be sent; more are dropped.
const ANSWERS: usize = 64;
/// Packets that are taken from the local side before others have their turn.
const BURST: usize = 64;

/// The local side of a flow of packets.
pub trait Packets: Send + Sync {
    /// The next packet for the tunnel.
    fn next(&self) -> impl Future<Output = Result<Vec<u8>, FlowError>> + Send;

    /// Takes a packet from the tunnel. The value is one that goes back, if any.
    fn take(&self, packet: Bytes) -> Result<Option<Vec<u8>>, FlowError>;

    /// Takes a capsule of type `kind`. The value is one that goes back, if any.
    fn told(&self, kind: u64, content: &[u8]) -> Result<Option<Bytes>, MalformedCapsule>;
}

/// What goes into the tunnel.
enum Outgoing {
    Packet(Vec<u8>),
    Capsule(Bytes),
}

/// Carries a flow between `packets` and a request, as [`super::udp::carry`] does; `begin` is
/// sent first.
pub async fn carry<U: Up, D: Down>(
    packets: &impl Packets,
    datagrams: &FlowDatagrams,
    (up, down): (&mut U, &mut D),
    begin: Bytes,
    opened: impl AsyncFnOnce(&mut D) -> Result<(), FlowError>,
    stopped: impl Future<Output = ()> + Send,
    activity: &Activity,
) -> Result<(), FlowError> {
    let (answer, mut answers) = mpsc::channel(ANSWERS);
    // An answer that finds no room is lost, as any packet may be.
    let take = |packet: Bytes| -> Result<(), FlowError> {
        activity.count_down(packet.len());
        if let Some(packet) = packets.take(packet)? {
            drop(answer.try_send(Outgoing::Packet(packet)));
        }
        Ok(())
    };
    let upward = async {
        up.send(begin).await?;
        let mut burst = 0;
        loop {
            let outgoing = tokio::select! {
                biased;
                Some(outgoing) = answers.recv() => outgoing,
                packet = packets.next() => Outgoing::Packet(packet?),
            };
            match outgoing {
                Outgoing::Packet(packet) => {
                    activity.count_up(packet.len());
                    let mut content = BytesMut::with_capacity(1 + packet.len());
                    content.put_u8(UDP_PAYLOAD);
                    content.extend_from_slice(&packet);
                    if datagrams.send(&content).is_err() {
                        up.send(capsule::datagram(&content)).await?;
                    }
                }
                Outgoing::Capsule(capsule) => up.send(capsule).await?,
            }
            burst += 1;
            if burst % BURST == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    let beside_the_stream = async {
        loop {
            for content in datagrams.receive().await {
                if let Some(packet) = packet(content, datagrams.drops())? {
                    take(packet)?;
                }
            }
        }
    };
    let on_the_stream = async {
        opened(&mut *down).await?;
        let mut capsules =
            capsule::Reader::taking(&[ADDRESS_ASSIGN, ADDRESS_REQUEST, ROUTE_ADVERTISEMENT]);
        while let Some(data) = down.receive().await? {
            capsules.take(&data);
            while let Some((kind, content)) = capsules.next_capsule()? {
                if kind == capsule::DATAGRAM {
                    if let Some(packet) = packet(content, datagrams.drops())? {
                        take(packet)?;
                    }
                } else if let Some(capsule) = packets.told(kind, &content)? {
                    drop(answer.try_send(Outgoing::Capsule(capsule)));
                }
            }
            if !datagrams.may_hold(capsules.held()) && capsules.skip() {
                (datagrams.drops()).add(DropCause::ReceiveQueueFull, 1);
            }
        }
        capsules.end()?;
        Ok(())
    };
    tokio::select! {
        biased;
        result = on_the_stream => result,
        result = beside_the_stream => result,
        result = upward => result,
        () = stopped => Ok(()),
    }
}

/// The packet of a datagram's content; none if it is of another context (section 6).
fn packet(content: Bytes, drops: &Drops) -> Result<Option<Bytes>, FlowError> {
    match datagram::udp_payload(content) {
        Ok(packet) => Ok(Some(packet)),
        Err(ContentError::UnknownContext(_)) => {
            drops.add(DropCause::UnknownContext, 1);
            Ok(None)
        }
        Err(ContentError::Malformed) => Err(FlowError::Malformed),
    }
}
