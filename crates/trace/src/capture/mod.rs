//! Capture files: pcap and pcapng, plain or compressed with gzip or Zstandard.
//!
//! [`Reader::next`] gives one packet after the other out of a buffer that is used again.
//! A file that ends in the middle of a packet, or whose lengths cannot be, ends with an
//! error that names the byte; everything before it has been given.

mod pcap;
mod pcapng;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The longest packet that is read; tcpdump's own limit is a quarter of a MiB.
const LONGEST_PACKET: usize = 1 << 20;

/// How the bytes of a packet begin (the LINKTYPE_ values of tcpdump.org).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkType(pub u32);

/// One packet as it was captured.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What `data` begins with.
    pub link_type: LinkType,
    /// On which interface of the file; always 0 in pcap.
    pub interface: u32,
    /// The bytes that were kept.
    pub data: &'a [u8],
    /// Length on the wire; more than `data` has if the capture cut it.
    pub original_len: u32,
}

/// Why a capture cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file could not be read.
    #[error("reading: {0}")]
    Io(#[from] io::Error),
    /// The first bytes are not those of a capture.
    #[error(
        "no capture: it begins with {0:02x?}, neither pcap (a1b2c3d4, a1b23c4d) nor pcapng (0a0d0d0a)"
    )]
    NoCapture([u8; 4]),
    /// The file ends in the middle of something.
    #[error("truncated at byte {at}: {what} ends early; {packets} packets before it are whole")]
    Truncated {
        /// Where what is cut begins, uncompressed.
        at: u64,
        /// What is cut.
        what: &'static str,
        /// How many packets were read.
        packets: u64,
    },
    /// A length or reference that cannot be.
    #[error("damaged at byte {at}: {why}; {packets} packets before it are whole")]
    Damaged {
        /// Where, uncompressed.
        at: u64,
        /// What is wrong.
        why: String,
        /// How many packets were read.
        packets: u64,
    },
}

/// What a file says next.
enum Item {
    Packet(Head),
    /// Key log lines out of a Decryption Secrets Block.
    Secrets,
}

/// A packet whose bytes are in the reader's buffer.
struct Head {
    time_ns: u64,
    link_type: LinkType,
    interface: u32,
    original_len: u32,
    data: std::ops::Range<usize>,
}

/// A capture file that is read from front to back.
pub struct Reader {
    source: Source,
    format: Format,
    secrets: Vec<u8>,
}

enum Format {
    Pcap(pcap::Pcap),
    PcapNg(pcapng::PcapNg),
}

impl Reader {
    /// Opens the capture at `path`.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        Self::new(File::open(path)?)
    }

    /// Reads a capture from `file`, which need not be seekable.
    pub fn new(file: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        let mut source = Source::new(decompressed(file)?);
        let magic = source
            .exactly(4, "the file's head")?
            .try_into()
            .expect("four bytes");
        let format = if magic == [0x0a, 0x0d, 0x0d, 0x0a] {
            Format::PcapNg(pcapng::PcapNg::new())
        } else {
            Format::Pcap(pcap::Pcap::new(magic, &mut source)?)
        };
        Ok(Self {
            source,
            format,
            secrets: Vec::new(),
        })
    }

    /// The next packet; `None` at the end of the file.
    #[expect(
        clippy::should_implement_trait,
        reason = "a packet borrows the reader's buffer"
    )]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        loop {
            let item = match &mut self.format {
                Format::Pcap(pcap) => pcap.next(&mut self.source)?,
                Format::PcapNg(pcapng) => pcapng.next(&mut self.source, &mut self.secrets)?,
            };
            match item {
                None => return Ok(None),
                Some(Item::Secrets) => {}
                Some(Item::Packet(head)) => {
                    self.source.packets += 1;
                    return Ok(Some(Packet {
                        time_ns: head.time_ns,
                        link_type: head.link_type,
                        interface: head.interface,
                        data: &self.source.buffer[head.data],
                        original_len: head.original_len,
                    }));
                }
            }
        }
    }

    /// Whether it is of a format that has room for secrets.
    pub fn may_hold_secrets(&self) -> bool {
        matches!(self.format, Format::PcapNg(_))
    }

    /// Key log lines that the file has held since the last call (pcapng only).
    pub fn take_secrets(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.secrets)
    }

    /// Bytes read so far, uncompressed.
    pub fn bytes(&self) -> u64 {
        self.source.at
    }
}

/// The file's bytes in order, a piece at a time in one buffer.
struct Source {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// How far the file has been read.
    at: u64,
    packets: u64,
    /// The compressed file ends before what it holds does.
    cut: bool,
}

impl Source {
    fn new(input: Box<dyn Read + Send>) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            at: 0,
            packets: 0,
            cut: false,
        }
    }

    /// The next `len` bytes.
    fn exactly(&mut self, len: usize, what: &'static str) -> Result<&[u8], CaptureError> {
        match self.fill(len)? {
            true => Ok(&self.buffer),
            false => Err(self.truncated(what)),
        }
    }

    /// The next `len` bytes, or `None` if the file ends before the first of them.
    fn or_end(&mut self, len: usize, what: &'static str) -> Result<Option<&[u8]>, CaptureError> {
        match self.fill(len)? {
            true => Ok(Some(&self.buffer)),
            false if self.buffer.is_empty() && !self.cut => Ok(None),
            false => Err(self.truncated(what)),
        }
    }

    /// Whether all of the next `len` bytes were there; the buffer has those that were.
    fn fill(&mut self, len: usize) -> io::Result<bool> {
        self.buffer.resize(len, 0);
        let mut filled = 0;
        while filled < len {
            match self.input.read(&mut self.buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A compressed file that is cut says so itself.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.cut = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.at += filled as u64;
        self.buffer.truncate(filled);
        Ok(filled == len)
    }

    fn truncated(&self, what: &'static str) -> CaptureError {
        CaptureError::Truncated {
            at: self.at - self.buffer.len() as u64,
            what,
            packets: self.packets,
        }
    }

    fn damaged(&self, why: impl Into<String>) -> CaptureError {
        CaptureError::Damaged {
            at: self.at - self.buffer.len() as u64,
            why: why.into(),
            packets: self.packets,
        }
    }
}

/// `file` without its compression, told by its first bytes.
pub(crate) fn decompressed(
    mut file: impl Read + Send + 'static,
) -> io::Result<Box<dyn Read + Send>> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    let mut first = Vec::with_capacity(4);
    (&mut file).take(4).read_to_end(&mut first)?;
    let is = |magic: &[u8]| first.starts_with(magic);
    let (gzip, zstd) = (is(GZIP), is(ZSTD));
    let whole = BufReader::with_capacity(1 << 18, io::Cursor::new(first).chain(file));
    Ok(if gzip {
        Box::new(BufReader::with_capacity(
            1 << 18,
            flate2::bufread::MultiGzDecoder::new(whole),
        ))
    } else if zstd {
        Box::new(BufReader::with_capacity(
            1 << 18,
            zstd::stream::read::Decoder::with_buffer(whole)?,
        ))
    } else {
        Box::new(whole)
    })
}

/// Four bytes of `bytes` from `at` on, in the file's order.
fn u32_at(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let four = bytes[at..at + 4].try_into().expect("four bytes");
    if big_endian {
        u32::from_be_bytes(four)
    } else {
        u32::from_le_bytes(four)
    }
}

/// Two bytes of `bytes` from `at` on, in the file's order.
fn u16_at(bytes: &[u8], at: usize, big_endian: bool) -> u16 {
    let two = bytes[at..at + 2].try_into().expect("two bytes");
    if big_endian {
        u16::from_be_bytes(two)
    } else {
        u16::from_le_bytes(two)
    }
}
