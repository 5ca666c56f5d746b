//! Capture of packets as they enter and leave each direction, in a file for Wireshark (pcapng,
//! draft-ietf-opsawg-pcapng).
//!
//! A direction has three interfaces: `in` is where packets enter it, `out` where they
//! leave it, and on `dropped` are those that did not come out, each with the reason in
//! its comment. `in` and `dropped` have the model's moments, `out` the one at which the
//! other side had the packet. Keys that programs log while it runs (NSS key log format,
//! `SSLKEYLOGFILE`) go into the file ahead of the packets that follow them.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Duration;

use bentpipe_units::{Span, Time};
use pcap_file::pcapng::PcapNgBlock;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::blocks::unknown::UnknownBlock;
use pcap_file::pcapng::{PcapNgWriteError, PcapNgWriter};
use pcap_file::{DataLink, Endianness};

use crate::direction::{DirectionId, DirectionName};
use crate::record::{Fate, nanos_since_1970};
use crate::spool::{Incomplete, Sink, Spool};

/// Where in a direction a packet is seen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Point {
    In,
    Out,
    Dropped,
}

impl Point {
    const ALL: [Self; 3] = [Self::In, Self::Out, Self::Dropped];

    fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Dropped => "dropped",
        }
    }
}

/// Before each packet in a chunk: time, interface, fate, length.
const HEADER: usize = 8 + 2 + 2 + 2;
/// A chunk does not wait longer than this for its last packet.
const FRESH: Span = Span::from_millis(500);
/// Keys that are read at once.
const KEYS: u64 = 1 << 20;

/// Writes down packets, on a thread of its own.
#[derive(Debug)]
pub(super) struct Capture {
    spool: Spool,
    /// When the run began, nanoseconds since 1970.
    epoch: u64,
    handed_over: Time,
}

impl Capture {
    /// Writes the head for links of those names, each with two directions. `keys` is where
    /// programs log their keys.
    pub fn new(
        file: File,
        scenario: &str,
        links: &[String],
        keys: Option<PathBuf>,
    ) -> io::Result<Self> {
        let mut writer = PcapNgWriter::with_section_header(
            BufWriter::new(file),
            SectionHeaderBlock {
                endianness: Endianness::Little,
                options: vec![
                    SectionHeaderOption::UserApplication(Cow::Borrowed(concat!(
                        "bentpipe ",
                        env!("CARGO_PKG_VERSION")
                    ))),
                    SectionHeaderOption::Common(CommonOption::Comment(Cow::Owned(format!(
                        "scenario {scenario}"
                    )))),
                ],
                ..SectionHeaderBlock::default()
            },
        )
        .map_err(cause)?;
        for link in links {
            for direction in DirectionName::BOTH {
                for point in Point::ALL {
                    let name = format!("{link} {direction} {}", point.name());
                    let mut interface = InterfaceDescriptionBlock::new(DataLink::RAW, 0);
                    interface.options = vec![
                        InterfaceDescriptionOption::IfName(Cow::Owned(name)),
                        InterfaceDescriptionOption::IfTsResol(
                            InterfaceTsResolution::new(false, 9).expect("nanoseconds"),
                        ),
                    ];
                    writer.write_pcapng_block(interface).map_err(cause)?;
                }
            }
        }
        let file = Writer {
            writer,
            keys: keys.map(|path| Keys { path, read: 0 }),
        };
        Ok(Self {
            spool: Spool::new("capture", file)?,
            epoch: 0,
            handed_over: Time::ZERO,
        })
    }

    /// The run begins now.
    pub fn begin(&mut self) {
        self.epoch = nanos_since_1970();
    }

    /// A packet is at a point of a direction.
    pub fn add(
        &mut self,
        at: Time,
        direction: DirectionId,
        point: Point,
        fate: Fate,
        packet: &[u8],
    ) {
        let Ok(length) = u16::try_from(packet.len()) else {
            return;
        };
        let interface = u16::try_from(Point::ALL.len() * direction.index() + point as usize);
        let nanos = self.epoch + at.as_nanos();
        self.spool.add(HEADER + packet.len(), |chunk| {
            chunk.extend_from_slice(&nanos.to_le_bytes());
            chunk.extend_from_slice(&interface.unwrap_or(u16::MAX).to_le_bytes());
            chunk.extend_from_slice(&fate.number().to_le_bytes());
            chunk.extend_from_slice(&length.to_le_bytes());
            chunk.extend_from_slice(packet);
        });
        if at.since(self.handed_over) > FRESH {
            self.handed_over = at;
            self.spool.hand_over();
        }
    }

    /// Writes what is left and waits for it.
    pub fn finish(self) -> Result<(), Incomplete> {
        self.spool.finish()
    }
}

/// The other thread's end.
struct Writer {
    writer: PcapNgWriter<BufWriter<File>>,
    keys: Option<Keys>,
}

impl Sink for Writer {
    fn write(&mut self, mut chunk: &[u8]) -> io::Result<()> {
        self.write_keys()?;
        let names = Fate::names();
        while let Some((header, rest)) = chunk.split_at_checked(HEADER) {
            let number = |from: usize| u16::from_le_bytes([header[from], header[from + 1]]);
            let nanos = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
            let fate = usize::from(number(10));
            let (packet, rest) = rest.split_at(usize::from(number(12)));
            chunk = rest;
            let comment = |name: &&'static str| {
                EnhancedPacketOption::Common(CommonOption::Comment(Cow::Borrowed(*name)))
            };
            let packet = EnhancedPacketBlock {
                interface_id: number(8).into(),
                timestamp: Duration::from_nanos(nanos),
                original_len: u32::from(number(12)),
                data: Cow::Borrowed(packet),
                options: match fate {
                    0 => Vec::new(),
                    fate => names.get(fate).map(comment).into_iter().collect(),
                },
            };
            self.writer.write_pcapng_block(packet).map_err(cause)?;
        }
        self.writer.get_mut().flush()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_keys()?;
        self.writer.get_mut().flush()
    }
}

impl Writer {
    /// Writes the keys that were logged since the last time, as a Decryption Secrets Block.
    fn write_keys(&mut self) -> io::Result<()> {
        /// Type of the block, and of what is in it: a TLS key log.
        const DECRYPTION_SECRETS: u32 = 0x0a;
        const TLS_KEY_LOG: u32 = 0x544c_534b;
        let Some(keys) = &mut self.keys else {
            return Ok(());
        };
        while let Some(lines) = keys.read_on() {
            let length = u32::try_from(lines.len()).map_err(io::Error::other)?;
            let mut body = Vec::with_capacity(lines.len() + 12);
            body.extend_from_slice(&TLS_KEY_LOG.to_le_bytes());
            body.extend_from_slice(&length.to_le_bytes());
            body.extend_from_slice(&lines);
            body.resize(body.len().next_multiple_of(4), 0);
            let length = u32::try_from(body.len() + 12).map_err(io::Error::other)?;
            self.writer
                .write_block(&UnknownBlock::new(DECRYPTION_SECRETS, length, &body).into_block())
                .map_err(cause)?;
        }
        Ok(())
    }
}

/// What the system said, without the library's words around it.
fn cause(error: PcapNgWriteError) -> io::Error {
    match error {
        PcapNgWriteError::Io(error) => error,
        error => io::Error::other(error),
    }
}

/// A key log that grows.
struct Keys {
    path: PathBuf,
    /// Bytes that were taken.
    read: u64,
}

impl Keys {
    /// The whole lines that were added since the last time, if there are any. A file that
    /// is not there yet has none.
    fn read_on(&mut self) -> Option<Vec<u8>> {
        let mut file = File::open(&self.path).ok()?;
        file.seek(SeekFrom::Start(self.read)).ok()?;
        let mut lines = Vec::new();
        file.take(KEYS).read_to_end(&mut lines).ok()?;
        let end = lines.iter().rposition(|byte| *byte == b'\n')? + 1;
        lines.truncate(end);
        self.read += end as u64;
        Some(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::Cause;
    use pcap_file::pcapng::{Block, PcapNgReader};

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("bentpipe-capture-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_is_captured_can_be_read_again() {
        let (path, log) = (temporary("packets"), temporary("keys"));
        std::fs::write(&log, "CLIENT_RANDOM 00 11\nCLIENT_RAN").unwrap();
        let file = File::create(&path).unwrap();
        let mut capture =
            Capture::new(file, "test", &["satellite".into()], Some(log.clone())).unwrap();
        capture.begin();
        let began = Duration::from_nanos(capture.epoch);
        let at = Time::from_nanos;
        let (packet, lost) = ([0x45; 61], [0x60; 40]);
        capture.add(
            at(5),
            DirectionId::at(0),
            Point::In,
            Fate::Delivered,
            &packet,
        );
        capture.add(
            at(7),
            DirectionId::at(0),
            Point::Out,
            Fate::Delivered,
            &packet,
        );
        capture.add(
            at(9),
            DirectionId::at(1),
            Point::Dropped,
            Fate::Dropped(Cause::Loss),
            &lost,
        );
        std::fs::write(&log, "CLIENT_RANDOM 00 11\nCLIENT_RANDOM 22 33\n").unwrap();
        capture.finish().unwrap();

        let mut reader = PcapNgReader::new(File::open(&path).unwrap()).unwrap();
        let (mut packets, mut secrets) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            match block.unwrap().0 {
                Block::EnhancedPacket(packet) => packets.push(packet.into_owned()),
                Block::Unknown(block) => {
                    assert_eq!(block.value[..4], *b"KSLT");
                    let length = u32::from_le_bytes(block.value[4..8].try_into().unwrap());
                    let end = 8 + usize::try_from(length).unwrap();
                    secrets.extend_from_slice(&block.value[8..end]);
                }
                _ => {}
            }
        }
        let names: Vec<_> = reader
            .interfaces()
            .iter()
            .map(|interface| match &interface.options[0] {
                InterfaceDescriptionOption::IfName(name) => name.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names[0], "satellite forward in");
        assert_eq!(names[5], "satellite return dropped");
        let seen: Vec<_> = packets
            .iter()
            .map(|packet| {
                let after = packet.timestamp - began;
                (packet.interface_id, after.as_nanos(), packet.data.len())
            })
            .collect();
        assert_eq!(seen, [(0, 5, 61), (1, 7, 61), (5, 9, 40)]);
        assert!(packets[0].options.is_empty());
        assert_eq!(
            packets[2].options,
            [EnhancedPacketOption::Common(CommonOption::Comment(
                "loss".into()
            ))]
        );
        let secrets = String::from_utf8(secrets).unwrap();
        assert_eq!(secrets, "CLIENT_RANDOM 00 11\nCLIENT_RANDOM 22 33\n");
        for path in [path, log] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
