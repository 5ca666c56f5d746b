//! The server's name in the first bytes of a TLS connection (SNI, RFC 6066, section 3), read as they
//! pass: nothing is held back for it.

use std::sync::{Arc, OnceLock};

use rustls::server::Acceptor;

use crate::flow::watched::Watch;

/// A ClientHello is not looked for any further, bytes.
const FIRST_FLIGHT: usize = 16 * 1024;

/// The name, once it has passed.
pub type ServerName = Arc<OnceLock<String>>;

/// Looks for the name in the first bytes of a connection.
pub struct Hello {
    /// What has read them so far, and how many; none when enough is known.
    reading: Option<(Acceptor, usize)>,
    name: ServerName,
}

impl Hello {
    /// The name will be in the second value.
    pub fn new() -> (Self, ServerName) {
        let name = ServerName::default();
        let hello = Self {
            reading: Some((Acceptor::default(), 0)),
            name: name.clone(),
        };
        (hello, name)
    }

    fn look(&mut self, mut bytes: &[u8]) {
        let Some((mut acceptor, seen)) = self.reading.take() else {
            return;
        };
        // The first byte of a handshake's record (RFC 8446, section 5.1).
        if seen == 0 && bytes.first() != Some(&22) {
            return;
        }
        let seen = seen + bytes.len();
        while !bytes.is_empty() {
            if !matches!(acceptor.read_tls(&mut bytes), Ok(1..)) {
                return;
            }
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    if let Some(name) = accepted.client_hello().server_name() {
                        // It is the only one to set it.
                        let _ = self.name.set(name.to_owned());
                    }
                    return;
                }
                Err(_) => return,
            }
        }
        if seen < FIRST_FLIGHT {
            self.reading = Some((acceptor, seen));
        }
    }
}

impl Watch for Hello {
    fn read(&mut self, bytes: &[u8]) {
        self.look(bytes);
    }

    fn written(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello for `name`, as a record.
    fn hello(name: &str) -> Vec<u8> {
        let mut roots = rustls::RootCertStore::empty();
        roots.roots.clear();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = name.to_owned().try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut record = Vec::new();
        client.write_tls(&mut record).unwrap();
        record
    }

    fn name(pieces: &[&[u8]]) -> Option<String> {
        let (mut reading, name) = Hello::new();
        for piece in pieces {
            reading.look(piece);
        }
        name.get().cloned()
    }

    #[test]
    fn the_name_is_found_however_the_bytes_come() {
        let hello = hello("www.example.com");
        assert_eq!(name(&[&hello]).as_deref(), Some("www.example.com"));
        let bytes: Vec<_> = hello.chunks(1).collect();
        assert_eq!(name(&bytes).as_deref(), Some("www.example.com"));
        let with_more = [&hello[..], b"early data"].concat();
        assert_eq!(name(&[&with_more]).as_deref(), Some("www.example.com"));
    }

    #[test]
    fn what_is_no_hello_has_none_and_is_not_looked_at_for_long() {
        let hello = hello("www.example.com");
        assert_eq!(name(&[b"GET / HTTP/1.1\r\n", &hello]), None);
        assert_eq!(name(&[&hello[..60]]), None);
        let mut broken = hello.clone();
        // The message's type (RFC 8446, section 4).
        broken[5] = 0xff;
        assert_eq!(name(&[&broken, &hello]), None);
        let (mut hello, _) = Hello::new();
        for _ in 0..FIRST_FLIGHT {
            hello.look(&[22]);
        }
        assert!(hello.reading.is_none());
    }
}
