//! The place of a field in the text.

use toml::de::{DeTable, DeValue};

/// The line of the field with this dotted path (array elements by number), or
/// of the nearest table around it.
pub(crate) fn line(text: &str, path: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut array: Option<&toml::de::DeArray<'_>> = None;
    let mut found = None;
    for step in path.split('.') {
        let value = match array.take() {
            Some(elements) => elements.get(step.parse::<usize>().ok()?),
            None => match table.get_key_value(step) {
                Some((key, value)) => {
                    found = Some(key.span().start);
                    Some(value)
                }
                None => break,
            },
        };
        let Some(value) = value else { break };
        match value.get_ref() {
            DeValue::Table(inner) => {
                if found.is_none() {
                    found = Some(value.span().start);
                }
                table = inner;
            }
            DeValue::Array(inner) => array = Some(inner),
            _ => break,
        }
    }
    found.map(|start| text[..start.min(text.len())].matches('\n').count() + 1)
}
