//! The bytes of requests' bodies and of answers: known to both ends, so that a wrong one
//! is noticed.

use std::sync::LazyLock;

use tokio::io::ReadBuf;

const PERIOD: usize = 1 << 16;

/// What stands in a stream from `offset` on, as far as one piece goes.
fn content(offset: u64) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |place: usize| (place * 31 + place / 251).to_le_bytes()[0];
        (0..2 * PERIOD).map(|place| byte(place % PERIOD)).collect()
    });
    let place = usize::try_from(offset % PERIOD as u64).unwrap_or(0);
    &BYTES[place..place + PERIOD]
}

/// Puts what stands from `offset` on into `buffer`, at most `most` bytes; how many.
pub(super) fn fill(buffer: &mut ReadBuf<'_>, offset: u64, most: u64) -> u64 {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let count = buffer.remaining().min(most).min(PERIOD);
    buffer.put_slice(&content(offset)[..count]);
    count as u64
}

/// Whether `data` is what stands from `offset` on.
pub(super) fn is_right(data: &[u8], mut offset: u64) -> bool {
    data.chunks(PERIOD).all(|piece| {
        let right = content(offset)[..piece.len()] == *piece;
        offset += piece.len() as u64;
        right
    })
}
