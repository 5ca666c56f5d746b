//! The dynamic table of an encoder, and the instructions that fill it (RFC 9204, sections 3.2 and
//! 4.3), as far as they have been seen.

use std::collections::VecDeque;

use super::primitives::{integer, string};
use crate::http3::static_table::STATIC;
use crate::quic::bytes::Input;

/// What an entry takes beside its name and value (section 3.2.1).
const ENTRY: usize = 32;
/// The largest table that is followed, bytes.
const MOST: u64 = 64 << 10;

/// Name and value, as they came.
pub(super) type Entry = (Vec<u8>, Vec<u8>);

/// A dynamic table.
#[derive(Debug, Default)]
pub struct Table {
    /// The oldest first.
    entries: VecDeque<Entry>,
    size: usize,
    capacity: usize,
    /// Entries so far, those that are gone too.
    inserted: u64,
    /// What the decoder allows in its SETTINGS.
    limit: u64,
}

/// An instruction that cannot be: the rest of its stream means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl Table {
    /// The decoder allows so many bytes (SETTINGS_QPACK_MAX_TABLE_CAPACITY).
    pub fn allow(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    /// Bytes that are held.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Carries out the instruction at the beginning of `input`; None when it is not all there.
    pub fn instruction(&mut self, input: &mut Input<'_>) -> Option<Result<(), Damaged>> {
        let first = *input.0.first()?;
        let done = if first & 0x80 != 0 {
            let (index, value) = (integer(input, 6)?, string(input, 7)?);
            let name = match first & 0x40 {
                0 => self.recent(index).map(|(name, _)| name.clone()),
                _ => fixed(index).map(|(name, _)| name.as_bytes().to_vec()),
            };
            name.and_then(|name| self.insert((name, value)))
        } else if first & 0x40 != 0 {
            let (name, value) = (string(input, 5)?, string(input, 7)?);
            self.insert((name, value))
        } else if first & 0x20 != 0 {
            let capacity = integer(input, 5)?;
            self.resize(capacity)
        } else {
            let index = integer(input, 5)?;
            let again = self.recent(index).cloned();
            again.and_then(|entry| self.insert(entry))
        };
        Some(done.ok_or(Damaged))
    }

    /// The entry with that absolute index (section 3.2.4).
    pub(super) fn get(&self, absolute: u64) -> Option<&Entry> {
        let gone = self.inserted - self.entries.len() as u64;
        let place = absolute.checked_sub(gone)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    /// The base of a section with this prefix (section 4.5.1), from which its lines count; None where
    /// it needs what has not been seen.
    pub(super) fn base(&self, encoded: u64, negative: bool, delta: u64) -> Option<u64> {
        let required = self.required(encoded)?;
        if required > self.inserted {
            None
        } else if negative {
            required.checked_sub(delta)?.checked_sub(1)
        } else {
            required.checked_add(delta)
        }
    }

    /// The insert count that a section requires (section 4.5.1.1).
    fn required(&self, encoded: u64) -> Option<u64> {
        let most = self.limit / ENTRY as u64;
        let range = most.checked_mul(2).filter(|range| encoded <= *range)?;
        if encoded == 0 {
            return Some(0);
        }
        let largest = self.inserted + most;
        let count = largest / range * range + encoded - 1;
        let count = if count > largest {
            count.checked_sub(range)?
        } else {
            count
        };
        (count > 0).then_some(count)
    }

    /// The entry that came so many before the latest.
    fn recent(&self, relative: u64) -> Option<&Entry> {
        self.get(self.inserted.checked_sub(relative)?.checked_sub(1)?)
    }

    fn resize(&mut self, capacity: u64) -> Option<()> {
        self.capacity = usize::try_from(capacity)
            .ok()
            .filter(|_| capacity <= MOST)?;
        self.shrink(self.capacity);
        Some(())
    }

    fn insert(&mut self, entry: Entry) -> Option<()> {
        let size = entry.0.len() + entry.1.len() + ENTRY;
        self.shrink(self.capacity.checked_sub(size)?);
        self.size += size;
        self.entries.push_back(entry);
        self.inserted += 1;
        Some(())
    }

    /// Drops the oldest until no more than `size` bytes are left.
    fn shrink(&mut self, size: usize) {
        while self.size > size
            && let Some((name, value)) = self.entries.pop_front()
        {
            self.size -= name.len() + value.len() + ENTRY;
        }
    }
}

/// A line of the static table.
pub(super) fn fixed(index: u64) -> Option<&'static (&'static str, &'static str)> {
    STATIC.get(usize::try_from(index).ok()?)
}
