//! Capsules (RFC 9297, section 3): what a request that carries datagrams says on its stream.
//!
//! A datagram that is too long for a QUIC packet is sent as a DATAGRAM capsule. Capsules of
//! other types are skipped, as that section asks.

use bentpipe_quic::varint;
use bytes::{Buf, Bytes, BytesMut};

use super::datagram::LONGEST;

/// The type of DATAGRAM capsules (section 3.5).
pub const DATAGRAM: u64 = 0;
/// The longest content of one that is taken, bytes: a context ID and a payload.
const LONGEST_CONTENT: u64 = LONGEST as u64 + 8;

/// A DATAGRAM capsule with `content`.
pub fn datagram(content: &[u8]) -> Bytes {
    write(DATAGRAM, content)
}

/// A capsule of type `kind` with `content`.
pub(super) fn write(kind: u64, content: &[u8]) -> Bytes {
    let length = content.len() as u64;
    let head = varint::length(kind) + varint::length(length);
    let mut capsule = BytesMut::with_capacity(head + content.len());
    varint::put(kind, &mut capsule);
    varint::put(length, &mut capsule);
    capsule.extend_from_slice(content);
    capsule.freeze()
}

/// Reads capsules however a stream is cut.
#[derive(Debug, Default)]
pub struct Reader {
    data: BytesMut,
    /// Types that are taken beside DATAGRAM.
    taken: &'static [u64],
    /// Bytes still to come of a capsule that is skipped.
    skipped: u64,
}

/// A capsule holds more than any UDP datagram, or the stream has ended inside of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a malformed capsule")]
pub struct MalformedCapsule;

impl Reader {
    /// A reader that does not skip capsules of the types `taken` either.
    pub fn taking(taken: &'static [u64]) -> Self {
        Self {
            taken,
            ..Self::default()
        }
    }

    /// Takes what comes next on the stream; [`Self::next_capsule`] has to be asked until it has
    /// nothing more.
    pub fn take(&mut self, data: &[u8]) {
        self.data.extend_from_slice(data);
    }

    /// The content of the next DATAGRAM capsule that is complete, for a reader that takes no
    /// others.
    pub fn next_datagram(&mut self) -> Result<Option<Bytes>, MalformedCapsule> {
        Ok(self.next_capsule()?.map(|(_, content)| content))
    }

    /// The next capsule that is complete: its type and its content.
    pub fn next_capsule(&mut self) -> Result<Option<(u64, Bytes)>, MalformedCapsule> {
        loop {
            let skipped = self.skipped.min(self.data.len() as u64);
            self.skipped -= skipped;
            // No longer than the data.
            self.data
                .advance(usize::try_from(skipped).unwrap_or(self.data.len()));
            let Some((kind, first)) = varint::read(&self.data) else {
                break;
            };
            let Some((length, second)) = varint::read(&self.data[first..]) else {
                break;
            };
            let head = first + second;
            if kind != DATAGRAM && !self.taken.contains(&kind) {
                self.data.advance(head);
                self.skipped = length;
                continue;
            }
            if length > LONGEST_CONTENT {
                return Err(MalformedCapsule);
            }
            let length = usize::try_from(length).map_err(|_| MalformedCapsule)?;
            if self.data.len() < head + length {
                break;
            }
            self.data.advance(head);
            return Ok(Some((kind, self.data.split_to(length).freeze())));
        }
        if self.data.is_empty() {
            // An idle flow holds no buffer.
            self.data = BytesMut::new();
        }
        Ok(None)
    }

    /// What it holds of a capsule that is not complete, bytes.
    pub fn held(&self) -> usize {
        self.data.len()
    }

    /// Skips the capsule that is not complete; `false` if it is not known yet how long it is.
    pub fn skip(&mut self) -> bool {
        let Some((_, first)) = varint::read(&self.data) else {
            return false;
        };
        let Some((length, second)) = varint::read(&self.data[first..]) else {
            return false;
        };
        let whole = (first + second) as u64 + length;
        self.skipped = whole.saturating_sub(self.data.len() as u64);
        self.data = BytesMut::new();
        true
    }

    /// The stream has ended; the error tells that it did so inside a capsule.
    pub fn end(&self) -> Result<(), MalformedCapsule> {
        match self.data.is_empty() && self.skipped == 0 {
            true => Ok(()),
            false => Err(MalformedCapsule),
        }
    }
}
