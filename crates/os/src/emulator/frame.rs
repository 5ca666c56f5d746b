//! What travels: one IP packet, and what its record will say.

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
