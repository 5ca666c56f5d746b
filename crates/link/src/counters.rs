//! Counters of packets and bytes, and the causes of drops.

use serde::Serialize;
use serde::ser::SerializeMap;

/// Why a packet did not come out at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No room in the queue.
    Queue,
    /// The queue's management (CoDel, PIE) dropped it to shorten the queue.
    Management,
    /// It waited for a link that another one took over from.
    Switch,
    /// The link was down.
    Outage,
    /// A low constellation was changing satellites.
    Reconfiguration,
    /// The carrier was too weak for what its MODCOD needs.
    Fade,
    /// Lost on the air.
    Loss,
    /// Damaged, and of a kind that cannot come out damaged.
    Corruption,
}

impl Cause {
    /// Every cause, in the order in which a packet can meet them.
    pub const ALL: [Self; 8] = [
        Self::Queue,
        Self::Management,
        Self::Switch,
        Self::Outage,
        Self::Reconfiguration,
        Self::Fade,
        Self::Loss,
        Self::Corruption,
    ];

    /// Its name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Management => "management",
            Self::Switch => "switch",
            Self::Outage => "outage",
            Self::Reconfiguration => "reconfiguration",
            Self::Fade => "fade",
            Self::Loss => "loss",
            Self::Corruption => "corruption",
        }
    }
}

/// Packets and bytes so far, without cross traffic. At any moment
/// `entered + duplicated = delivered + dropped + held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Packets that came in.
    pub entered: u64,
    /// Packets that came out.
    pub delivered: u64,
    /// Packets that did not come out, by cause.
    pub dropped: Drops,
    /// Packets that the link added: second copies.
    pub duplicated: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Packets that were damaged and sent on.
    pub corrupted: u64,
    /// Packets that were held back so that others overtake them.
    pub reordered: u64,
    /// Bytes that came in, at the IP level.
    pub entered_bytes: u64,
    /// Bytes that came out, at the IP level.
    pub delivered_bytes: u64,
    /// Bytes of all dropped packets, at the IP level.
    pub dropped_bytes: u64,
    /// Bytes of all second copies, at the IP level.
    pub duplicated_bytes: u64,
}

impl Counters {
    /// What was counted since `earlier`, an earlier state of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            entered: self.entered - earlier.entered,
            delivered: self.delivered - earlier.delivered,
            dropped: Drops(std::array::from_fn(|cause| {
                self.dropped.0[cause] - earlier.dropped.0[cause]
            })),
            duplicated: self.duplicated - earlier.duplicated,
            marked: self.marked - earlier.marked,
            corrupted: self.corrupted - earlier.corrupted,
            reordered: self.reordered - earlier.reordered,
            entered_bytes: self.entered_bytes - earlier.entered_bytes,
            delivered_bytes: self.delivered_bytes - earlier.delivered_bytes,
            dropped_bytes: self.dropped_bytes - earlier.dropped_bytes,
            duplicated_bytes: self.duplicated_bytes - earlier.duplicated_bytes,
        }
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

impl Drops {
    pub(crate) fn count(&mut self, cause: Cause) {
        self.0[cause as usize] += 1;
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
