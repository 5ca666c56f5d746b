//! The same packets in every kind of capture file, whole, and cut at every byte.

use std::io::{Cursor, Write};
use std::path::PathBuf;

use bentpipe_trace::capture::{CaptureError, Reader};

/// Time, interface and bytes.
type Packet = (u64, u32, Vec<u8>);

fn read(file: &[u8]) -> (Vec<Packet>, Option<CaptureError>) {
    let mut packets = Vec::new();
    let mut reader = match Reader::new(Cursor::new(file.to_vec())) {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(packet)) => {
                packets.push((packet.time_ns, packet.interface, packet.data.to_vec()));
            }
            Ok(None) => return (packets, None),
            Err(error) => return (packets, Some(error)),
        }
    }
}

/// Packets of one of the captures of other people's stacks, the first so many.
fn packets(most: usize) -> Vec<Packet> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(root.join("../../e2e/captures/quic-go.pcapng")).expect("it is there");
    let (mut packets, damage) = read(&file);
    assert!(damage.is_none() && packets.len() > 20);
    packets.truncate(most);
    packets
}

/// Numbers in one order or the other.
struct Writer {
    big_endian: bool,
    bytes: Vec<u8>,
}

impl Writer {
    fn u16(&mut self, number: u16) {
        let bytes = number.to_be_bytes();
        (self.bytes).extend(if self.big_endian {
            bytes
        } else {
            number.to_le_bytes()
        });
    }

    fn u32(&mut self, number: u32) {
        let bytes = number.to_be_bytes();
        (self.bytes).extend(if self.big_endian {
            bytes
        } else {
            number.to_le_bytes()
        });
    }

    fn data(&mut self, data: &[u8]) {
        self.bytes.extend(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// A block of pcapng.
    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.u32(kind);
        self.u32(0);
        body(self);
        let len = u32::try_from(self.bytes.len() + 4 - start).expect("a short block");
        self.u32(len);
        let written = self.bytes[self.bytes.len() - 4..].to_vec();
        self.bytes[start + 4..start + 8].copy_from_slice(&written);
    }
}

fn pcap(packets: &[Packet], big_endian: bool, unit: u64) -> Vec<u8> {
    let (magic, mut file) = (
        if unit == 1 { 0xa1b2_3c4d } else { 0xa1b2_c3d4 },
        Vec::new(),
    );
    let mut to = Writer {
        big_endian,
        bytes: Vec::new(),
    };
    for number in [magic, 0x0002_0004, 0, 0, 65536, 1] {
        to.u32(number);
    }
    for (time, _, data) in packets {
        let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
        to.u32(seconds.try_into().expect("before 2106"));
        to.u32((nanos / unit).try_into().expect("below 2^32"));
        let len = data.len().try_into().expect("short");
        to.u32(len);
        to.u32(len);
        to.bytes.extend(data);
    }
    file.append(&mut to.bytes);
    file
}

/// A section with two interfaces, of microseconds and of 2^-10 seconds, and a block of a kind that nobody knows
/// before each packet.
fn pcapng(packets: &[Packet], big_endian: bool) -> Vec<u8> {
    let mut to = Writer {
        big_endian,
        bytes: Vec::new(),
    };
    to.block(0x0a0d_0d0a, |to| {
        to.u32(0x1a2b_3c4d);
        to.u32(1);
        to.data(&[0xff; 8]);
    });
    for resolution in [6, 0x80 | 10] {
        to.block(1, |to| {
            to.u16(1);
            to.u16(0);
            to.u32(0);
            to.u16(9);
            to.u16(1);
            to.data(&[resolution]);
        });
    }
    for (place, (time, interface, data)) in packets.iter().enumerate() {
        to.block(0x7777, |to| to.data(b"of the future"));
        let stamp = match interface {
            0 => time / 1000,
            _ => time / 1_000_000_000 * 1024 + (time % 1_000_000_000) * 1024 / 1_000_000_000,
        };
        let len = u32::try_from(data.len()).expect("short");
        // Every third one as it was written before 2009.
        let kind = if place % 3 == 0 { 2 } else { 6 };
        to.block(kind, |to| {
            if kind == 2 {
                to.u16((*interface).try_into().expect("a few"));
                to.u16(17);
            } else {
                to.u32(*interface);
            }
            to.u32((stamp >> 32).try_into().expect("the upper half"));
            to.u32((stamp & 0xffff_ffff).try_into().expect("the lower half"));
            to.u32(len);
            to.u32(len);
            to.data(data);
        });
    }
    to.bytes
}

fn gzip(file: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(file).expect("memory");
    to.finish().expect("memory")
}

fn zstd(file: &[u8]) -> Vec<u8> {
    zstd::encode_all(file, 1).expect("memory")
}

/// Times as coarse as a format has them, on interfaces in turn.
fn coarse(unit: u64, interfaces: u32) -> Vec<Packet> {
    let coarse = |(place, (time, _, data)): (usize, Packet)| {
        let interface = u32::try_from(place).expect("few") % interfaces;
        let time = match interface {
            0 => time / unit * unit,
            // Seconds, because they divide into both.
            _ => time / 1_000_000_000 * 1_000_000_000,
        };
        (time, interface, data)
    };
    packets(12).into_iter().enumerate().map(coarse).collect()
}

#[test]
fn both_orders_of_bytes_and_all_resolutions_are_read() {
    for big_endian in [false, true] {
        for unit in [1, 1000] {
            let packets = coarse(unit, 1);
            let (found, damage) = read(&pcap(&packets, big_endian, unit));
            assert!(damage.is_none(), "{damage:?}");
            assert_eq!(found, packets);
        }
        let packets = coarse(1000, 2);
        // A section of the other order after it.
        let file = [pcapng(&packets, big_endian), pcapng(&packets, !big_endian)].concat();
        for file in [file.clone(), gzip(&file), zstd(&file)] {
            let (found, damage) = read(&file);
            assert!(damage.is_none(), "{damage:?}");
            assert_eq!(found, [packets.clone(), packets.clone()].concat());
        }
    }
}

#[test]
fn of_a_file_that_is_cut_anywhere_all_packets_before_are_read() {
    let packets = coarse(1000, 2);
    let alone = coarse(1000, 1);
    let files = [
        (pcapng(&packets, true), &packets),
        (pcap(&alone, false, 1000), &alone),
        (gzip(&pcap(&alone, true, 1000)), &alone),
        (zstd(&pcapng(&packets, false)), &packets),
    ];
    for (place, (file, packets)) in files.iter().enumerate() {
        let mut most = 0;
        for cut in 0..=file.len() {
            let (found, damage) = read(&file[..cut]);
            assert_eq!(found, packets[..found.len()], "file {place} cut at {cut}");
            assert!(found.len() >= most, "file {place} cut at {cut}");
            most = found.len();
            if cut < file.len() && damage.is_none() {
                // Between two packets or blocks nothing is missing that could be known of.
                assert!(place < 2, "file {place} cut at {cut}");
            }
        }
        assert_eq!(most, packets.len());
    }
}

#[test]
fn lengths_that_cannot_be_end_the_file_and_take_no_memory() {
    let packets = coarse(1000, 1);
    let good = pcap(&packets, false, 1000);
    let second = 24 + 16 + packets[0].2.len();
    for len in [u32::MAX, 1 << 31, (1 << 20) + 1] {
        let mut file = good.clone();
        file[second + 8..second + 12].copy_from_slice(&len.to_le_bytes());
        let (found, damage) = read(&file);
        assert_eq!(found, packets[..1]);
        assert!(
            matches!(damage, Some(CaptureError::Damaged { packets: 1, .. })),
            "{damage:?}"
        );
    }
    let good = pcapng(&packets, false);
    for len in [u32::MAX, 1 << 30, 0, 4, 13] {
        let mut file = good.clone();
        file.extend(6u32.to_le_bytes());
        file.extend(len.to_le_bytes());
        file.extend([0; 64]);
        let (found, damage) = read(&file);
        assert_eq!(found.len(), packets.len());
        assert!(
            matches!(damage, Some(CaptureError::Damaged { .. })),
            "{len}: {damage:?}"
        );
    }
}
