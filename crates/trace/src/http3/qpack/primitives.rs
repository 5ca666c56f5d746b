//! Integers and strings of QPACK (RFC 9204, section 4.1).

use crate::http3::huffman;
use crate::quic::bytes::Input;

/// An integer whose first byte has `bits` of it (RFC 7541, section 5.1).
pub(super) fn integer(input: &mut Input<'_>, bits: u32) -> Option<u64> {
    let most = (1u64 << bits) - 1;
    let mut value = u64::from(input.u8()?) & most;
    if value < most {
        return Some(value);
    }
    for shift in (0..56).step_by(7) {
        let byte = input.u8()?;
        value += u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A string whose first byte has `bits` of its length, and before them whether it is coded.
pub(super) fn string(input: &mut Input<'_>, bits: u32) -> Option<Vec<u8>> {
    let coded = input.0.first()? >> bits & 1 != 0;
    let length = usize::try_from(integer(input, bits)?).ok()?;
    let bytes = input.take(length)?;
    if coded {
        huffman::decode(bytes)
    } else {
        Some(bytes.to_vec())
    }
}
