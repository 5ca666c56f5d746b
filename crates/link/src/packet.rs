//! Packets, as far as a link looks at them.

use std::hash::Hasher;

/// What travels over a link.
///
/// Only the length must be told. The other methods are for links whose scenario
/// asks for them; their defaults suit packets that have no such thing.
pub trait Packet: Sized {
    /// Its length at the IP level in bytes: IP header and all that follows.
    fn ip_len(&self) -> usize;

    /// Which flow it belongs to, for queues that are fair to flows (RFC 8290).
    fn flow(&self) -> u64 {
        0
    }

    /// Marks it "congestion experienced" (RFC 3168) if its sender allows that.
    /// `false`: it cannot be marked.
    fn mark_ce(&mut self) -> bool {
        false
    }

    /// A second packet like this, for links that duplicate. `None`: it cannot be.
    fn duplicate(&self) -> Option<Self> {
        None
    }

    /// Damages it: one bit of what the IP header carries, chosen by `random`.
    /// `false`: it cannot be, and is dropped instead.
    fn corrupt(&mut self, random: u64) -> bool {
        let _ = random;
        false
    }
}

/// An IPv4 or IPv6 packet as bytes.
impl Packet for Vec<u8> {
    fn ip_len(&self) -> usize {
        self.len()
    }
    fn flow(&self) -> u64 {
        ip::flow(self)
    }
    fn mark_ce(&mut self) -> bool {
        ip::mark_ce(self)
    }
    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
    fn corrupt(&mut self, random: u64) -> bool {
        ip::corrupt(self, random)
    }
}

/// The optional methods of [`Packet`] for IP packets that lie in bytes.
pub mod ip {
    use std::hash::Hasher;

    use super::{Fnv, has_ports, updated};

    /// A hash of addresses, protocol and, where there are any, ports.
    pub fn flow(packet: &[u8]) -> u64 {
        let mut hash = Fnv::default();
        match version(packet) {
            Some(4) if packet.len() >= 20 => {
                let protocol = packet[9];
                let header = usize::from(packet[0] & 0xf) * 4;
                hash.write(&packet[12..20]);
                hash.write(&[protocol]);
                let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
                if has_ports(protocol) && !fragment && packet.len() >= header + 4 {
                    hash.write(&packet[header..header + 4]);
                }
            }
            Some(6) if packet.len() >= 40 => {
                let protocol = packet[6];
                hash.write(&packet[8..40]);
                hash.write(&[protocol]);
                if has_ports(protocol) && packet.len() >= 44 {
                    hash.write(&packet[40..44]);
                }
            }
            _ => {}
        }
        hash.finish()
    }

    /// Sets "congestion experienced" if the packet is ECN-capable, and says whether.
    pub fn mark_ce(packet: &mut [u8]) -> bool {
        match version(packet) {
            Some(4) if packet.len() >= 20 && packet[1] & 0b11 != 0 => {
                let before = u16::from_be_bytes([packet[0], packet[1]]);
                packet[1] |= 0b11;
                let after = u16::from_be_bytes([packet[0], packet[1]]);
                let checksum = u16::from_be_bytes([packet[10], packet[11]]);
                packet[10..12].copy_from_slice(&updated(checksum, before, after).to_be_bytes());
                true
            }
            // The traffic class lies across the first two bytes; ECN is bits 4 and 5 of the second.
            Some(6) if packet.len() >= 40 && packet[1] & 0b0011_0000 != 0 => {
                packet[1] |= 0b0011_0000;
                true
            }
            _ => false,
        }
    }

    /// Turns one bit behind the IP header over; `false` where there is none.
    pub fn corrupt(packet: &mut [u8], random: u64) -> bool {
        let header = match version(packet) {
            Some(4) => usize::from(packet[0] & 0xf) * 4,
            Some(6) => 40,
            _ => return false,
        };
        let bits = packet.len().saturating_sub(header) as u64 * 8;
        if bits == 0 {
            return false;
        }
        let bit = random % bits;
        let byte = header + usize::try_from(bit / 8).expect("it lies inside the packet");
        packet[byte] ^= 1 << (bit % 8);
        true
    }

    fn version(packet: &[u8]) -> Option<u8> {
        packet.first().map(|byte| byte >> 4)
    }
}

/// TCP, UDP, DCCP, SCTP and UDP-Lite begin with two ports.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

/// An Internet checksum after one of its words has changed (RFC 1624, equation 3).
fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from(sum).expect("two carries leave sixteen bits")
}

/// FNV-1a: the same on every machine and in every release.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        // The low bits of FNV mix badly; queues are chosen by them.
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
