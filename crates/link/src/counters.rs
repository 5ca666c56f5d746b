//! What became of the packets.

use serde::Serialize;
use serde::ser::SerializeMap;

/// Why a packet did not come out at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No room in the queue.
    Queue,
    /// Lost on the air.
    Loss,
}

impl Cause {
    /// Every cause, in the order in which a packet can meet them.
    pub const ALL: [Self; 2] = [Self::Queue, Self::Loss];

    /// Its name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Loss => "loss",
        }
    }
}

/// Packets and bytes so far. At any moment `entered = delivered + dropped + held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Packets that came in.
    pub entered: u64,
    /// Packets that came out.
    pub delivered: u64,
    /// Packets that did not come out, by cause.
    pub dropped: Drops,
    /// Bytes that came in, at the IP level.
    pub entered_bytes: u64,
    /// Bytes that came out, at the IP level.
    pub delivered_bytes: u64,
    /// Bytes of all dropped packets, at the IP level.
    pub dropped_bytes: u64,
}

impl Counters {
    pub(crate) fn drop(&mut self, cause: Cause, ip_len: usize) {
        self.dropped.0[cause as usize] += 1;
        self.dropped_bytes += ip_len as u64;
    }
}

/// Drops by cause; serialises as a map from each cause's name to its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops([u64; Cause::ALL.len()]);

impl Drops {
    /// Packets dropped for `cause`.
    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Packets dropped for any cause.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Every cause with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.into_iter().map(|cause| (cause, self.of(cause)))
    }
}

impl Serialize for Drops {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Cause::ALL.len()))?;
        for (cause, count) in self.iter() {
            map.serialize_entry(cause.name(), &count)?;
        }
        map.end()
    }
}
