//! The capsule by which a gateway tells a terminal that a datagram which must not be cut is too long
//! for the path behind it. A type of our own: others skip it (RFC 9297, section 3.2).

use bentpipe_quic::varint;
use bytes::{Bytes, BytesMut};

use super::capsule::{self, MalformedCapsule};

/// "bpmtu" in ASCII.
pub const PATH_MTU: u64 = 0x62_706d_7475;

/// Says that IP packets of up to `mtu` bytes reach the peer.
pub fn capsule(mtu: u16) -> Bytes {
    let mut content = BytesMut::new();
    varint::put(mtu.into(), &mut content);
    capsule::write(PATH_MTU, &content)
}

/// Reads what it says.
pub fn read(content: &[u8]) -> Result<u16, MalformedCapsule> {
    match varint::read(content) {
        Some((mtu, length)) if length == content.len() => {
            u16::try_from(mtu).map_err(|_| MalformedCapsule)
        }
        _ => Err(MalformedCapsule),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for mtu in [68, 576, 1280, 1400, u16::MAX] {
            let mut reader = capsule::Reader::taking(&[PATH_MTU]);
            reader.take(&capsule(mtu));
            let (kind, content) = reader.next_capsule().unwrap().unwrap();
            assert_eq!((kind, read(&content)), (PATH_MTU, Ok(mtu)));
        }
        for content in [&[][..], &[0x80, 1, 0, 0], &[5, 5], &[0x40]] {
            assert_eq!(read(content), Err(MalformedCapsule), "{content:?}");
        }
    }
}
