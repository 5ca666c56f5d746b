//! What two proxies say to each other: whom a client asks for, and what the server has chosen.
//!
//! A connection between proxies is open before any client is there, with the application
//! protocol [`PROTOCOL`]. The first unidirectional stream of each end is the proxies' own;
//! all others are the client's and the server's, so that of this one kind the n-th of theirs
//! is the (n+1)-th here.
//!
//! The proxy that has a client writes a header of the PROXY protocol, version 2 (HAProxy's
//! specification, section 2.2), with the client's address, the server's name
//! (PP2_TYPE_AUTHORITY) and each application protocol that the client offers
//! (PP2_TYPE_ALPN), the preferred first, and goes on with the client's data at once. The other
//! writes the protocol that the next hop has chosen, when it knows; or closes the connection
//! with a code and a reason, which the client is closed with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use noq::Connection;
use ppp::v2::{Builder, Command, Header, Protocol, Type, Version};

use crate::hello::ClientHello;

/// The application protocol between proxies.
pub const PROTOCOL: &[u8] = b"bentpipe-pep/1";
/// The longest header and the longest answer, bytes.
const LONGEST: usize = 8 * 1024;

/// A client as its proxy tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Where it is, as the proxy says.
    pub address: Option<SocketAddr>,
    /// What it asks for.
    pub hello: ClientHello,
}

/// Why a text is no header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a header of the PROXY protocol, version 2: {0}")]
pub struct HeaderError(String);

impl Client {
    /// As a header.
    pub fn to_header(&self) -> Result<Vec<u8>, HeaderError> {
        let refuse = |error: std::io::Error| HeaderError(error.to_string());
        let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let from = self.address.unwrap_or(unspecified);
        let nowhere = match from.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let addresses = (from, SocketAddr::new(nowhere, 0));
        let command = Version::Two | Command::Proxy;
        let mut builder = Builder::with_addresses(command, Protocol::Datagram, addresses);
        if let Some(name) = &self.hello.server_name {
            builder = (builder.write_tlv(Type::Authority, name.as_bytes())).map_err(refuse)?;
        }
        for protocol in &self.hello.protocols {
            builder = builder.write_tlv(Type::ALPN, protocol).map_err(refuse)?;
        }
        builder.build().map_err(refuse)
    }

    /// Reads what [`Self::to_header`] wrote, or another program.
    pub fn from_header(text: &[u8]) -> Result<Self, HeaderError> {
        let refuse = |why: &dyn std::fmt::Display| HeaderError(why.to_string());
        let header = Header::try_from(text).map_err(|error| refuse(&error))?;
        let address = match header.addresses {
            ppp::v2::Addresses::IPv4(v4) => Some((v4.source_address, v4.source_port).into()),
            ppp::v2::Addresses::IPv6(v6) => Some((v6.source_address, v6.source_port).into()),
            _ => None,
        };
        let (mut server_name, mut protocols) = (None, Vec::new());
        for tlv in header.tlvs() {
            let tlv = tlv.map_err(|error| refuse(&error))?;
            if tlv.kind == u8::from(Type::Authority) {
                let name = std::str::from_utf8(&tlv.value).map_err(|error| refuse(&error))?;
                server_name = Some(name.to_owned());
            } else if tlv.kind == u8::from(Type::ALPN) {
                protocols.push(tlv.value.into_owned());
            }
        }
        Ok(Self {
            address,
            hello: ClientHello::new(server_name, protocols.into_iter()),
        })
    }
}

/// Tells the other proxy of a client.
pub(crate) async fn ask(connection: &Connection, client: &Client) -> Option<()> {
    write(connection, &client.to_header().ok()?).await
}

/// Waits for a client of the other proxy.
pub(crate) async fn asked(connection: &Connection) -> Option<Result<Client, HeaderError>> {
    Some(Client::from_header(&read(connection).await?))
}

/// Tells the other proxy what the server has chosen.
pub(crate) async fn answer(connection: &Connection, protocol: Option<&[u8]>) -> Option<()> {
    write(connection, protocol.unwrap_or_default()).await
}

/// Waits for what the server has chosen. `None`: the connection is closed.
pub(crate) async fn answered(connection: &Connection) -> Option<Option<Vec<u8>>> {
    let protocol = read(connection).await?;
    Some((!protocol.is_empty()).then_some(protocol))
}

async fn write(connection: &Connection, text: &[u8]) -> Option<()> {
    let mut stream = connection.open_uni().await.ok()?;
    stream.write_all(text).await.ok()?;
    stream.finish().ok()
}

async fn read(connection: &Connection) -> Option<Vec<u8>> {
    let mut stream = connection.accept_uni().await.ok()?;
    stream.read_to_end(LONGEST).await.ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_is_told_of_whole() {
        let client = Client {
            address: Some("[2001:db8::7]:4711".parse().unwrap()),
            hello: ClientHello {
                server_name: Some("www.example".into()),
                protocols: vec![b"h3".to_vec(), b"hq-interop".to_vec()],
            },
        };
        let header = client.to_header().unwrap();
        assert_eq!(Client::from_header(&header), Ok(client));
    }

    proptest! {
        #[test]
        fn nothing_that_comes_in_ends_the_program(text: Vec<u8>) {
            let _ = Client::from_header(&text);
            let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x12".to_vec();
            header.extend_from_slice(&text);
            let _ = Client::from_header(&header);
        }
    }
}
