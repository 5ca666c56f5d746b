//! A TLS ClientHello at the beginning of a flow (RFC 8446, section 4.1.2): all that an application says in early data.
//!
//! A server that hears one twice answers twice, and does nothing else: no byte of an application is in it, and none counts
//! until the client has shown that it heard the answer. One with the extension early_data (section 4.2.10) announces
//! such bytes, so it waits for the handshake like all else.

/// Longer ones are not waited for, bytes: with post-quantum keys they have about 2000.
pub const LONGEST: usize = 16 * 1024;

/// The type of records that carry handshakes (RFC 8446, section 5.1), and of the message (section 4).
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EARLY_DATA: u16 = 42;

/// What a flow begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// So many bytes are a ClientHello, in records of its own, that may be said twice.
    Hello(usize),
    /// It may become one.
    Unfinished,
    /// Anything else.
    Other,
}

impl Beginning {
    /// What `bytes`, the first of a flow, are.
    pub fn of(bytes: &[u8]) -> Self {
        let mut rest = bytes;
        let mut message = Vec::new();
        loop {
            let fragment = match record(&mut rest) {
                Ok(Some(fragment)) => fragment,
                Ok(None) if bytes.len() < LONGEST => return Self::Unfinished,
                Ok(None) | Err(()) => return Self::Other,
            };
            message.extend_from_slice(fragment);
            let [kind, length @ ..] = &message[..] else {
                return Self::Other;
            };
            if *kind != CLIENT_HELLO {
                return Self::Other;
            }
            let Some(&[high, middle, low]) = length.first_chunk() else {
                continue;
            };
            let whole = 4 + (usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low));
            if message.len() > whole || whole > LONGEST {
                return Self::Other;
            }
            if message.len() == whole {
                return match announces_early_data(&message[4..]) {
                    Some(false) => Self::Hello(bytes.len() - rest.len()),
                    Some(true) | None => Self::Other,
                };
            }
        }
    }
}

/// Takes the next record of a handshake out of `rest`, as far as it has come.
fn record<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, ()> {
    // Its type, the major version, and a fragment that is not empty.
    match *rest {
        [] | [HANDSHAKE] | [HANDSHAKE, 3] | [HANDSHAKE, 3, _] | [HANDSHAKE, 3, _, _] => {
            return Ok(None);
        }
        [HANDSHAKE, 3, _, high, low, ..] if (*high, *low) != (0, 0) => {}
        _ => return Err(()),
    }
    let mut after = &rest[3..];
    let fragment = take(&mut after, 2);
    if fragment.is_some() {
        *rest = after;
    }
    Ok(fragment)
}

/// Whether the body of a ClientHello has the extension early_data; nothing if it is malformed.
fn announces_early_data(mut body: &[u8]) -> Option<bool> {
    // Version and random; then session, cipher suites, compression methods.
    body.split_off(..2 + 32)?;
    for width in [1, 2, 1] {
        take(&mut body, width)?;
    }
    if body.is_empty() {
        return Some(false);
    }
    let mut extensions = take(&mut body, 2)?;
    let mut found = false;
    while !extensions.is_empty() {
        found |= number(extensions.split_off(..2)?) == usize::from(EARLY_DATA);
        take(&mut extensions, 2)?;
    }
    body.is_empty().then_some(found)
}

/// Takes a vector whose length stands before it in `width` bytes (RFC 8446, section 3.4).
fn take<'a>(from: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = number(from.split_off(..width)?);
    from.split_off(..length)
}

fn number(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | usize::from(byte))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The message, without records.
    fn hello() -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = "www.example.com".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut record = Vec::new();
        client.write_tls(&mut record).unwrap();
        record.split_off(5)
    }

    /// `message` in records of up to `most` bytes.
    fn records(message: &[u8], most: usize) -> Vec<u8> {
        let record = |part: &[u8]| {
            let length = u16::try_from(part.len()).unwrap().to_be_bytes();
            [&[HANDSHAKE, 3, 1], &length[..], part].concat()
        };
        message.chunks(most).flat_map(record).collect()
    }

    /// `hello` with an empty extension of `kind` more.
    fn with_extension(mut hello: Vec<u8>, kind: u16) -> Vec<u8> {
        let (mut at, mut body) = (0, &hello[4 + 2 + 32..]);
        for width in [1, 2, 1] {
            take(&mut body, width).unwrap();
        }
        at += hello.len() - body.len();
        let length = u16::from_be_bytes([hello[at], hello[at + 1]]) + 4;
        hello[at..at + 2].copy_from_slice(&length.to_be_bytes());
        hello.extend_from_slice(&[kind.to_be_bytes(), [0, 0]].concat());
        let whole = u32::try_from(hello.len() - 4).unwrap().to_be_bytes();
        hello[1..4].copy_from_slice(&whole[1..]);
        hello
    }

    #[test]
    fn a_hello_is_found_however_it_is_cut_and_not_before_it_is_whole() {
        let hello = hello();
        for most in [16_384, 100, 3, 1] {
            let bytes = records(&hello, most);
            assert_eq!(
                Beginning::of(&bytes),
                Beginning::Hello(bytes.len()),
                "{most}"
            );
            let more = [&bytes[..], &[20, 3, 3, 0, 1, 1]].concat();
            assert_eq!(
                Beginning::of(&more),
                Beginning::Hello(bytes.len()),
                "{most}"
            );
            for cut in 0..bytes.len() {
                assert_eq!(
                    Beginning::of(&bytes[..cut]),
                    Beginning::Unfinished,
                    "{most} {cut}"
                );
            }
        }
    }

    #[test]
    fn a_hello_before_early_data_is_none_that_may_be_said_twice() {
        // The one beside it is that of a ticket alone.
        let other = with_extension(hello(), 41);
        assert!(matches!(
            Beginning::of(&records(&other, 16_384)),
            Beginning::Hello(_)
        ));
        let early = with_extension(hello(), 42);
        assert_eq!(Beginning::of(&records(&early, 16_384)), Beginning::Other);
        assert_eq!(Beginning::of(&records(&early, 100)), Beginning::Other);
    }

    #[test]
    fn nothing_else_is_one() {
        let hello = hello();
        let bytes = records(&hello, 16_384);
        // Behind it in the same record, in another message, of another type, cut short, too long.
        let joined = records(&[&hello[..], &[14, 0, 0, 0]].concat(), 16_384);
        let mut server = bytes.clone();
        server[5] = 2;
        let mut data = bytes.clone();
        data[0] = 23;
        let mut short = bytes.clone();
        short[5 + 3] -= 1;
        let mut cut = hello.clone();
        cut.pop();
        cut[3] = cut[3].wrapping_sub(1);
        let long = records(
            &[&[CLIENT_HELLO, 1, 0, 0], &vec![0; LONGEST][..]].concat(),
            16_384,
        );
        let empty = [HANDSHAKE, 3, 1, 0, 0];
        for other in [
            b"GET / HTTP/1.1\r\n\r\n",
            &joined[..],
            &server,
            &data,
            &short,
            &records(&cut, 16_384),
            &long,
            &empty,
        ] {
            assert_eq!(Beginning::of(other), Beginning::Other);
        }
        assert_eq!(Beginning::of(&[]), Beginning::Unfinished);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_strange(at in 0..2000_usize, byte: u8, cut in 0..2000_usize) {
            let mut bytes = records(&hello(), 700);
            if let Some(there) = bytes.get_mut(at) {
                *there = byte;
            }
            bytes.truncate(cut);
            if let Beginning::Hello(length) = Beginning::of(&bytes) {
                proptest::prop_assert!(length <= bytes.len());
            }
        }
    }
}
