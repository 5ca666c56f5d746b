//! Keys and TLS sessions of version 2 (RFC 9369, section 3.3), beside the library's of version 1.

use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;

use bytes::BytesMut;
use noq::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use noq_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    ServerConfig, Session, UnsupportedVersion,
};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{
    ConnectError, ConnectionId, PathId, Side, TransportError, TransportErrorCode, VarInt,
};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::pki_types::ServerName;
use rustls::quic::{self, Connection, KeyChange, Secrets, Suite, Version};

use super::{VERSION_2, header};
use crate::varint;

/// The transport parameter version_information (RFC 9368, section 3).
const VERSION_INFORMATION: u64 = 0x11;
/// VERSION_NEGOTIATION_ERROR (RFC 9368, section 10.2).
const VERSION_NEGOTIATION_ERROR: u32 = 0x11;
/// Retry packets' integrity (RFC 9369, section 3.3.3).
const RETRY_KEY: [u8; 16] = [
    0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c, 0xcc, 0x92,
];
const RETRY_NONCE: [u8; 12] = [
    0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a,
];
const TAG: usize = 16;

/// The application protocol that `connection` has negotiated, once that is known.
pub fn application_protocol(connection: &noq::Connection) -> Option<Vec<u8>> {
    protocol_in(connection.handshake_data()?)
}

/// The same in what a connection that is being made tells of its handshake.
pub fn protocol_in(data: Box<dyn Any>) -> Option<Vec<u8>> {
    match data.downcast::<HandshakeData>() {
        Ok(version_1) => version_1.protocol,
        Err(data) => data.downcast::<Negotiated>().ok()?.0,
    }
}

/// The application protocol, if there is one.
struct Negotiated(Option<Vec<u8>>);

/// TLS of a client, for both versions.
pub struct Client {
    version_1: QuicClientConfig,
    tls: Arc<rustls::ClientConfig>,
    initial: Suite,
}

impl Client {
    /// With `tls`, which has to have TLS 1.3 with AES-128-GCM; `None` if it has not.
    pub fn new(tls: Arc<rustls::ClientConfig>) -> Option<Self> {
        Some(Self {
            version_1: tls.clone().try_into().ok()?,
            initial: initial_suite(tls.crypto_provider())?,
            tls,
        })
    }
}

impl ClientConfig for Client {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        if version != VERSION_2 {
            return self
                .version_1
                .start_session(version, server_name, parameters);
        }
        let wrong = || ConnectError::InvalidServerName(server_name.into());
        let name = ServerName::try_from(server_name).map_err(|_| wrong())?;
        let (tls, parameters) = (self.tls.clone(), written(parameters));
        let tls = quic::ClientConnection::new(tls, Version::V2, name.to_owned(), parameters);
        let tls = Connection::Client(tls.map_err(|_| wrong())?);
        Ok(Box::new(Version2::new(tls, self.initial)))
    }
}

/// TLS of a server, for both versions.
pub struct Server {
    version_1: QuicServerConfig,
    tls: Arc<rustls::ServerConfig>,
    initial: Suite,
}

impl Server {
    /// With `tls`, which has to have TLS 1.3 with AES-128-GCM; `None` if it has not.
    pub fn new(tls: Arc<rustls::ServerConfig>) -> Option<Self> {
        Some(Self {
            version_1: tls.clone().try_into().ok()?,
            initial: initial_suite(tls.crypto_provider())?,
            tls,
        })
    }
}

impl ServerConfig for Server {
    fn initial_keys(&self, version: u32, id: ConnectionId) -> Result<Keys, UnsupportedVersion> {
        match version {
            VERSION_2 => Ok(initial_keys(&self.initial, &id, rustls::Side::Server)),
            _ => self.version_1.initial_keys(version, id),
        }
    }

    fn retry_tag(&self, version: u32, id: ConnectionId, packet: &[u8]) -> [u8; 16] {
        match version {
            VERSION_2 => retry_tag(&id, packet),
            _ => self.version_1.retry_tag(version, id, packet),
        }
    }

    fn start_session(&self, version: u32, parameters: &TransportParameters) -> Box<dyn Session> {
        if version != VERSION_2 {
            return self.version_1.start_session(version, parameters);
        }
        let (tls, parameters) = (self.tls.clone(), written(parameters));
        let tls = quic::ServerConnection::new(tls, Version::V2, parameters);
        let tls = tls.expect("the library has refused a TLS that QUIC cannot use");
        Box::new(Version2::new(Connection::Server(tls), self.initial))
    }
}

fn initial_suite(provider: &rustls::crypto::CryptoProvider) -> Option<Suite> {
    let suites = provider.cipher_suites.iter();
    suites
        .filter_map(|suite| suite.tls13())
        .find(|suite| suite.common.suite == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256)?
        .quic_suite()
}

/// Transport parameters with the versions that this end speaks.
fn written(parameters: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    parameters.write(&mut bytes);
    varint::put(VERSION_INFORMATION, &mut bytes);
    let versions = [VERSION_2, VERSION_2, 1].map(u32::to_be_bytes).concat();
    varint::put(versions.len() as u64, &mut bytes);
    bytes.extend(versions);
    bytes
}

/// The version that the peer has chosen, if its transport parameters tell.
fn chosen(mut parameters: &[u8]) -> Option<u32> {
    loop {
        let (id, length) = varint::read(parameters)?;
        parameters = &parameters[length..];
        let (size, length) = varint::read(parameters)?;
        let value = parameters.get(length..)?;
        let (value, rest) = value.split_at_checked(usize::try_from(size).ok()?)?;
        if id == VERSION_INFORMATION {
            return Some(u32::from_be_bytes(*value.first_chunk()?));
        }
        parameters = rest;
    }
}

fn retry_tag(id: &[u8], packet: &[u8]) -> [u8; TAG] {
    let key = UnboundKey::new(&AES_128_GCM, &RETRY_KEY).expect("a key of 16 bytes");
    let length = u8::try_from(id.len()).expect("connection IDs have at most 20 bytes");
    let pseudo_packet = [&[length], id, packet].concat();
    let nonce = Nonce::assume_unique_for_key(RETRY_NONCE);
    let tag = LessSafeKey::new(key)
        .seal_in_place_separate_tag(nonce, Aad::from(pseudo_packet), &mut [])
        .expect("nothing is encrypted");
    let mut bytes = [0; TAG];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

/// A TLS session of version 2.
struct Version2 {
    tls: Connection,
    initial: Suite,
    next: Option<Secrets>,
    told: bool,
}

impl Version2 {
    fn new(tls: Connection, initial: Suite) -> Self {
        Self {
            tls,
            initial,
            next: None,
            told: false,
        }
    }

    fn side(&self) -> Side {
        match self.tls {
            Connection::Client(_) => Side::Client,
            Connection::Server(_) => Side::Server,
        }
    }

    /// Whether everything that [`Session::handshake_data`] tells is known.
    fn negotiated(&self) -> bool {
        self.tls.alpn_protocol().is_some() || !self.tls.is_handshaking()
    }
}

impl Session for Version2 {
    fn initial_keys(&self, id: ConnectionId, side: Side) -> Keys {
        let side = match side {
            Side::Client => rustls::Side::Client,
            Side::Server => rustls::Side::Server,
        };
        initial_keys(&self.initial, &id, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let protocol = self.tls.alpn_protocol().map(<[u8]>::to_vec);
        self.told
            .then(|| Box::new(Negotiated(protocol)) as Box<dyn Any>)
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let certificates = self.tls.peer_certificates()?.iter();
        let certificates: Vec<_> = certificates.map(|one| one.clone().into_owned()).collect();
        Some(Box::new(certificates))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.tls.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(Key(keys.packet))))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        match &self.tls {
            Connection::Client(tls) => Some(tls.is_early_data_accepted()),
            Connection::Server(_) => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, data: &[u8]) -> Result<bool, TransportError> {
        self.tls.read_hs(data).map_err(|error| {
            let code = match self.tls.alert() {
                Some(alert) => TransportErrorCode::crypto(alert.into()),
                None => TransportErrorCode::PROTOCOL_VIOLATION,
            };
            TransportError::new(code, error.to_string())
        })?;
        let first = !self.told && self.negotiated();
        self.told |= first;
        Ok(first)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = self.tls.quic_transport_parameters() else {
            return Ok(None);
        };
        if chosen(bytes).is_some_and(|version| version != VERSION_2) {
            return Err(TransportError::new(
                VarInt::from_u32(VERSION_NEGOTIATION_ERROR).into(),
                "the peer has chosen another version than its packets have".into(),
            ));
        }
        let read = TransportParameters::read(self.side(), &mut Cursor::new(bytes));
        Ok(Some(read.map_err(TransportError::from)?))
    }

    fn write_handshake(&mut self, data: &mut Vec<u8>) -> Option<Keys> {
        Some(protected(match self.tls.write_hs(data)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                keys
            }
        }))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(KeyPair {
            local: Box::new(Key(keys.local)),
            remote: Box::new(Key(keys.remote)),
        })
    }

    fn is_valid_retry(&self, id: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some((payload, tag)) = payload.split_last_chunk::<TAG>() else {
            return false;
        };
        let mut packet = [header, payload].concat();
        if let Some(first) = packet.first_mut() {
            *first = header::into_version_2(*first);
        }
        retry_tag(&id, &packet) == *tag
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let exported = self
            .tls
            .export_keying_material(output, label, Some(context));
        exported.map(|_| ()).map_err(|_| ExportKeyingMaterialError)
    }
}

fn initial_keys(suite: &Suite, id: &[u8], side: rustls::Side) -> Keys {
    protected(suite.keys(id, side, Version::V2))
}

fn protected(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(Key(keys.local.packet)),
            remote: Box::new(Key(keys.remote.packet)),
        },
    }
}

/// A key whose packets have version 2's types, although the library writes and reads version 1's.
struct Key(Box<dyn quic::PacketKey>);

impl PacketKey for Key {
    fn encrypt(&self, path: PathId, packet: u64, buffer: &mut [u8], header_length: usize) {
        if let Some(first) = buffer.first_mut() {
            *first = header::into_version_2(*first);
        }
        PacketKey::encrypt(&self.0, path, packet, buffer, header_length);
    }

    fn decrypt(
        &self,
        path: PathId,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        match header.split_first() {
            Some((&first, rest)) if first != header::into_version_2(first) => {
                let header = [&[header::into_version_2(first)], rest].concat();
                PacketKey::decrypt(&self.0, path, packet, &header, payload)
            }
            _ => PacketKey::decrypt(&self.0, path, packet, header, payload),
        }
    }

    fn tag_len(&self) -> usize {
        PacketKey::tag_len(&self.0)
    }

    fn confidentiality_limit(&self) -> u64 {
        PacketKey::confidentiality_limit(&self.0)
    }

    fn integrity_limit(&self) -> u64 {
        PacketKey::integrity_limit(&self.0)
    }
}
