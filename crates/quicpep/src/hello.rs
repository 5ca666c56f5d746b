//! A client's first flight, read before it is answered: the server name and the application
//! protocols of its TLS ClientHello (RFC 8446, section 4.1.2).
//!
//! The keys of Initial packets follow from a connection ID that everybody sees (RFC 9001,
//! section 5.2). [`Hellos::tap`] goes below the QUIC library and reads the CRYPTO frames of
//! what comes in; a ClientHello may span packets and come in pieces out of order. The TLS
//! library takes it apart.
//!
//! Memory is bounded by [`MOST`] flights of [`LONGEST`] bytes; the oldest goes.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_quic::layer::{self, Layer};
use bentpipe_quic::version2::socket::Version2;
use bytes::{Buf as _, BytesMut};
use noq::udp::RecvMeta;
use noq::{AsyncUdpSocket, ConnectionId, PathId};
use noq_proto::crypto::ServerConfig as Crypto;
use rustls::server::{ClientHello as TlsHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::Notify;

/// Flights that are kept.
const MOST: usize = 1024;
/// What a flight may take, bytes: with post-quantum keys a ClientHello has about 2000.
const LONGEST: usize = 16 * 1024;
/// What a piece takes beside its data, bytes, at most.
const PIECE: usize = 64;
/// Application protocols of a client that are read: real ones offer fewer than six.
const PROTOCOLS: usize = 16;

/// What a client asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The server's name (RFC 6066, section 3).
    pub server_name: Option<String>,
    /// Application protocols, the preferred first (RFC 7301).
    pub protocols: Vec<Vec<u8>>,
}

impl ClientHello {
    /// For a server of that name, with those of `protocols` for which there is room.
    pub(crate) fn new(name: Option<String>, protocols: impl Iterator<Item = Vec<u8>>) -> Self {
        Self {
            server_name: name,
            protocols: protocols.take(PROTOCOLS).collect(),
        }
    }
}

/// The first flights that come in through one socket. Clones are the same.
#[derive(Clone)]
pub struct Hellos(Arc<Shared>);

struct Shared {
    crypto: Arc<dyn Crypto>,
    flights: Mutex<Flights>,
    complete: Notify,
}

#[derive(Default)]
struct Flights {
    by_id: BTreeMap<(SocketAddr, ConnectionId), Flight>,
    /// In the order of arrival.
    order: VecDeque<(SocketAddr, ConnectionId)>,
}

/// What has come of one ClientHello.
#[derive(Default)]
struct Flight {
    /// By their offsets; they may overlap.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// What they take, bytes.
    held: usize,
    hello: Option<ClientHello>,
}

impl Hellos {
    /// Reads with the Initial keys of `crypto`.
    pub fn new(crypto: Arc<dyn Crypto>) -> Self {
        Self(Arc::new(Shared {
            crypto,
            flights: Mutex::default(),
            complete: Notify::new(),
        }))
    }

    /// `socket`, with an eye on what comes in. QUIC version 2 looks like version 1 above it.
    pub fn tap(&self, socket: Box<dyn AsyncUdpSocket>) -> Box<dyn AsyncUdpSocket> {
        Tap(self.clone()).over(Version2.over(socket))
    }

    /// Waits for the ClientHello of the connection that `from` begins with the connection ID
    /// `id`, and forgets it.
    pub async fn take(&self, from: SocketAddr, id: ConnectionId) -> ClientHello {
        loop {
            let mut complete = std::pin::pin!(self.0.complete.notified());
            complete.as_mut().enable();
            if let Some(hello) = self.lock().take((from, id)) {
                return hello;
            }
            complete.await;
        }
    }

    /// Reads the Initial packets at the beginning of a datagram.
    pub fn read(&self, from: SocketAddr, datagram: &[u8]) {
        let Some(initial) = Initial::parse(datagram) else {
            return;
        };
        let key = (from, initial.destination);
        if self.lock().is_known(&key) {
            return;
        }
        let Some(payload) = initial.decrypt(&*self.0.crypto, datagram) else {
            return;
        };
        let mut flights = self.lock();
        let flight = flights.flight(key);
        flight.add(&payload);
        if flight.hello.is_some() {
            drop(flights);
            self.0.complete.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Flights> {
        self.0
            .flights
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Hellos {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Hellos")
    }
}

impl Flights {
    /// Whether its ClientHello is there already.
    fn is_known(&self, key: &(SocketAddr, ConnectionId)) -> bool {
        (self.by_id.get(key)).is_some_and(|flight| flight.hello.is_some())
    }

    fn flight(&mut self, key: (SocketAddr, ConnectionId)) -> &mut Flight {
        if !self.by_id.contains_key(&key) {
            self.order.push_back(key);
            while self.order.len() > MOST
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_id.remove(&oldest);
            }
        }
        self.by_id.entry(key).or_default()
    }

    fn take(&mut self, key: (SocketAddr, ConnectionId)) -> Option<ClientHello> {
        // What has been taken stays known, so that a repeated packet is not read again.
        self.by_id.get(&key)?.hello.clone()
    }
}

impl Flight {
    /// Adds the CRYPTO frames of a packet (RFC 9000, section 19.6).
    fn add(&mut self, mut payload: &[u8]) {
        while let Some((&kind, rest)) = payload.split_first() {
            payload = rest;
            match kind {
                // PADDING and PING.
                0x00 | 0x01 => {}
                0x06 => {
                    let (Some(offset), Some(length)) = (varint(&mut payload), varint(&mut payload))
                    else {
                        return;
                    };
                    let Ok(length) = usize::try_from(length) else {
                        return;
                    };
                    let Some((data, rest)) = payload.split_at_checked(length) else {
                        return;
                    };
                    payload = rest;
                    self.keep(offset, data);
                }
                // A client that has heard nothing yet has nothing else to say.
                _ => break,
            }
        }
        let start = self.start();
        // Message type and length (RFC 8446, section 4).
        if let [1, high, middle, low, ..] = start[..]
            && start.len()
                >= 4 + usize::from(high) * 65536 + usize::from(middle) * 256 + usize::from(low)
        {
            self.hello = Some(parse(&start));
            self.pieces.clear();
        }
    }

    /// Keeps a piece, if there is room for it; what is sent again may be longer.
    fn keep(&mut self, offset: u64, data: &[u8]) {
        let before = self.pieces.get(&offset).map_or(0, |piece| piece.len());
        let more = data.len().saturating_sub(before) + PIECE;
        if data.len() > before && self.held + more <= LONGEST {
            self.held += more;
            self.pieces.insert(offset, data.to_vec());
        }
    }

    /// What has come without a gap.
    fn start(&self) -> Vec<u8> {
        let mut start = Vec::new();
        for (&offset, piece) in &self.pieces {
            let Ok(offset) = usize::try_from(offset) else {
                break;
            };
            let Some(have) = start.len().checked_sub(offset) else {
                break;
            };
            start.extend_from_slice(piece.get(have..).unwrap_or_default());
        }
        start
    }
}

/// The ClientHello in what a client's first packets hold, once it is whole.
pub fn in_payloads<'a>(payloads: impl IntoIterator<Item = &'a [u8]>) -> Option<ClientHello> {
    let mut flight = Flight::default();
    for payload in payloads {
        flight.add(payload);
    }
    flight.hello
}

/// Takes a ClientHello apart; one that the TLS library refuses asks for nothing, and the
/// handshake will tell its client why.
fn parse(message: &[u8]) -> ClientHello {
    let listener = Arc::new(Listener::default());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(listener.clone());
    let version = rustls::quic::Version::V1;
    if let Ok(mut connection) =
        rustls::quic::ServerConnection::new(Arc::new(tls), version, Vec::new())
    {
        // It fails where a certificate would be needed; all is heard by then.
        let _ = connection.read_hs(message);
    }
    let mut heard = listener.0.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *heard)
}

/// Hears what a client asks for, and has no certificate.
#[derive(Debug, Default)]
struct Listener(Mutex<ClientHello>);

impl ResolvesServerCert for Listener {
    fn resolve(&self, hello: TlsHello<'_>) -> Option<Arc<CertifiedKey>> {
        let heard = ClientHello::new(
            hello.server_name().map(str::to_owned),
            (hello.alpn().into_iter().flatten()).map(<[u8]>::to_vec),
        );
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = heard;
        None
    }
}

/// An Initial packet's header (RFC 9000, section 17.2.2).
struct Initial {
    version: u32,
    destination: ConnectionId,
    /// Where the packet number begins, and where the packet ends.
    number_at: usize,
    end: usize,
}

impl Initial {
    fn parse(datagram: &[u8]) -> Option<Self> {
        let mut rest = datagram;
        let first = rest.split_off_first()?;
        // Long header, and Initial: in version 1 and its drafts the type is 0.
        if first & 0xf0 != 0xc0 {
            return None;
        }
        let version = u32::from_be_bytes(rest.split_off(..4)?.try_into().ok()?);
        let length = usize::from(*rest.split_off_first()?);
        let destination = rest.split_off(..length)?;
        if destination.len() > 20 {
            return None;
        }
        let length = usize::from(*rest.split_off_first()?);
        rest.split_off(..length)?;
        let token = usize::try_from(varint(&mut rest)?).ok()?;
        rest.split_off(..token)?;
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let number_at = datagram.len() - rest.len();
        let end = number_at.checked_add(length)?;
        // The sample of header protection lies after the longest packet number.
        (end <= datagram.len() && length >= 20).then(|| Self {
            version,
            destination: ConnectionId::new(destination),
            number_at,
            end,
        })
    }

    fn decrypt(&self, crypto: &dyn Crypto, datagram: &[u8]) -> Option<BytesMut> {
        let keys = crypto.initial_keys(self.version, self.destination).ok()?;
        let mut packet = BytesMut::from(&datagram[..self.end]);
        keys.header.remote.decrypt(self.number_at, &mut packet);
        let number_length = usize::from(packet[0] & 3) + 1;
        let mut payload = packet.split_off(self.number_at + number_length);
        // A client's first packets have numbers that begin at 0 and are not shortened.
        let number = packet[self.number_at..]
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte));
        keys.packet
            .remote
            .decrypt(PathId::ZERO, number, &packet, &mut payload)
            .ok()?;
        Some(payload)
    }
}

/// Reads a variable-length integer (RFC 9000, section 16).
fn varint(data: &mut &[u8]) -> Option<u64> {
    let length = 1 << (data.first()? >> 6);
    let mut bytes = data.split_off(..length)?;
    let value = bytes.get_uint(length);
    Some(value & (u64::MAX >> (66 - 8 * length)))
}

/// Over a socket whose first flights are read.
#[derive(Debug)]
struct Tap(Hellos);

impl Layer for Tap {
    fn on_received(&mut self, buffers: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) {
        for (buffer, meta) in buffers.iter().zip(meta) {
            for datagram in layer::datagrams(&buffer[..meta.len], Some(meta.stride)) {
                self.0.read(meta.addr, datagram);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CRYPTO frame.
    fn frame(offset: u16, data: &[u8]) -> Vec<u8> {
        let [high, low] = (offset | 0x4000).to_be_bytes();
        let length = u8::try_from(data.len()).expect("short");
        [&[0x06, high, low, length], data].concat()
    }

    #[test]
    fn tiny_pieces_take_no_more_than_a_flight_may() {
        for data in [&b""[..], b"x"] {
            let mut flight = Flight::default();
            for offset in 1..16_000 {
                flight.add(&frame(offset, data));
            }
            let taken: usize = (flight.pieces.values())
                .map(|piece| piece.capacity() + PIECE)
                .sum();
            assert!(taken <= LONGEST, "{taken} bytes");
        }
    }

    /// A client may cut what it sends again otherwise.
    #[test]
    fn a_piece_that_comes_again_longer_is_read() {
        let mut flight = Flight::default();
        flight.add(&frame(0, b"ab"));
        flight.add(&frame(4, b"ef"));
        flight.add(&frame(0, b"abcd"));
        flight.add(&frame(0, b"a"));
        assert_eq!(flight.start(), b"abcdef");
    }

    #[test]
    fn protocols_of_a_client_are_bounded() {
        let offered = (0..8_000_u16).map(|number| number.to_be_bytes().to_vec());
        let hello = ClientHello::new(None, offered);
        assert_eq!(hello.protocols.len(), PROTOCOLS);
        assert_eq!(hello.protocols[1], [0, 1]);
    }
}
