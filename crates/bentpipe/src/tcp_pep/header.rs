//! What a box of a distributed proxy tells the next of a connection: a header of the PROXY
//! protocol, version 2 (HAProxy's specification, section 2.2).

use std::io;
use std::net::SocketAddr;

use ppp::v2::{Addresses, Builder, Command, Header, Protocol, Version};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Signature, version, family and length.
const START: usize = 16;
/// The longest header that is read, bytes.
const LONGEST: usize = 1024;

/// A header for a connection from `client` to `destination`.
pub(super) fn write(client: SocketAddr, destination: SocketAddr) -> io::Result<Vec<u8>> {
    let command = Version::Two | Command::Proxy;
    Builder::with_addresses(command, Protocol::Stream, (client, destination)).build()
}

/// Reads a header: the client, and where its connection was to go.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<(SocketAddr, SocketAddr)> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut text = vec![0; START];
    stream.read_exact(&mut text).await?;
    let length = usize::from(u16::from_be_bytes([text[14], text[15]]));
    if length > LONGEST {
        return Err(wrong(format!("a header of {length} bytes")));
    }
    text.resize(START + length, 0);
    stream.read_exact(&mut text[START..]).await?;
    let header = Header::try_from(&text[..])
        .map_err(|error| wrong(format!("no header of the PROXY protocol: {error}")))?;
    match header.addresses {
        Addresses::IPv4(v4) => Ok((
            (v4.source_address, v4.source_port).into(),
            (v4.destination_address, v4.destination_port).into(),
        )),
        Addresses::IPv6(v6) => Ok((
            (v6.source_address, v6.source_port).into(),
            (v6.destination_address, v6.destination_port).into(),
        )),
        _ => Err(wrong("a header without a destination".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn client_and_destination_are_told_whole_and_the_data_behind_it_are_left() {
        for (client, destination) in [
            ("192.0.2.1:1", "198.51.100.7:443"),
            ("[2001:db8::1]:1", "[2001:db8::2]:8080"),
        ] {
            let [client, destination]: [SocketAddr; 2] =
                [client, destination].map(|address| address.parse().unwrap());
            let mut text = write(client, destination).unwrap();
            text.extend_from_slice(b"data");
            let mut rest = &text[..];
            assert_eq!(read(&mut rest).await.unwrap(), (client, destination));
            assert_eq!(rest, b"data");
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        for text in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            &[0; 16],
            b"short",
        ] {
            read(&mut &text[..]).await.unwrap_err();
        }
        let mut long = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
        long.resize(70_000, 0);
        let error = read(&mut &long[..]).await.unwrap_err();
        assert!(error.to_string().contains("65535 bytes"), "{error}");
    }
}
