//! Variable-length integers (RFC 9000, section 16).

use bytes::BufMut;

/// The largest that there is.
pub const MAX: u64 = (1 << 62) - 1;

/// Reads one from the beginning of `data`, and how long it is; `None` if it is not complete.
pub fn read(data: &[u8]) -> Option<(u64, usize)> {
    let length = 1 << (data.first()? >> 6);
    let bytes = data.get(..length)?;
    let value = bytes
        .iter()
        .fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    // The length's two bits are above the value's.
    Some((value & (u64::MAX >> (64 - 8 * length + 2)), length))
}

/// Writes `value`, at most [`MAX`], as short as it can be.
pub fn put(value: u64, out: &mut impl BufMut) {
    debug_assert!(value <= MAX);
    let length = length(value);
    let tag = u64::from(length.trailing_zeros()) << (8 * length - 2);
    out.put_uint(value | tag, length);
}

/// Bytes that `value` takes: 1, 2, 4 or 8.
pub fn length(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut bytes = Vec::new();
            put(value, &mut bytes);
            assert_eq!(bytes.len(), length(value));
            assert_eq!(read(&bytes), Some((value, bytes.len())));
            assert_eq!(read(&bytes[..bytes.len() - 1]), None);
        }
    }
}
