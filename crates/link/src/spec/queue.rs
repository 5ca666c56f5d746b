//! The queue before the transmitter and its management.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bentpipe_units::{Bytes, ParseError, Rate, Span, truncated};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::text_or_table::{short_form, text_or_table};

/// How much may wait. It counts what waits, never what is on the air.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// At most so many packets.
    Packets(u32),
    /// At most so many bytes at the IP level.
    Bytes(Bytes),
    /// As many bytes as the link's ceiling sends in this time.
    Time(Span),
    /// So many thousandths of the path's bandwidth-delay product: the link's
    /// ceiling times the round trip of satellite and ground.
    Bdp(u32),
}

impl QueueLimit {
    /// The limit in packets or bytes, for a link of `ceiling` on a path of `rtt`.
    #[must_use]
    pub fn resolved(self, ceiling: Rate, rtt: Span) -> Self {
        match self {
            Self::Packets(_) | Self::Bytes(_) => self,
            Self::Time(span) => Self::Bytes(ceiling.bytes_in(span)),
            Self::Bdp(thousandths) => {
                let product = u128::from(ceiling.bytes_in(rtt).as_u64());
                let bytes = product * u128::from(thousandths) / 1000;
                Self::Bytes(Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX)))
            }
        }
    }
}

impl FromStr for QueueLimit {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = |why: &str| ParseError {
            value: text.to_owned(),
            wanted: "a queue size",
            why: why.to_owned(),
            example: "25 packets, 1250 kB, 100 ms or 0.5 BDP",
        };
        let nothing = || error("a queue of nothing passes nothing");
        let text_ = text.trim();
        if let Some(count) = text_
            .strip_suffix("packets")
            .or(text_.strip_suffix("packet"))
        {
            return match count.trim().parse() {
                Ok(0) => Err(nothing()),
                Ok(count) => Ok(Self::Packets(count)),
                Err(_) => Err(error("it is not a whole number of packets")),
            };
        }
        if let Some(times) = text_.strip_suffix("BDP") {
            let times: f64 = times
                .trim()
                .parse()
                .map_err(|_| error("it is not a number of bandwidth-delay products"))?;
            let thousandths = (times * 1000.0).round();
            if !(0.0..=1e9).contains(&thousandths) {
                return Err(error("it is not between 0.001 and 1000000 BDP"));
            }
            let thousandths = u32::try_from(truncated(thousandths)).unwrap_or(u32::MAX);
            return if thousandths == 0 {
                Err(nothing())
            } else {
                Ok(Self::Bdp(thousandths))
            };
        }
        if let Ok(span) = text_.parse::<Span>() {
            return if span == Span::ZERO {
                Err(nothing())
            } else {
                Ok(Self::Time(span))
            };
        }
        match text.parse::<Bytes>() {
            Ok(bytes) if bytes.as_u64() == 0 => Err(nothing()),
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(inner) => Err(error(&inner.why)),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(1) => write!(out, "1 packet"),
            Self::Packets(count) => write!(out, "{count} packets"),
            Self::Bytes(bytes) => bytes.fmt(out),
            Self::Time(span) => span.fmt(out),
            Self::Bdp(thousandths) => write!(out, "{} BDP", f64::from(*thousandths) / 1000.0),
        }
    }
}

impl JsonSchema for QueueLimit {
    fn schema_name() -> Cow<'static, str> {
        "QueueLimit".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A queue size: packets, bytes, the time that they take at the link's ceiling, or bandwidth-delay products of the path.",
            "pattern": r"^\s*[0-9.eE+-]+\s*(packets?|BDP|GiB|GB|MiB|MB|KiB|kB|B|h|min|s|ms|us|µs|ns)\s*$",
            "examples": ["25 packets", "1250 kB", "100 ms", "0.5 BDP"]
        })
    }
}

impl Serialize for QueueLimit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QueueLimit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// The queue before the transmitter: drop-tail in the short form.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "kebab-case")]
#[schemars(transform = short_form)]
pub enum QueueSpec {
    /// First in, first out; what does not fit is dropped.
    DropTail(QueueLimit),
    /// The same, marking what comes while more than a threshold waits.
    Marking(MarkingSpec),
    /// Controlled delay (RFC 8289).
    #[serde(rename = "codel")]
    CoDel(CoDelSpec),
    /// Fair queues with controlled delay (RFC 8290).
    #[serde(rename = "fq-codel")]
    FqCoDel(FqCoDelSpec),
    /// Proportional integral controller enhanced (RFC 8033).
    Pie(PieSpec),
}

text_or_table!(
    QueueSpec,
    DropTail,
    "a queue size like \"25 packets\" or a table: marking, codel, fq-codel or pie"
);

/// First in, first out, with ECN (RFC 3168): the threshold is that of a DCTCP switch
/// (RFC 8257, section 3.1), compared with what waits when a packet comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkingSpec {
    /// What may wait in all; what does not fit is dropped.
    pub limit: QueueLimit,
    /// Packets that can be marked are marked while more than this waits.
    pub above: QueueLimit,
}

/// Parameters of CoDel with the defaults of RFC 8289, section 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoDelSpec {
    /// What may wait in all.
    pub limit: QueueLimit,
    /// The standing delay that is acceptable.
    #[serde(default = "five_ms")]
    pub target: Span,
    /// The time in which the delay must have fallen below the target once.
    #[serde(default = "hundred_ms")]
    pub interval: Span,
    /// Mark packets that can be marked instead of dropping them (RFC 3168).
    #[serde(default)]
    pub ecn: bool,
}

/// Parameters of FQ-CoDel with the defaults of RFC 8290, section 5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FqCoDelSpec {
    /// What may wait in all.
    #[serde(default = "ten_thousand_packets")]
    pub limit: QueueLimit,
    /// The standing delay that is acceptable in one flow's queue.
    #[serde(default = "five_ms")]
    pub target: Span,
    /// The time in which that delay must have fallen below the target once.
    #[serde(default = "hundred_ms")]
    pub interval: Span,
    /// Queues; flows are hashed into them.
    #[serde(default = "flows")]
    pub flows: u16,
    /// Bytes that a queue may send before it is another one's turn.
    #[serde(default = "quantum")]
    pub quantum: Bytes,
    /// Mark packets that can be marked instead of dropping them (RFC 3168).
    #[serde(default = "yes")]
    pub ecn: bool,
}

/// Parameters of PIE with the defaults of RFC 8033, section 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PieSpec {
    /// What may wait in all.
    pub limit: QueueLimit,
    /// `QDELAY_REF`: the delay to keep.
    #[serde(default = "fifteen_ms")]
    pub target: Span,
    /// `T_UPDATE`: how often the drop probability is computed.
    #[serde(default = "fifteen_ms")]
    pub update: Span,
    /// `MAX_BURST`: a burst this long passes an idle queue unharmed.
    #[serde(default = "max_burst")]
    pub burst: Span,
    /// Mark packets that can be marked instead of dropping them (RFC 3168).
    #[serde(default)]
    pub ecn: bool,
}

impl QueueSpec {
    /// What may wait.
    pub fn limit(&self) -> QueueLimit {
        match self {
            Self::DropTail(limit) => *limit,
            Self::Marking(spec) => spec.limit,
            Self::CoDel(spec) => spec.limit,
            Self::FqCoDel(spec) => spec.limit,
            Self::Pie(spec) => spec.limit,
        }
    }

    /// The same with each limit, and threshold, as `with` makes it.
    fn map(mut self, with: impl Fn(QueueLimit) -> QueueLimit) -> Self {
        match &mut self {
            Self::DropTail(limit) => *limit = with(*limit),
            Self::Marking(spec) => {
                spec.limit = with(spec.limit);
                spec.above = with(spec.above);
            }
            Self::CoDel(spec) => spec.limit = with(spec.limit),
            Self::FqCoDel(spec) => spec.limit = with(spec.limit),
            Self::Pie(spec) => spec.limit = with(spec.limit),
        }
        self
    }

    /// The same in packets or bytes, at such a rate.
    pub(crate) fn resolved(self, ceiling: Rate, rtt: Span) -> Self {
        self.map(|limit| limit.resolved(ceiling, rtt))
    }

    /// The same with bandwidth-delay products in bytes; times stay, for a rate that changes.
    pub(crate) fn without_products(self, ceiling: Rate, rtt: Span) -> Self {
        self.map(|limit| match limit {
            QueueLimit::Bdp(_) => limit.resolved(ceiling, rtt),
            limit => limit,
        })
    }
}

impl From<QueueLimit> for QueueSpec {
    fn from(limit: QueueLimit) -> Self {
        Self::DropTail(limit)
    }
}

const fn five_ms() -> Span {
    Span::from_millis(5)
}
const fn fifteen_ms() -> Span {
    Span::from_millis(15)
}
const fn hundred_ms() -> Span {
    Span::from_millis(100)
}
const fn max_burst() -> Span {
    Span::from_millis(150)
}
const fn flows() -> u16 {
    1024
}
const fn quantum() -> Bytes {
    Bytes::new(1514)
}
const fn yes() -> bool {
    true
}
const fn ten_thousand_packets() -> QueueLimit {
    QueueLimit::Packets(10_240)
}
