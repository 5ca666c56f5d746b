//! A reader of integers and byte strings that never passes the end.

/// What is left of a byte string.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// Two bytes, big endian.
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// Three bytes, big endian.
    pub fn u24(&mut self) -> Option<usize> {
        let bytes = self.take(3)?;
        Some(usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]))
    }

    /// Four bytes, big endian.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A variable-length integer (RFC 9000, section 16).
    pub fn varint(&mut self) -> Option<u64> {
        let first = *self.0.first()?;
        let len = 1usize << (first >> 6);
        let bytes = self.take(len)?;
        let head = u64::from(first & 0x3f);
        Some(
            bytes[1..]
                .iter()
                .fold(head, |value, byte| value << 8 | u64::from(*byte)),
        )
    }

    /// As many bytes as a variable-length integer before them says.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
