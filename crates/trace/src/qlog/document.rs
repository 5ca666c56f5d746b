//! The parts of a qlog: what a trace is of, and its events one after the other.

use std::io::Read;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Value};

use crate::quic::Side;

/// What is said of a trace as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Whose log it is.
    pub side: Side,
    /// When its time begins, nanoseconds since 1970; 0 where that is not said.
    pub origin_ns: u64,
    /// Nanoseconds of its unit of time.
    pub unit_ns: f64,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            side: Side::Client,
            origin_ns: 0,
            unit_ns: 1e6,
        }
    }
}

impl Head {
    /// Of the first record of a sequence.
    pub fn of_sequence(record: &Value) -> Self {
        record.get("trace").map(Self::of_trace).unwrap_or_default()
    }

    fn of_trace(trace: &Value) -> Self {
        let vantage = trace.pointer("/vantage_point/type").and_then(Value::as_str);
        let units = trace.pointer("/configuration/time_units");
        let unit_ns = match units.and_then(Value::as_str) {
            Some("us") => 1e3,
            _ => 1e6,
        };
        let reference = trace.pointer("/common_fields/reference_time");
        let since = reference.and_then(|value| match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        Self {
            side: if vantage == Some("server") {
                Side::Server
            } else {
                Side::Client
            },
            origin_ns: nanoseconds(since.unwrap_or(0.0), unit_ns),
            unit_ns,
        }
    }
}

/// The heads of the traces of a document, as far as it can be read.
pub(super) fn heads(source: impl Read) -> Vec<Head> {
    let mut heads = Vec::new();
    let mut seen = |_: usize, _: &Value| {};
    let walk = Document {
        each: &mut seen,
        heads: &mut heads,
        with_events: false,
    };
    // What is damaged is told by whoever reads the events.
    drop(walk.deserialize(&mut Deserializer::from_reader(source)));
    heads
}

/// A time of a log, rounded; what is negative is zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "such a conversion saturates"
)]
pub(super) fn nanoseconds(time: f64, unit_ns: f64) -> u64 {
    (time * unit_ns).round() as u64
}

/// Gives every event of every trace of a document to `each`, with the place of its trace.
pub(super) fn events(
    source: impl Read,
    each: &mut dyn FnMut(usize, &Value),
) -> Result<(), serde_json::Error> {
    let mut heads = Vec::new();
    let walk = Document {
        each,
        heads: &mut heads,
        with_events: true,
    };
    walk.deserialize(&mut Deserializer::from_reader(source))
}

/// The object of the whole file.
struct Document<'a> {
    each: &'a mut dyn FnMut(usize, &Value),
    heads: &'a mut Vec<Head>,
    with_events: bool,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a qlog: an object with traces")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "traces" {
                found = true;
                map.next_value_seed(Traces(&mut self))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found {
            Ok(())
        } else {
            Err(A::Error::missing_field("traces"))
        }
    }
}

struct Traces<'a, 'b>(&'a mut Document<'b>);

impl<'de> DeserializeSeed<'de> for Traces<'_, '_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Traces<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a list of traces")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let mut place = 0;
        while sequence.next_element_seed(Trace(self.0, place))?.is_some() {
            place += 1;
        }
        Ok(())
    }
}

struct Trace<'a, 'b>(&'a mut Document<'b>, usize);

impl<'de> DeserializeSeed<'de> for Trace<'_, '_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Trace<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a trace: an object with events")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut said = serde_json::Map::new();
        let whole = self.fields(&mut map, &mut said);
        // Of a file that ends early, what stands before its end counts.
        self.0.heads.push(Head::of_trace(&Value::Object(said)));
        whole
    }
}

impl Trace<'_, '_> {
    fn fields<'de, A: MapAccess<'de>>(
        &mut self,
        map: &mut A,
        said: &mut serde_json::Map<String, Value>,
    ) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "events" if self.0.with_events => {
                    map.next_value_seed(TraceEvents(self.0, self.1))?;
                }
                "vantage_point" | "common_fields" | "configuration" => {
                    said.insert(key, map.next_value()?);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct TraceEvents<'a, 'b>(&'a mut Document<'b>, usize);

impl<'de> DeserializeSeed<'de> for TraceEvents<'_, '_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for TraceEvents<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(event) = sequence.next_element::<Value>()? {
            (self.0.each)(self.1, &event);
        }
        Ok(())
    }
}
