//! What became of the packets.

use std::collections::VecDeque;

use bentpipe_units::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::ser::SerializeMap;

use crate::Packet;
use crate::queue::{Entry, Load};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
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

impl Serialize for Drops {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Cause::ALL.len()))?;
        for (cause, count) in self.iter() {
            map.serialize_entry(cause.name(), &count)?;
        }
        map.end()
    }
}

impl JsonSchema for Drops {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Drops".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let count = generator.subschema_for::<u64>();
        let names = Cause::ALL.map(Cause::name);
        let counts: std::collections::BTreeMap<_, _> = names
            .iter()
            .map(|name| ((*name).to_owned(), count.clone().to_value()))
            .collect();
        schemars::json_schema!({
            "description": "Packets dropped, by cause.",
            "type": "object",
            "properties": counts,
            "required": names,
        })
    }
}

/// A packet that was dropped inside the link.
#[derive(Debug)]
pub struct Drop<P> {
    /// When.
    pub at: Time,
    /// Why.
    pub cause: Cause,
    /// The packet.
    pub packet: P,
}

/// Where the stages write down what they did.
#[derive(Debug)]
pub(crate) struct Ledger<P> {
    pub counters: Counters,
    /// Drops inside the link, kept only when somebody asked for them.
    pub kept: Option<VecDeque<Drop<P>>>,
}

impl<P: Packet> Ledger<P> {
    pub fn new() -> Self {
        Self {
            counters: Counters::default(),
            kept: None,
        }
    }

    /// Counts a drop, if it is one of ours.
    pub fn drop(&mut self, at: Time, entry: Entry<P>, cause: Cause) {
        let Load::Ours(packet) = entry.load else {
            return;
        };
        self.count(cause, entry.len);
        if let Some(kept) = &mut self.kept {
            kept.push_back(Drop { at, cause, packet });
        }
    }

    /// Counts a drop whose packet goes back to whoever brought it.
    pub fn count(&mut self, cause: Cause, len: u32) {
        self.counters.dropped.0[cause as usize] += 1;
        self.counters.dropped_bytes += u64::from(len);
    }

    /// Marks the packet if it can be marked.
    pub fn mark(&mut self, entry: &mut Entry<P>) -> bool {
        match &mut entry.load {
            Load::Ours(packet) => {
                let marked = packet.mark_ce();
                self.counters.marked += u64::from(marked);
                marked
            }
            Load::Cross(_) => false,
        }
    }
}
