//! Which datagrams of QUIC versions that are not spoken are answered.
//!
//! A server answers them by version negotiation, to whatever address they say they come from, and keeps no
//! state for it. RFC 9000, section 5.2.2, has it drop those that are shorter than a client's first: an
//! answer is then a small part of what it costs to ask for it in another's name. The QUIC library (1.3.0)
//! answers seven bytes.

use std::io::IoSliceMut;

use noq::udp::RecvMeta;

use crate::layer::Layer;

/// The shortest datagram that begins a connection (RFC 9000, section 14.1).
const SHORTEST: usize = 1200;
/// Header form (RFC 9000, section 17.2).
const LONG: u8 = 0x80;

/// Over a server's socket: short datagrams of other versions than these are not seen above.
#[derive(Debug)]
pub struct Spoken(pub &'static [u32]);

impl Spoken {
    fn takes(&self, datagram: &[u8]) -> bool {
        let version = match datagram {
            [first, a, b, c, d, ..] if first & LONG != 0 => u32::from_be_bytes([*a, *b, *c, *d]),
            _ => return true,
        };
        datagram.len() >= SHORTEST || self.0.contains(&version)
    }
}

impl Layer for Spoken {
    fn on_received(&mut self, buffers: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) {
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            let received = &mut buffer[..meta.len];
            for datagram in received.chunks_mut(meta.stride.max(1)) {
                if !self.takes(datagram) {
                    // A short header, of no connection: it is dropped.
                    datagram[0] = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: [u8; 7] = [0xc0, 0xff, 0, 0, 0x1d, 0, 0];

    /// The first bytes of the `datagrams` of one length as they are seen above.
    fn seen(datagrams: &[u8], stride: usize) -> Vec<u8> {
        let mut received = datagrams.to_vec();
        let mut meta = [RecvMeta::default()];
        (meta[0].len, meta[0].stride) = (received.len(), stride);
        let mut buffers = [IoSliceMut::new(&mut received)];
        Spoken(&[1]).on_received(&mut buffers, &mut meta);
        received
            .chunks(stride)
            .map(|datagram| datagram[0])
            .collect()
    }

    #[test]
    fn short_datagrams_of_other_versions_are_dropped_each_by_itself() {
        let mut long = FIRST.to_vec();
        long.resize(SHORTEST, 0);
        assert_eq!(seen(&long, SHORTEST), [0xc0]);
        assert_eq!(
            seen(&long[..SHORTEST - 1], SHORTEST),
            [0],
            "a byte too short"
        );
        let spoken = [0xc0, 0, 0, 0, 1, 0, 0];
        let established = [0x40, 0xff, 0, 0, 0x1d, 0, 0];
        let all = [FIRST, spoken, established, FIRST].concat();
        assert_eq!(seen(&all, FIRST.len()), [0, 0xc0, 0x40, 0]);
        assert_eq!(seen(&FIRST[..3], 3), [0xc0], "not even a version");
    }
}
