//! The types of packets with long headers (RFC 9369, section 3.2).

use super::VERSION_2;
use crate::varint;

/// Set in the first byte of a long header (RFC 8999, section 5.1).
const LONG: u8 = 0x80;
/// Where the type is in the first byte.
const TYPE: u8 = 0x30;
/// Version 1's numbers.
const INITIAL: u8 = 0;
const RETRY: u8 = 3;

/// The first byte of a packet of version 1 in version 2; short headers are the same.
pub(super) fn into_version_2(first: u8) -> u8 {
    rotated(first, 1)
}

fn into_version_1(first: u8) -> u8 {
    rotated(first, 3)
}

fn rotated(first: u8, by: u8) -> u8 {
    if first & LONG == 0 {
        return first;
    }
    let kind = (((first & TYPE) >> 4) + by) % 4;
    (first & !TYPE) | (kind << 4)
}

/// Gives the packets of version 2 in a datagram the types of version 1. What is no such packet,
/// or not whole, stays as it is.
pub(super) fn translate(datagram: &mut [u8]) {
    let mut rest = datagram;
    while let Some(length) = translate_first(rest) {
        rest = rest.get_mut(length..).unwrap_or_default();
    }
}

/// Translates the first packet; how long it is, if another may follow.
fn translate_first(packet: &mut [u8]) -> Option<usize> {
    let version = packet.get(1..5)?;
    if packet[0] & LONG == 0 || version != VERSION_2.to_be_bytes() {
        return None;
    }
    packet[0] = into_version_1(packet[0]);
    let mut at = 5;
    for _connection_id in 0..2 {
        at += 1 + usize::from(*packet.get(at)?);
    }
    let kind = (packet[0] & TYPE) >> 4;
    if kind == RETRY {
        return None;
    }
    if kind == INITIAL {
        let (token, length) = varint::read(packet.get(at..)?)?;
        at = at
            .checked_add(length)?
            .checked_add(usize::try_from(token).ok()?)?;
    }
    let (rest, length) = varint::read(packet.get(at..)?)?;
    at.checked_add(length)?
        .checked_add(usize::try_from(rest).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with that first byte: connection IDs of two bytes and one, a token of three bytes
    /// if it is an Initial, and four bytes more.
    fn packet(first: u8, initial: bool) -> Vec<u8> {
        let mut packet = vec![first];
        packet.extend(VERSION_2.to_be_bytes());
        packet.extend([2, 1, 1, 1, 9]);
        if initial {
            packet.extend([3, 7, 7, 7]);
        }
        packet.extend([4, 0, 0, 0, 0]);
        packet
    }

    #[test]
    fn types_are_those_of_the_rfc_there_and_back() {
        // Initial, 0-RTT, Handshake, Retry.
        for (one, two) in [(0xc3, 0xd3), (0xd3, 0xe3), (0xe3, 0xf3), (0xf3, 0xc3)] {
            assert_eq!(into_version_2(one), two);
            assert_eq!(into_version_1(two), one);
        }
        assert_eq!(into_version_2(0x41), 0x41);
    }

    #[test]
    fn every_packet_of_a_datagram_is_translated() {
        let mut datagram = packet(0xd0, true);
        datagram.extend(packet(0xf0, false));
        let second = datagram.len() - packet(0xf0, false).len();
        datagram.extend([0x40, 1, 2, 3]);
        translate(&mut datagram);
        assert_eq!((datagram[0], datagram[second]), (0xc0, 0xe0));
        assert_eq!(datagram[datagram.len() - 4], 0x40);
    }

    #[test]
    fn other_versions_and_torn_packets_do_no_harm() {
        let mut other = packet(0xd0, true);
        other[4] = 0;
        let before = other.clone();
        translate(&mut other);
        assert_eq!(other, before);
        let whole = packet(0xd0, true);
        for length in 0..whole.len() {
            translate(&mut whole[..length].to_vec());
        }
        let mut long = packet(0xd0, true);
        long[10] = 0xff;
        translate(&mut long);
    }
}
