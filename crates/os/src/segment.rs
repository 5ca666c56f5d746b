//! Segmentation as a network card does it before a large packet is on the wire: cut into
//! packets of the link's size, with their checksums completed.
//!
//! The kernel hands TCP and UDP to a TUN device as it would to a card that does this
//! (virtio 1.2, section 5.1.6): up to 64 KiB behind one header, which says how to cut.
//! `tun.rs` asks for large TCP packets only; whatever a header says is understood.

/// Bytes of the header before each packet (`struct virtio_net_hdr`).
pub const HEADER: usize = 10;
/// The longest packet that comes behind it.
pub const LONGEST: usize = 65_535 + HEADER;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set beside the kind: the first segment says "congestion window reduced".
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN_PSH: u8 = 0b0000_1001;
const CWR: u8 = 0b1000_0000;

/// Why a packet cannot be cut as its header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not even a header.
    #[error("shorter than its header")]
    Short,
    /// A kind that the device was not told that it may use.
    #[error("segmentation of kind {0} was not asked for")]
    Kind(u8),
    /// The header does not fit the packet.
    #[error("the header says what the packet is not")]
    Contradiction,
}

/// The virtio header, as far as it matters here.
#[derive(Debug, Clone, Copy)]
struct Offload {
    needs_checksum: bool,
    kind: u8,
    size: usize,
    start: usize,
    offset: usize,
}

impl Offload {
    fn parse(header: &[u8; HEADER]) -> Self {
        // The device was not told otherwise, so its numbers have the machine's order.
        let number = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        Self {
            needs_checksum: header[0] & NEEDS_CHECKSUM != 0,
            kind: header[1] & !GSO_ECN,
            size: number(4),
            start: number(6),
            offset: number(8),
        }
    }
}

/// Cuts what was read from a TUN device, its header before it, into the packets that
/// go on the wire: for each, `room` gives an empty buffer and `emit` gets it back filled.
///
/// # Errors
/// When nothing was emitted, and why. Any bytes at all may be given.
pub fn segment(
    read: &mut [u8],
    mut room: impl FnMut() -> Vec<u8>,
    mut emit: impl FnMut(Vec<u8>),
) -> Result<(), Malformed> {
    let (header, packet) = read
        .split_first_chunk_mut::<HEADER>()
        .ok_or(Malformed::Short)?;
    let offload = Offload::parse(header);
    if offload.kind == GSO_NONE {
        if offload.needs_checksum {
            complete(packet, offload.start, offload.offset)?;
        }
        let mut buffer = room();
        buffer.extend_from_slice(packet);
        emit(buffer);
        return Ok(());
    }
    let cut = Cut::new(packet, &offload)?;
    let (headers, payload) = packet.split_at(cut.headers);
    let count = payload.len().div_ceil(offload.size).max(1);
    for number in 0..count {
        let from = number * offload.size;
        let part = &payload[from..payload.len().min(from + offload.size)];
        let mut buffer = room();
        buffer.extend_from_slice(headers);
        buffer.extend_from_slice(part);
        cut.adapt(&mut buffer, number, from, number + 1 == count);
        emit(buffer);
    }
    Ok(())
}

/// Completes the checksum of a packet that has everything else: its field holds the
/// pseudo-header's sum.
fn complete(packet: &mut [u8], start: usize, offset: usize) -> Result<(), Malformed> {
    let at = start + offset;
    if at + 2 > packet.len() {
        return Err(Malformed::Contradiction);
    }
    let checksum = !fold(sum(&packet[start..]));
    // UDP says zero for "none" and the other zero for zero; nobody minds it elsewhere.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// How a large packet is cut.
#[derive(Debug)]
struct Cut {
    version: u8,
    protocol: u8,
    /// Where the TCP or UDP header begins, and where the payload does.
    transport: usize,
    headers: usize,
}

impl Cut {
    fn new(packet: &[u8], offload: &Offload) -> Result<Self, Malformed> {
        let version = packet.first().ok_or(Malformed::Short)? >> 4;
        let (versions, protocol): (&[u8], _) = match offload.kind {
            GSO_TCP4 => (&[4], TCP),
            GSO_TCP6 => (&[6], TCP),
            GSO_UDP => (&[4, 6], UDP),
            kind => return Err(Malformed::Kind(kind)),
        };
        let transport = offload.start;
        let field = if protocol == TCP { 16 } else { 6 };
        let sound = versions.contains(&version)
            && offload.size > 0
            && offload.needs_checksum
            && offload.offset == field
            && match version {
                4 => {
                    transport >= 20
                        && usize::from(packet[0] & 0xf) * 4 == transport
                        && packet.get(9) == Some(&protocol)
                }
                _ => transport >= 40,
            };
        if !sound {
            return Err(Malformed::Contradiction);
        }
        let length = match protocol {
            TCP => {
                usize::from(packet.get(transport + 12).ok_or(Malformed::Contradiction)? >> 4) * 4
            }
            _ => 8,
        };
        let headers = transport + length;
        let shortest = if protocol == TCP { 20 } else { 8 };
        if length < shortest || headers > packet.len() || headers + offload.size > 65_535 {
            return Err(Malformed::Contradiction);
        }
        Ok(Self {
            version,
            protocol,
            transport,
            headers,
        })
    }

    /// Makes segment `number`, whose payload begins `from` bytes in, out of the large
    /// packet's headers.
    fn adapt(&self, packet: &mut [u8], number: usize, from: usize, last: bool) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "fields of 16 and 32 bits wrap"
        )]
        let (length, number_16, from_32) = (packet.len() as u16, number as u16, from as u32);
        if self.version == 4 {
            put(packet, 2, length);
            let identification = u16::from_be_bytes([packet[4], packet[5]]);
            put(packet, 4, identification.wrapping_add(number_16));
            put(packet, 10, 0);
            let checksum = !fold(sum(&packet[..self.transport]));
            put(packet, 10, checksum);
        } else {
            put(packet, 4, length - 40);
        }
        let transport = &mut packet[self.transport..];
        let field = if self.protocol == TCP {
            let sequence = [transport[4], transport[5], transport[6], transport[7]];
            let sequence = u32::from_be_bytes(sequence).wrapping_add(from_32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if !last {
                transport[13] &= !FIN_PSH;
            }
            if number > 0 {
                transport[13] &= !CWR;
            }
            16
        } else {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "part of a packet of 64 KiB"
            )]
            let length = transport.len() as u16;
            put(transport, 4, length);
            6
        };
        put(transport, field, 0);
        let total = self.pseudo_header(packet) + sum(&packet[self.transport..]);
        let checksum = match !fold(total) {
            0 if self.protocol == UDP => 0xffff,
            checksum => checksum,
        };
        put(packet, self.transport + field, checksum);
    }

    /// Sum of what the checksum covers beside the segment itself (RFC 9293, section 3.1;
    /// RFC 8200, section 8.1).
    fn pseudo_header(&self, packet: &[u8]) -> u64 {
        let addresses = match self.version {
            4 => &packet[12..20],
            _ => &packet[8..40],
        };
        let length = (packet.len() - self.transport) as u64;
        // In the order of bytes in which `sum` adds.
        let number = |value: u64| u64::from(u16::from_be(u16::try_from(value).unwrap_or(0)));
        sum(addresses) + number(length) + number(self.protocol.into())
    }
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Sum of all 16-bit words, in the machine's order of bytes (RFC 1071, section 2).
fn sum(bytes: &[u8]) -> u64 {
    // 32 bits at a time: the compiler makes vectors of it. 2^32 of them fit.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let mut tail = [0; 4];
    tail[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(tail));
    sum
}

/// The sum in 16 bits, in the network's order.
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    u16::from_be(u16::try_from(sum).expect("three carries leave sixteen bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The plainest form of RFC 1071, to hold ours against.
    fn plain_sum(bytes: &[u8]) -> u16 {
        let mut sum: u32 = 0;
        for pair in bytes.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    /// Whether all checksums of a packet are right, and where its payload begins.
    fn check(packet: &[u8], transport: usize, protocol: u8) -> usize {
        let length = u16::try_from(packet.len() - transport).unwrap();
        let mut pseudo = if packet[0] >> 4 == 4 {
            assert_eq!(plain_sum(&packet[..transport]), 0xffff, "IP header");
            assert_eq!(
                usize::from(u16::from_be_bytes([packet[2], packet[3]])),
                packet.len()
            );
            packet[12..20].to_vec()
        } else {
            assert_eq!(
                usize::from(u16::from_be_bytes([packet[4], packet[5]])),
                packet.len() - 40
            );
            packet[8..40].to_vec()
        };
        pseudo.extend_from_slice(&[0, protocol]);
        pseudo.extend_from_slice(&length.to_be_bytes());
        pseudo.extend_from_slice(&packet[transport..]);
        assert_eq!(plain_sum(&pseudo), 0xffff, "transport");
        if protocol == TCP {
            transport + usize::from(packet[transport + 12] >> 4) * 4
        } else {
            assert_eq!(
                u16::from_be_bytes([packet[transport + 4], packet[transport + 5]]),
                length
            );
            transport + 8
        }
    }

    #[derive(Debug, Clone)]
    struct Large {
        ipv6: bool,
        tcp: bool,
        ip_options: Vec<u8>,
        tcp_options: Vec<u8>,
        addresses: [u8; 32],
        sequence: u32,
        identification: u16,
        flags: u8,
        payload: Vec<u8>,
        size: u16,
    }

    impl Large {
        fn transport(&self) -> usize {
            let options = self.ip_options.len() / 4 * 4;
            // IPv6's extension headers come in eights.
            if self.ipv6 {
                40 + options / 8 * 8
            } else {
                20 + options
            }
        }

        /// As the kernel hands it over.
        fn read(&self) -> Vec<u8> {
            let transport = self.transport();
            let protocol = if self.tcp { TCP } else { UDP };
            let mut packet = vec![0; transport];
            if self.ipv6 {
                packet[0] = 0x60;
                packet[6] = if transport > 40 { 60 } else { protocol };
                packet[8..40].copy_from_slice(&self.addresses);
            } else {
                packet[0] = 0x40 | u8::try_from(transport / 4).unwrap();
                packet[4..6].copy_from_slice(&self.identification.to_be_bytes());
                packet[9] = protocol;
                packet[12..20].copy_from_slice(&self.addresses[..8]);
                packet[20..].copy_from_slice(&self.ip_options[..transport - 20]);
            }
            if self.tcp {
                let options = &self.tcp_options[..self.tcp_options.len() / 4 * 4];
                let mut tcp = vec![0; 20];
                tcp[..4].copy_from_slice(&self.addresses[..4]);
                tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
                tcp[12] = u8::try_from((20 + options.len()) / 4).unwrap() << 4;
                tcp[13] = self.flags;
                packet.extend_from_slice(&tcp);
                packet.extend_from_slice(options);
            } else {
                packet.extend_from_slice(&[1, 2, 3, 4, 0, 0, 0, 0]);
            }
            packet.extend_from_slice(&self.payload);
            let kind = match (self.tcp, self.ipv6) {
                (false, _) => GSO_UDP,
                (true, false) => GSO_TCP4,
                (true, true) => GSO_TCP6,
            };
            let mut read = vec![NEEDS_CHECKSUM, kind, 0, 0];
            for number in [
                self.size,
                u16::try_from(transport).unwrap(),
                if self.tcp { 16 } else { 6 },
            ] {
                read.extend_from_slice(&number.to_ne_bytes());
            }
            read.extend_from_slice(&packet);
            read
        }
    }

    fn large() -> impl Strategy<Value = Large> {
        let bytes = |most| prop::collection::vec(any::<u8>(), 0..=most);
        (
            (any::<bool>(), any::<bool>(), bytes(40), bytes(40)),
            (any::<[u8; 32]>(), any::<u32>(), any::<u16>(), any::<u8>()),
            (bytes(9000), 1..2000u16),
        )
            .prop_map(
                |((ipv6, tcp, ip_options, tcp_options), fields, (payload, size))| Large {
                    ipv6,
                    tcp,
                    ip_options,
                    tcp_options,
                    addresses: fields.0,
                    sequence: fields.1,
                    identification: fields.2,
                    flags: fields.3,
                    payload,
                    size,
                },
            )
    }

    fn packets(read: &mut [u8]) -> Result<Vec<Vec<u8>>, Malformed> {
        let mut packets = Vec::new();
        segment(read, Vec::new, |packet| packets.push(packet))?;
        Ok(packets)
    }

    /// What the fuzz target `tun_packet` does, with what it began from and has found.
    #[test]
    fn the_fuzz_corpus_is_survived() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/tun_packet");
        let mut cut = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let path = entry.unwrap().path();
            let mut read = std::fs::read(&path).unwrap();
            if let Ok(packets) = packets(&mut read) {
                assert!(!packets.is_empty(), "{}", path.display());
                cut += usize::from(packets.len() > 1);
            }
        }
        assert!(cut >= 5, "only {cut} were large");
    }

    proptest! {
        #[test]
        fn segments_are_sound_packets_and_have_all_bytes(large in large()) {
            let mut read = large.read();
            let packets = packets(&mut read).unwrap();
            let protocol = if large.tcp { TCP } else { UDP };
            let (mut payload, count) = (Vec::new(), packets.len());
            for (number, packet) in packets.iter().enumerate() {
                let begins = check(packet, large.transport(), protocol);
                if large.tcp {
                    let tcp = &packet[large.transport()..];
                    let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
                    let sent = u32::try_from(payload.len()).unwrap();
                    prop_assert_eq!(sequence, large.sequence.wrapping_add(sent));
                    let mut flags = large.flags;
                    if number + 1 < count { flags &= !FIN_PSH; }
                    if number > 0 { flags &= !CWR; }
                    prop_assert_eq!(tcp[13], flags);
                }
                if !large.ipv6 {
                    let own = u16::from_be_bytes([packet[4], packet[5]]);
                    let number = u16::try_from(number).unwrap();
                    prop_assert_eq!(own, large.identification.wrapping_add(number));
                }
                let part = &packet[begins..];
                prop_assert!(part.len() <= usize::from(large.size));
                prop_assert!(part.len() == usize::from(large.size) || number + 1 == count);
                payload.extend_from_slice(part);
            }
            prop_assert_eq!(payload, large.payload);
        }

        #[test]
        fn a_checksum_is_completed(mut packet in prop::collection::vec(any::<u8>(), 28..1500)) {
            // UDP over IPv4, its field with the sum of the pseudo-header.
            let length = u16::try_from(packet.len() - 20).unwrap();
            packet[0] = 0x45;
            let mut pseudo = packet[12..20].to_vec();
            pseudo.extend_from_slice(&[0, UDP]);
            pseudo.extend_from_slice(&length.to_be_bytes());
            packet[26..28].copy_from_slice(&plain_sum(&pseudo).to_be_bytes());
            let mut read = vec![NEEDS_CHECKSUM, 0, 0, 0, 0, 0];
            for number in [20u16, 6] {
                read.extend_from_slice(&number.to_ne_bytes());
            }
            read.extend_from_slice(&packet);
            let out = packets(&mut read).unwrap().remove(0);
            pseudo.extend_from_slice(&out[20..]);
            prop_assert_eq!(plain_sum(&pseudo), 0xffff);
            prop_assert_eq!(&out[28..], &packet[28..]);
        }

        /// Whatever comes: an error or packets, none longer than a packet can be.
        #[test]
        fn any_bytes_are_survived(
            kind in prop_oneof![Just(GSO_NONE), Just(GSO_TCP4), Just(GSO_TCP6), Just(GSO_UDP), any::<u8>()],
            first in prop_oneof![Just(0x45u8), Just(0x4f), Just(0x60), any::<u8>()],
            start in prop_oneof![Just(20u16), Just(40), 0..100u16, any::<u16>()],
            offset in prop_oneof![Just(16u16), Just(6), any::<u16>()],
            mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if bytes.len() > HEADER {
                bytes[1] = kind;
                bytes[6..8].copy_from_slice(&start.to_ne_bytes());
                bytes[8..10].copy_from_slice(&offset.to_ne_bytes());
                bytes[HEADER] = first;
            }
            if let Ok(packets) = packets(&mut bytes) {
                prop_assert!(!packets.is_empty());
                prop_assert!(packets.iter().all(|packet| packet.len() <= 65_535));
            }
        }

        #[test]
        fn the_sum_is_that_of_rfc_1071(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(fold(sum(&bytes)), plain_sum(&bytes));
        }
    }
}
