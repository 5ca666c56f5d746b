//! A packet inside a link: one that is to come out, or one of the cross traffic.

use bentpipe_units::Time;

use crate::counters::Cause;
use crate::packet::Packet;

/// A packet on its way through the stages before the air.
#[derive(Debug)]
pub struct Entry<P> {
    /// What it is.
    pub(crate) load: Load<P>,
    /// Its length at the IP level.
    pub(crate) len: u32,
    /// When it came in.
    pub(crate) entered: Time,
}

/// Whose packet it is.
#[derive(Debug)]
pub(crate) enum Load<P> {
    /// One that came in and is to come out.
    Ours(P),
    /// One of the cross traffic's sources, by number.
    Cross(u32),
}

impl<P: Packet> Entry<P> {
    pub(crate) fn ours(packet: P, entered: Time) -> Self {
        Self {
            len: u32::try_from(packet.ip_len()).unwrap_or(u32::MAX),
            load: Load::Ours(packet),
            entered,
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.load, Load::Ours(_))
    }

    pub(crate) fn flow(&self) -> u64 {
        match &self.load {
            Load::Ours(packet) => packet.flow(),
            // Spread as if hashed, away from the zero of packets without flows.
            Load::Cross(source) => u64::from(*source + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }
}

/// A packet whose last bit has left, and what befell it on the way out.
#[derive(Debug)]
pub struct Sent<P> {
    pub(crate) entry: Entry<P>,
    pub(crate) fate: Option<Cause>,
}
