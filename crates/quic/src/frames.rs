//! A bound on HTTP/3 frames that have to be held whole.
//!
//! The HTTP/3 library collects every frame but DATA before it looks at it, whatever length
//! the frame declares. So the lengths are read before the library sees them.

use crate::varint;

/// The longest frame that is held, bytes: twice the largest header section that is taken.
const LONGEST: u64 = 16 * 1024;
/// The type of DATA frames (RFC 9114, section 7.2.1), which are passed on as they come.
const DATA: u64 = 0x0;

/// Follows the frames of one stream.
#[derive(Debug, Default)]
pub(crate) struct FrameBound {
    /// The beginning of a frame whose type and length are not complete.
    head: Vec<u8>,
    /// Bytes of the current frame that are still to come.
    left: u64,
}

/// A frame declares more than may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameTooLong;

impl FrameBound {
    /// Looks at what comes next on the stream.
    pub(crate) fn look(&mut self, mut data: &[u8]) -> Result<(), FrameTooLong> {
        while let Some((&byte, rest)) = data.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(data.len() as u64);
                self.left -= skipped;
                // No longer than the data.
                data = &data[usize::try_from(skipped).unwrap_or(data.len())..];
                continue;
            }
            self.head.push(byte);
            data = rest;
            if let Some((kind, first)) = varint::read(&self.head)
                && let Some((length, _)) = varint::read(&self.head[first..])
            {
                if kind != DATA && length > LONGEST {
                    return Err(FrameTooLong);
                }
                self.head.clear();
                self.left = length;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_however_the_stream_is_cut() {
        // HEADERS of 3 bytes, DATA of 70,000, HEADERS of 16,385.
        let mut stream = vec![0x01, 3, 1, 2, 3, 0x00, 0x80, 0x01, 0x11, 0x70];
        stream.extend(std::iter::repeat_n(0xff, 70_000));
        let good = stream.len();
        stream.extend([0x01, 0x80, 0x00, 0x40, 0x01]);
        for cut in [1, 2, 7, 1000, stream.len()] {
            let mut bound = FrameBound::default();
            for piece in stream[..good].chunks(cut) {
                assert_eq!(bound.look(piece), Ok(()));
            }
            let mut pieces = stream[good..].chunks(cut);
            assert!(
                pieces.any(|piece| bound.look(piece).is_err()),
                "cut at {cut}"
            );
        }
    }
}
