//! A packet on its way through a link, and what its record will say.

use bentpipe_link::{Packet, ip};
use bentpipe_units::Time;

/// One IP packet, as read from a TUN device.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub bytes: Vec<u8>,
    /// When it came in.
    pub entered: Time,
    /// Bytes that waited for the transmitter when it came in.
    pub queue: u64,
}

impl Packet for Frame {
    fn ip_len(&self) -> usize {
        self.bytes.len()
    }
    fn flow(&self) -> u64 {
        ip::flow(&self.bytes)
    }
    fn mark_ce(&mut self) -> bool {
        ip::mark_ce(&mut self.bytes)
    }
    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
    fn corrupt(&mut self, random: u64) -> bool {
        ip::corrupt(&mut self.bytes, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A device hands over whatever somebody sends through it, IP or not.
        #[test]
        fn any_bytes_travel_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            first in prop::option::of(prop_oneof![Just(0x45u8), Just(0x4f), Just(0x60)]),
            random in any::<u64>(),
        ) {
            let mut bytes = bytes;
            if let (Some(first), Some(byte)) = (first, bytes.first_mut()) {
                *byte = first;
            }
            let mut frame = Frame { bytes, entered: Time::ZERO, queue: 0 };
            let length = frame.ip_len();
            frame.flow();
            frame.mark_ce();
            frame.corrupt(random);
            prop_assert_eq!(frame.duplicate().unwrap().bytes, frame.bytes.clone());
            prop_assert_eq!(frame.ip_len(), length);
        }
    }
}
