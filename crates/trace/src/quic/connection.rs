//! One connection: its ends, its keys, and how far its packet numbers have come.

use std::net::SocketAddr;

use super::bytes::Input;
use super::header::{Id, Kind};
use super::keys::{Keys, NextKeys, Suite};
use super::tls::{self, TransportParameters};
use crate::keylog::KeyLog;
use crate::ranges::Ranges;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Who began.
    Client,
    /// Who answered.
    Server,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A packet number space (RFC 9000, section 12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Of Initial packets.
    Initial,
    /// Of Handshake packets.
    Handshake,
    /// Of 0-RTT and 1-RTT packets.
    Application,
}

impl Space {
    /// That of packets of `kind`, which have numbers.
    pub const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Initial => Some(Self::Initial),
            Kind::Handshake => Some(Self::Handshake),
            Kind::ZeroRtt | Kind::OneRtt => Some(Self::Application),
            Kind::Retry | Kind::VersionNegotiation => None,
        }
    }
}

/// One connection.
pub struct Connection {
    /// Its number in the trace, from 0 on.
    pub number: u32,
    /// Version of the packets at its beginning.
    pub version: u32,
    /// Where the client was first.
    pub client: SocketAddr,
    /// Where the server was first.
    pub server: SocketAddr,
    /// Destination of the client's first packet.
    pub original_destination: Id,
    /// Of its ClientHello, once that is known.
    pub client_random: Option<[u8; 32]>,
    /// Of its ServerHello, once that is known.
    pub suite: Option<Suite>,
    /// Whether the server sent a Retry.
    pub retried: bool,
    /// Whether the key log has secrets of it.
    pub has_secrets: bool,
    /// The application protocol that the server chose.
    pub protocol: Option<String>,
    /// The first one that the client offered: what its early data are of.
    offered: Option<String>,
    /// The transport parameters of client and server.
    pub parameters: [Option<TransportParameters>; 2],
    pub(super) client_half: Half,
    pub(super) server_half: Half,
    /// What Initial packets are protected with: the version, and the ID that the keys are from.
    initial: (u32, Id),
    hellos: [Messages; 2],
    /// The server's messages that follow its ServerHello.
    answer: Messages,
}

/// What one side sends with.
pub(super) struct Half {
    pub initial: Keys,
    pub zero_rtt: Option<Box<Keys>>,
    pub handshake: Option<Box<Keys>>,
    pub one_rtt: Option<Box<OneRtt>>,
    pub largest: Largest,
}

/// Largest packet numbers so far, by space, at each interface: a packet that passes several is late at some of
/// them, and the part of its number that it has is meant for who has seen no later ones.
#[derive(Default)]
pub(super) struct Largest(Vec<(u32, [Option<u64>; 3])>);

impl Largest {
    /// Interfaces beyond that count as the last.
    const MOST: usize = 16;

    /// The largest number before a packet at `interface`.
    pub fn at(&self, interface: u32, space: Space) -> Option<u64> {
        let here = (self.0.iter()).find(|(at, _)| *at == interface);
        here.and_then(|(_, largest)| largest[space as usize])
    }

    /// The largest number at any interface.
    pub fn anywhere(&self, space: Space) -> Option<u64> {
        let all = self.0.iter().map(|(_, largest)| largest[space as usize]);
        all.max().flatten()
    }

    /// `number` has been seen at `interface`.
    pub fn seen(&mut self, interface: u32, space: Space, number: Option<u64>) {
        let here = self.0.iter().position(|(at, _)| *at == interface);
        let place = here.unwrap_or_else(|| {
            if self.0.len() < Self::MOST {
                self.0.push((interface, [None; 3]));
            }
            self.0.len() - 1
        });
        let largest = &mut self.0[place].1[space as usize];
        *largest = (*largest).max(number);
    }
}

/// 1-RTT keys through updates.
pub(super) struct OneRtt {
    pub keys: Keys,
    pub next: NextKeys,
    pub previous: Option<NextKeys>,
    pub phase: bool,
    /// The least packet number of this phase.
    since: u64,
}

impl OneRtt {
    fn new(keys: Keys) -> Self {
        Self {
            next: keys.next(),
            previous: None,
            phase: false,
            since: 0,
            keys,
        }
    }

    /// Decrypts what follows the first `head` bytes of `packet`; how many bytes that gave.
    pub fn open(
        &mut self,
        packet: &mut [u8],
        head: usize,
        number: u64,
        phase: bool,
    ) -> Option<usize> {
        if phase == self.phase {
            let plain = self.keys.open(packet, head, number)?.len();
            self.since = self.since.min(number);
            return Some(plain);
        }
        if number < self.since {
            let previous = self.previous.as_ref()?;
            return previous.open(packet, head, number).map(<[u8]>::len);
        }
        let plain = self.next.open(packet, head, number)?.len();
        self.update(number);
        Some(plain)
    }

    /// The other phase has begun, with packet `number`.
    fn update(&mut self, number: u64) {
        let next = self.keys.next();
        self.previous = Some(self.keys.update(next));
        self.next = self.keys.next();
        self.phase = !self.phase;
        self.since = number;
    }
}

impl Half {
    fn new(initial: Keys) -> Self {
        Self {
            initial,
            zero_rtt: None,
            handshake: None,
            one_rtt: None,
            largest: Largest::default(),
        }
    }
}

impl Connection {
    pub(crate) fn new(
        number: u32,
        version: u32,
        destination: Id,
        (client, server): (SocketAddr, SocketAddr),
    ) -> Self {
        let (from_client, from_server) = Keys::initial(version, destination.as_bytes());
        Self {
            number,
            version,
            client,
            server,
            original_destination: destination,
            client_random: None,
            suite: None,
            retried: false,
            has_secrets: false,
            protocol: None,
            offered: None,
            parameters: [None; 2],
            client_half: Half::new(from_client),
            server_half: Half::new(from_server),
            initial: (version, destination),
            hellos: [Messages::default(), Messages::default()],
            answer: Messages::default(),
        }
    }

    pub(super) fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Client => &mut self.client_half,
            Side::Server => &mut self.server_half,
        }
    }

    /// The server has sent a Retry, with a new ID of its own in it. The ClientHello comes again, by some clients as another
    /// one, whatever section 17.2.5.3 of RFC 9000 says.
    pub(super) fn on_retry(&mut self, version: u32, source: Id) {
        self.retried = true;
        self.set_initial_keys(version, source);
        if self.suite.is_none() {
            self.hellos[Side::Client as usize] = Messages::default();
            self.parameters[Side::Client as usize] = None;
            self.client_random = None;
        }
    }

    /// Initial packets are protected anew: after a Retry, or in another version.
    pub(super) fn set_initial_keys(&mut self, version: u32, destination: Id) {
        let (from_client, from_server) = Keys::initial(version, destination.as_bytes());
        self.client_half.initial = from_client;
        self.server_half.initial = from_server;
        self.initial = (version, destination);
    }

    /// A packet of `version` has come: another than the client began with where the two
    /// have agreed on it (compatible version negotiation, RFC 9368).
    pub(super) fn on_version(&mut self, side: Side, version: u32) {
        let (current, destination) = self.initial;
        if version != current {
            self.set_initial_keys(version, destination);
        }
        if side == Side::Server {
            self.version = version;
        }
    }

    /// Bytes of `side`'s Initial CRYPTO stream have come; whether that gave keys.
    pub(super) fn on_initial_crypto(&mut self, side: Side, offset: u64, data: &[u8], log: &KeyLog) {
        let messages = &mut self.hellos[side as usize];
        messages.add(offset, data);
        if side == Side::Client && self.parameters[Side::Client as usize].is_none() {
            let said = tls::extensions(messages.whole()).unwrap_or_default();
            self.parameters[Side::Client as usize] = said.parameters;
            self.offered = said.protocol;
        }
        match side {
            Side::Client if self.client_random.is_none() => {
                self.client_random = client_random(messages.whole());
            }
            Side::Server if self.suite.is_none() => self.suite = suite(messages.whole()),
            _ => return,
        }
        self.look_up(log);
    }

    /// Bytes of the server's Handshake CRYPTO stream have come: its EncryptedExtensions stand first.
    pub(super) fn on_server_handshake_crypto(&mut self, offset: u64, data: &[u8]) {
        if self.parameters[Side::Server as usize].is_some() {
            return;
        }
        self.answer.add(offset, data);
        if let Some(said) = tls::extensions(self.answer.whole()) {
            self.protocol = said.protocol;
            self.parameters[Side::Server as usize] = Some(said.parameters.unwrap_or_default());
            self.answer = Messages::default();
        }
    }

    /// The application protocol that the server chose; until it has, the one that early data are of.
    pub fn spoken(&self) -> Option<&str> {
        self.protocol.as_deref().or(self.offered.as_deref())
    }

    /// Microseconds of the delay in an ACK frame that `side` sent in a packet of `space`.
    pub fn ack_delay_us(&self, side: Side, space: Space, delay: u64) -> u64 {
        let exponent = match (space, &self.parameters[side as usize]) {
            (Space::Application, Some(parameters)) => parameters.ack_delay_exponent,
            _ => tls::DEFAULT_ACK_DELAY_EXPONENT,
        };
        delay.saturating_mul(1 << exponent)
    }

    /// Takes keys out of `log` where they are missing.
    pub(super) fn look_up(&mut self, log: &KeyLog) {
        let secrets = self.client_random.and_then(|random| log.get(&random));
        let Some(secrets) = secrets else { return };
        self.has_secrets = true;
        let version = self.version;
        if let (None, Some(secret)) = (&self.client_half.zero_rtt, &secrets.client_early) {
            // The suite is that of the ticket; its hash tells most of it, the packets the rest.
            let guess = match secret.len() {
                48 => Suite::Aes256Gcm,
                _ => self.suite.unwrap_or(Suite::Aes128Gcm),
            };
            self.client_half.zero_rtt = Keys::new(guess, version, secret).map(Box::new);
        }
        let Some(suite) = self.suite else { return };
        let keys = |secret: &Option<Box<[u8]>>| Keys::new(suite, version, secret.as_deref()?);
        for (half, handshake, application) in [
            (
                &mut self.client_half,
                &secrets.client_handshake,
                &secrets.client_application,
            ),
            (
                &mut self.server_half,
                &secrets.server_handshake,
                &secrets.server_application,
            ),
        ] {
            if half.handshake.is_none() {
                half.handshake = keys(handshake).map(Box::new);
            }
            if half.one_rtt.is_none() {
                half.one_rtt = keys(application).map(OneRtt::new).map(Box::new);
            }
        }
    }
}

/// The first bytes of a CRYPTO stream, put in order.
#[derive(Default)]
struct Messages {
    bytes: Vec<u8>,
    seen: Ranges,
}

impl Messages {
    /// A ClientHello with post-quantum keys has some 2 KiB; one with everything, 16.
    const MOST: usize = 1 << 16;

    fn add(&mut self, offset: u64, data: &[u8]) {
        let Ok(start) = usize::try_from(offset) else {
            return;
        };
        let end = start.saturating_add(data.len());
        if end > Self::MOST {
            return;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(data);
        self.seen.insert(offset, end as u64);
    }

    /// What has come without a gap.
    fn whole(&self) -> &[u8] {
        let end = usize::try_from(self.seen.contiguous()).unwrap_or(0);
        &self.bytes[..end]
    }
}

/// The random number of a ClientHello (RFC 8446, section 4.1.2).
fn client_random(messages: &[u8]) -> Option<[u8; 32]> {
    let mut input = Input(messages);
    if input.u8()? != 1 {
        return None;
    }
    input.u24()?;
    input.u16()?;
    input.take(32)?.try_into().ok()
}

/// The suite of a ServerHello (RFC 8446, section 4.1.3).
fn suite(messages: &[u8]) -> Option<Suite> {
    let mut input = Input(messages);
    if input.u8()? != 2 {
        return None;
    }
    input.u24()?;
    input.u16()?;
    input.take(32)?;
    let session = input.u8()?;
    input.take(session.into())?;
    Suite::of(input.u16()?)
}

#[cfg(test)]
mod tests {
    use super::{Largest, Space};
    use crate::quic::keys::packet_number;

    /// A sender with 128 packets in flight writes one byte of their numbers. Behind the satellite they are seen when
    /// it has sent as many again.
    #[test]
    fn a_packet_that_comes_late_to_an_interface_has_its_own_number() {
        let mut largest = Largest::default();
        let mut read = |interface, number: u64| {
            let before = largest.at(interface, Space::Application);
            let read = packet_number(before, number & 0xff, 1);
            largest.seen(interface, Space::Application, Some(read));
            assert_eq!(read, number, "at interface {interface}");
        };
        for number in 0..1000u64 {
            read(0, number);
            if let Some(late) = number.checked_sub(200) {
                read(7, late);
            }
        }
        assert_eq!(largest.anywhere(Space::Application), Some(999));
        for interface in 0..1000 {
            largest.seen(interface, Space::Initial, Some(1));
        }
        assert!(largest.0.len() <= Largest::MOST);
    }
}
