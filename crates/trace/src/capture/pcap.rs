//! The pcap format (draft-ietf-opsawg-pcap): one head, then packets.

use super::{CaptureError, Head, Item, LONGEST_PACKET, LinkType, Source, u32_at};

/// Bytes of the head after its magic number.
const REST_OF_HEAD: usize = 20;
const RECORD_HEAD: usize = 16;

pub(super) struct Pcap {
    big_endian: bool,
    /// Nanoseconds of one unit of a time stamp's fraction.
    unit: u64,
    link_type: LinkType,
}

impl Pcap {
    /// For a file that began with `magic`; reads the rest of its head.
    pub fn new(magic: [u8; 4], source: &mut Source) -> Result<Self, CaptureError> {
        let (big_endian, unit) = match u32::from_be_bytes(magic) {
            0xa1b2_c3d4 => (true, 1_000),
            0xa1b2_3c4d => (true, 1),
            0xd4c3_b2a1 => (false, 1_000),
            0x4d3c_b2a1 => (false, 1),
            _ => return Err(CaptureError::NoCapture(magic)),
        };
        let head = source.exactly(REST_OF_HEAD, "the file's head")?;
        // The upper bits say how long the frame check sequence is.
        let link_type = LinkType(u32_at(head, 16, big_endian) & 0xffff);
        Ok(Self {
            big_endian,
            unit,
            link_type,
        })
    }

    pub fn next(&mut self, source: &mut Source) -> Result<Option<Item>, CaptureError> {
        let Some(head) = source.or_end(RECORD_HEAD, "a packet's head")? else {
            return Ok(None);
        };
        let number = |at| u32_at(head, at, self.big_endian);
        let (seconds, fraction, len, original_len) = (number(0), number(4), number(8), number(12));
        let length = len as usize;
        if length > LONGEST_PACKET {
            return Err(source.damaged(format!("a packet of {len} bytes")));
        }
        source.exactly(length, "a packet")?;
        Ok(Some(Item::Packet(Head {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit,
            link_type: self.link_type,
            interface: 0,
            original_len,
            data: 0..length,
        })))
    }
}
