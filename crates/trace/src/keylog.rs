//! TLS secrets in the NSS key log format, `SSLKEYLOGFILE` (RFC 9850).

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

/// Secrets of one connection, as many as the log has.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// Of 0-RTT packets.
    pub client_early: Option<Box<[u8]>>,
    /// Of the client's Handshake packets.
    pub client_handshake: Option<Box<[u8]>>,
    /// Of the server's Handshake packets.
    pub server_handshake: Option<Box<[u8]>>,
    /// Of the client's 1-RTT packets.
    pub client_application: Option<Box<[u8]>>,
    /// Of the server's 1-RTT packets.
    pub server_application: Option<Box<[u8]>>,
}

/// All secrets, by the random number of the ClientHello.
#[derive(Debug, Clone, Default)]
pub struct KeyLog {
    connections: HashMap<[u8; 32], Secrets>,
    /// Lines that are neither secrets nor comments.
    pub malformed_lines: u64,
}

/// The longest line; what is longer is no secret.
const LONGEST_LINE: u64 = 1024;

impl KeyLog {
    /// Adds the lines of a file, one after the other.
    pub fn read(&mut self, mut file: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        while (&mut file)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)?
            > 0
        {
            self.add(&line);
            line.clear();
        }
        Ok(())
    }

    /// Adds the lines of `text`. A line that is no secret is counted and passed over.
    pub fn add(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if self.line(line).is_none() {
                self.malformed_lines += 1;
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Option<()> {
        let mut words = line.split(|byte| *byte == b' ');
        let (label, random, secret) = (words.next()?, words.next()?, words.next()?);
        let random: [u8; 32] = hex(random)?.try_into().ok()?;
        let secret = hex(secret)?.into_boxed_slice();
        if !(1..=64).contains(&secret.len()) {
            return None;
        }
        let secrets = self.connections.entry(random).or_default();
        // QUIC's labels began with "QUIC_" once.
        match label.strip_prefix(b"QUIC_").unwrap_or(label) {
            b"CLIENT_EARLY_TRAFFIC_SECRET" => secrets.client_early = Some(secret),
            b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" => secrets.client_handshake = Some(secret),
            b"SERVER_HANDSHAKE_TRAFFIC_SECRET" => secrets.server_handshake = Some(secret),
            b"CLIENT_TRAFFIC_SECRET_0" => secrets.client_application = Some(secret),
            b"SERVER_TRAFFIC_SECRET_0" => secrets.server_application = Some(secret),
            // TLS 1.2's, exporters, Encrypted ClientHello.
            _ => {}
        }
        Some(())
    }

    /// The secrets of the connection whose ClientHello has `random`.
    pub fn get(&self, random: &[u8; 32]) -> Option<&Secrets> {
        self.connections.get(random)
    }

    /// How many connections have secrets.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}

fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks(2)
        .map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok())
        .collect()
}
