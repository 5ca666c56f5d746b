//! The "text or table" form of a stage: its short form, or a table that names its model.
//!
//! `rate = "20 Mbit/s"` and `rate.trace = { points = [...], at_end = "loop" }`
//! are both a rate. The table has exactly one key, the model's name.

/// Implements `Deserialize` and `Serialize` for an enum that derives them with
/// `#[serde(remote = "Self")]`: text becomes `$short`, everything else is the
/// derived, externally tagged form.
macro_rules! text_or_table {
    ($type:ty, $short:ident, $example:literal) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Either;
                impl<'de> serde::de::Visitor<'de> for Either {
                    type Value = $type;
                    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        out.write_str($example)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map(<$type>::$short).map_err(E::custom)
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        map: A,
                    ) -> Result<$type, A::Error> {
                        <$type>::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                deserializer.deserialize_any(Either)
            }
        }
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::$short(short) => serializer.collect_str(short),
                    _ => <$type>::serialize(self, serializer),
                }
            }
        }
    };
}
pub(crate) use text_or_table;

/// The JSON Schema of a "text or table": the derived one of the tables, and before them
/// what the first variant, the short form, holds.
pub(crate) fn short_form(schema: &mut schemars::Schema) {
    let Some(serde_json::Value::Array(forms)) = schema.get_mut("oneOf") else {
        return;
    };
    let held = forms
        .first()
        .and_then(|first| first.get("properties")?.as_object()?.values().next());
    if let Some(short) = held.cloned() {
        forms.insert(0, short);
    }
}
