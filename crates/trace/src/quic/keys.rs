//! Packet protection (RFC 9001, section 5; RFC 9369, section 3.3).

use ring::aead::quic::HeaderProtectionKey;
use ring::{aead, hkdf};

use super::header::V2;

/// A cipher suite of TLS 1.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256.
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384.
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256.
    ChaCha20Poly1305,
}

impl Suite {
    /// By its number in a ServerHello.
    pub fn of(number: u16) -> Option<Self> {
        match number {
            0x1301 => Some(Self::Aes128Gcm),
            0x1302 => Some(Self::Aes256Gcm),
            0x1303 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    fn hkdf(self) -> hkdf::Algorithm {
        match self {
            Self::Aes256Gcm => hkdf::HKDF_SHA384,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => hkdf::HKDF_SHA256,
        }
    }

    fn aead(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    fn header_protection(self) -> &'static aead::quic::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::quic::AES_128,
            Self::Aes256Gcm => &aead::quic::AES_256,
            Self::ChaCha20Poly1305 => &aead::quic::CHACHA20,
        }
    }
}

/// What one side protects its packets of one level with.
pub struct Keys {
    suite: Suite,
    version: u32,
    secret: Vec<u8>,
    packet: PacketKey,
    header: HeaderProtectionKey,
}

struct PacketKey {
    key: aead::LessSafeKey,
    iv: [u8; 12],
}

/// Bytes of the sample that header protection is drawn from.
const SAMPLE: usize = 16;
/// The authentication tag of every suite.
pub const TAG: usize = 16;

/// A packet whose header protection is off.
#[derive(Debug, Clone, Copy)]
pub struct Unprotected {
    /// The first byte.
    pub first: u8,
    /// The packet number as it was sent, and how many bytes it has.
    pub truncated: u64,
    /// Length of the packet number, bytes.
    pub number_len: usize,
}

impl Keys {
    /// For packets of `version` under `secret`. `None`: the secret is not as long as the
    /// suite's hash.
    pub fn new(suite: Suite, version: u32, secret: &[u8]) -> Option<Self> {
        if secret.len()
            != suite
                .hkdf()
                .hmac_algorithm()
                .digest_algorithm()
                .output_len()
        {
            return None;
        }
        let header = expand(
            suite,
            secret,
            label(version, Label::Header),
            suite.aead().key_len(),
        );
        Some(Self {
            suite,
            version,
            secret: secret.to_vec(),
            packet: PacketKey::new(suite, version, secret),
            header: HeaderProtectionKey::new(suite.header_protection(), &header).ok()?,
        })
    }

    /// Those of Initial packets of client and server (RFC 9001, section 5.2), from the
    /// destination of the client's first packet.
    pub fn initial(version: u32, destination: &[u8]) -> (Self, Self) {
        const SALT_V1: [u8; 20] = [
            0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
            0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
        ];
        const SALT_V2: [u8; 20] = [
            0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26,
            0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
        ];
        let salt = if version == V2 { &SALT_V2 } else { &SALT_V1 };
        let suite = Suite::Aes128Gcm;
        let initial = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(destination);
        let side = |label| {
            let secret = expand_from(&initial, label, 32);
            Self::new(suite, version, &secret).expect("SHA-256 has 32 bytes")
        };
        (side("client in"), side("server in"))
    }

    /// The same secret in another suite; `None` where it is that suite, or its hash is longer or shorter.
    pub fn with_suite(&self, suite: Suite) -> Option<Self> {
        (suite != self.suite)
            .then(|| Self::new(suite, self.version, &self.secret))
            .flatten()
    }

    /// Those after the next key update (RFC 9001, section 6); header protection stays.
    pub fn next(&self) -> NextKeys {
        let label = label(self.version, Label::Update);
        let secret = expand(self.suite, &self.secret, label, self.secret.len());
        NextKeys {
            packet: PacketKey::new(self.suite, self.version, &secret),
            secret,
        }
    }

    /// Goes on to the next keys; what was before them is given back for packets that
    /// come late.
    pub fn update(&mut self, next: NextKeys) -> NextKeys {
        NextKeys {
            secret: std::mem::replace(&mut self.secret, next.secret),
            packet: std::mem::replace(&mut self.packet, next.packet),
        }
    }

    /// Takes off the header protection of `packet`, whose number begins at `number_at`.
    pub fn unprotect(&self, packet: &mut [u8], number_at: usize) -> Option<Unprotected> {
        let sample = packet.get(number_at + 4..number_at + 4 + SAMPLE)?;
        let mask = self.header.new_mask(sample).ok()?;
        let bits = if packet[0] & 0x80 == 0 { 0x1f } else { 0x0f };
        packet[0] ^= mask[0] & bits;
        let first = packet[0];
        let number_len = usize::from(first & 3) + 1;
        let mut truncated = 0;
        for (byte, mask) in packet[number_at..number_at + number_len]
            .iter_mut()
            .zip(&mask[1..])
        {
            *byte ^= mask;
            truncated = truncated << 8 | u64::from(*byte);
        }
        Some(Unprotected {
            first,
            truncated,
            number_len,
        })
    }

    /// Decrypts what follows the first `head` bytes of `packet`, number `number`.
    pub fn open<'a>(&self, packet: &'a mut [u8], head: usize, number: u64) -> Option<&'a [u8]> {
        self.packet.open(packet, head, number)
    }
}

/// Keys of another phase.
pub struct NextKeys {
    secret: Vec<u8>,
    packet: PacketKey,
}

impl NextKeys {
    /// Decrypts what follows the first `head` bytes of `packet`, number `number`.
    pub fn open<'a>(&self, packet: &'a mut [u8], head: usize, number: u64) -> Option<&'a [u8]> {
        self.packet.open(packet, head, number)
    }
}

impl PacketKey {
    fn new(suite: Suite, version: u32, secret: &[u8]) -> Self {
        let key = expand(
            suite,
            secret,
            label(version, Label::Key),
            suite.aead().key_len(),
        );
        let iv = expand(suite, secret, label(version, Label::Iv), 12);
        let key = aead::UnboundKey::new(suite.aead(), &key).expect("as long as a key");
        Self {
            key: aead::LessSafeKey::new(key),
            iv: iv.try_into().expect("twelve bytes"),
        }
    }

    fn open<'a>(&self, packet: &'a mut [u8], head: usize, number: u64) -> Option<&'a [u8]> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        let (head, body) = packet.split_at_mut_checked(head)?;
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let plain = self
            .key
            .open_in_place(nonce, aead::Aad::from(&*head), body)
            .ok()?;
        Some(plain)
    }
}

enum Label {
    Key,
    Iv,
    Header,
    Update,
}

fn label(version: u32, label: Label) -> &'static str {
    match (version == V2, label) {
        (false, Label::Key) => "quic key",
        (false, Label::Iv) => "quic iv",
        (false, Label::Header) => "quic hp",
        (false, Label::Update) => "quic ku",
        (true, Label::Key) => "quicv2 key",
        (true, Label::Iv) => "quicv2 iv",
        (true, Label::Header) => "quicv2 hp",
        (true, Label::Update) => "quicv2 ku",
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(suite: Suite, secret: &[u8], label: &str, len: usize) -> Vec<u8> {
    expand_from(&hkdf::Prk::new_less_safe(suite.hkdf(), secret), label, len)
}

/// HKDF-Expand-Label with an empty context (RFC 8446, section 7.1).
fn expand_from(secret: &hkdf::Prk, label: &str, len: usize) -> Vec<u8> {
    let length = u16::try_from(len).expect("a key's length").to_be_bytes();
    let label_len = [u8::try_from(6 + label.len()).expect("a short label")];
    let info = [&length[..], &label_len, b"tls13 ", label.as_bytes(), &[0]];
    let mut out = vec![0; len];
    secret
        .expand(&info, Length(len))
        .and_then(|key| key.fill(&mut out))
        .expect("shorter than 255 hashes");
    out
}

/// The whole packet number of `truncated`, after `largest` of the same space (RFC 9000,
/// appendix A.3).
pub fn packet_number(largest: Option<u64>, truncated: u64, len: usize) -> u64 {
    let expected = largest.map_or(0, |largest| largest + 1);
    let window = 1u64 << (8 * len);
    let half = window / 2;
    let candidate = expected & !(window - 1) | truncated;
    if candidate + half <= expected && candidate < (1 << 62) - window {
        candidate + window
    } else if candidate > expected + half && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}
