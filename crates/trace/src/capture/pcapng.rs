//! The pcapng format (draft-ietf-opsawg-pcapng): sections of blocks.

use super::{CaptureError, Head, Item, LONGEST_PACKET, LinkType, Source, u16_at, u32_at};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
/// As writers before 2009 have it: like an enhanced one, but its interface has two bytes, and dropped packets two.
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const DECRYPTION_SECRETS: u32 = 10;

/// The secrets type of NSS key log lines: "TLSK".
const TLS_KEY_LOG: u32 = 0x544c_534b;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;

/// A block's type and its two lengths.
const FRAME: usize = 12;
/// The longest block: the longest packet and its options, or a long key log.
const LONGEST_BLOCK: usize = LONGEST_PACKET + (16 << 20);
/// Interfaces of one section; each costs memory.
const MOST_INTERFACES: usize = 1 << 16;
/// Key log bytes that wait to be taken.
const MOST_SECRETS: usize = 64 << 20;

struct Interface {
    link_type: LinkType,
    /// A time stamp's unit is one second divided by this.
    per_second: u64,
    /// Seconds to be added.
    offset: i64,
    /// Most bytes kept of a packet; 0 for all.
    snap_len: u32,
}

pub(super) struct PcapNg {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// The first section's type has been read.
    begun: bool,
}

impl PcapNg {
    /// For a file whose first four bytes, a section's type, have been read.
    pub fn new() -> Self {
        Self {
            big_endian: false,
            interfaces: Vec::new(),
            begun: false,
        }
    }

    pub fn next(
        &mut self,
        source: &mut Source,
        secrets: &mut Vec<u8>,
    ) -> Result<Option<Item>, CaptureError> {
        loop {
            let Some(kind) = self.read_block(source)? else {
                return Ok(None);
            };
            match kind {
                SECTION => self.interfaces.clear(),
                INTERFACE => self.add_interface(source)?,
                OLD_PACKET | ENHANCED_PACKET => {
                    return (self.packet(source, kind)).map(|head| Some(Item::Packet(head)));
                }
                SIMPLE_PACKET => return self.simple(source).map(|head| Some(Item::Packet(head))),
                DECRYPTION_SECRETS => {
                    let body = &source.buffer;
                    if body.len() >= 8 && u32_at(body, 0, self.big_endian) == TLS_KEY_LOG {
                        let len = u32_at(body, 4, self.big_endian) as usize;
                        let lines = body.get(8..8usize.saturating_add(len));
                        let Some(lines) = lines else {
                            return Err(source.damaged("secrets longer than their block"));
                        };
                        if secrets.len() + lines.len() <= MOST_SECRETS {
                            secrets.extend_from_slice(lines);
                        }
                        return Ok(Some(Item::Secrets));
                    }
                }
                // Name resolution, statistics, comments: nothing of a packet.
                _ => {}
            }
        }
    }

    /// Reads the next block; its body is in the source's buffer.
    fn read_block(&mut self, source: &mut Source) -> Result<Option<u32>, CaptureError> {
        let kind = if self.begun {
            let Some(kind) = source.or_end(4, "a block's head")? else {
                return Ok(None);
            };
            u32_at(kind, 0, self.big_endian)
        } else {
            self.begun = true;
            SECTION
        };
        let len: [u8; 4] = source
            .exactly(4, "a block's head")?
            .try_into()
            .expect("four bytes");
        // A section says in which order its numbers are, after the first of them.
        let mut magic = Vec::new();
        if kind == SECTION {
            magic = source.exactly(4, "a section's head")?.to_vec();
            self.big_endian = match magic[..] {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return Err(source.damaged(format!("byte-order magic {magic:02x?}"))),
            };
        }
        let len = u32_at(&len, 0, self.big_endian) as usize;
        if len < FRAME + magic.len() || !len.is_multiple_of(4) || len > LONGEST_BLOCK {
            return Err(source.damaged(format!("a block of {len} bytes")));
        }
        source.exactly(len - 8 - magic.len(), "a block")?;
        let body = source.buffer.len() - 4;
        if u32_at(&source.buffer, body, self.big_endian) as usize != len {
            return Err(source.damaged(format!("a block of {len} bytes ends with another length")));
        }
        source.buffer.truncate(body);
        Ok(Some(kind))
    }

    fn add_interface(&mut self, source: &Source) -> Result<(), CaptureError> {
        let body = &source.buffer;
        if body.len() < 8 {
            return Err(source.damaged("an interface without a link type"));
        }
        if self.interfaces.len() >= MOST_INTERFACES {
            return Err(source.damaged(format!("more than {MOST_INTERFACES} interfaces")));
        }
        let mut interface = Interface {
            link_type: LinkType(u16_at(body, 0, self.big_endian).into()),
            per_second: 1_000_000,
            offset: 0,
            snap_len: u32_at(body, 4, self.big_endian),
        };
        let mut options = &body[8..];
        while options.len() >= 4 {
            let code = u16_at(options, 0, self.big_endian);
            let len = usize::from(u16_at(options, 2, self.big_endian));
            let Some(value) = options.get(4..4 + len) else {
                return Err(source.damaged("an interface's option is longer than its block"));
            };
            match (code, value) {
                (OPTION_TIME_RESOLUTION, &[resolution, ..]) => {
                    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
                    interface.per_second = base
                        .checked_pow(u32::from(resolution & 0x7f))
                        .ok_or_else(|| source.damaged("time stamps finer than can be counted"))?;
                }
                (OPTION_TIME_OFFSET, offset) if offset.len() == 8 => {
                    let offset = offset.try_into().expect("eight bytes");
                    interface.offset = if self.big_endian {
                        i64::from_be_bytes(offset)
                    } else {
                        i64::from_le_bytes(offset)
                    };
                }
                _ => {}
            }
            options = options.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn packet(&self, source: &Source, kind: u32) -> Result<Head, CaptureError> {
        const HEAD: usize = 20;
        let body = &source.buffer;
        if body.len() < HEAD {
            return Err(source.damaged("a packet block without a head"));
        }
        let number = |at| u32_at(body, at, self.big_endian);
        let number_of_interface = match kind {
            OLD_PACKET => u16_at(body, 0, self.big_endian).into(),
            _ => number(0),
        };
        let len = number(12) as usize;
        let Some(interface) = self.interfaces.get(number_of_interface as usize) else {
            return Err(source.damaged(format!(
                "a packet on interface {number_of_interface}; {} are described",
                self.interfaces.len()
            )));
        };
        if body.len() - HEAD < len {
            return Err(source.damaged("a packet longer than its block"));
        }
        let stamp = u64::from(number(4)) << 32 | u64::from(number(8));
        Ok(Head {
            time_ns: interface.nanos(stamp),
            link_type: interface.link_type,
            interface: number_of_interface,
            original_len: number(16),
            data: HEAD..HEAD + len,
        })
    }

    fn simple(&self, source: &Source) -> Result<Head, CaptureError> {
        let body = &source.buffer;
        let (Some(interface), true) = (self.interfaces.first(), body.len() >= 4) else {
            return Err(source.damaged("a simple packet without an interface or a length"));
        };
        let original_len = u32_at(body, 0, self.big_endian);
        let kept = match interface.snap_len {
            0 => original_len,
            snap_len => original_len.min(snap_len),
        };
        let len = (kept as usize).min(body.len() - 4);
        Ok(Head {
            time_ns: 0,
            link_type: interface.link_type,
            interface: 0,
            original_len,
            data: 4..4 + len,
        })
    }
}

impl Interface {
    fn nanos(&self, stamp: u64) -> u64 {
        let nanos = u128::from(stamp) * 1_000_000_000 / u128::from(self.per_second);
        let offset = i128::from(self.offset) * 1_000_000_000;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX) + offset;
        u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
    }
}
