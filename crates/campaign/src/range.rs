//! Ranges: lists written short.
//!
//! `{ from = "1 Mbit/s", to = "9 Mbit/s", steps = 3 }` is `["1 Mbit/s", "5 Mbit/s",
//! "9 Mbit/s"]`; with `scale = "log"` the ratios are equal. The ends are as they are
//! written; what lies between is rounded to four digits, or to whole numbers where there
//! are no fractions.

use std::ops::Range;

use toml::de::{DeArray, DeTable, DeValue};

use crate::problem::Problem;
use crate::sweep::MOST_POINTS;

/// `text` with a list in place of each range. Lines stay where they are.
pub fn expand(text: &str) -> Result<String, Problem> {
    let file = DeTable::parse(text).map_err(Problem::Syntax)?;
    let mut lists = Vec::new();
    search_table(text, file.get_ref(), "", &mut lists)?;
    lists.sort_by_key(|(span, _)| span.start);
    let mut expanded = text.to_owned();
    for (span, list) in lists.into_iter().rev() {
        expanded.replace_range(span, &list);
    }
    Ok(expanded)
}

type Lists = Vec<(Range<usize>, String)>;

fn search_table(
    text: &str,
    table: &DeTable<'_>,
    path: &str,
    lists: &mut Lists,
) -> Result<(), Problem> {
    for (key, value) in table {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if is_range(inner) => {
                let span = value.span();
                let list =
                    list(text, inner, &span).map_err(|why| Problem::at(text, &span, &path, why))?;
                lists.push((span, list));
            }
            DeValue::Table(inner) => search_table(text, inner, &path, lists)?,
            DeValue::Array(inner) => search_array(text, inner, &path, lists)?,
            _ => {}
        }
    }
    Ok(())
}

fn search_array(
    text: &str,
    array: &DeArray<'_>,
    path: &str,
    lists: &mut Lists,
) -> Result<(), Problem> {
    for (index, element) in array.iter().enumerate() {
        if let DeValue::Table(inner) = element.get_ref() {
            search_table(text, inner, &format!("{path}.{index}"), lists)?;
        }
    }
    Ok(())
}

/// Outages and cross traffic have a `from` too, but neither `to` nor `steps`.
fn is_range(table: &DeTable<'_>) -> bool {
    table.contains_key("from") && (table.contains_key("to") || table.contains_key("steps"))
}

/// The range as a list, or what is wrong with it.
fn list(text: &str, table: &DeTable<'_>, span: &Range<usize>) -> Result<String, String> {
    if !(text[span.clone()].starts_with('{') && text[span.clone()].ends_with('}')) {
        return Err("write the range in braces: { from = ..., to = ..., steps = ... }".into());
    }
    let known = ["from", "to", "steps", "scale"];
    if let Some(key) = table.keys().find(|key| !known.contains(&&**key.get_ref())) {
        return Err(format!(
            "a range has from, to, steps and scale, not {:?}",
            key.get_ref()
        ));
    }
    let end = |name: &str| {
        let value = table.get(name).ok_or(format!("the range has no {name}"))?;
        End::of(value.get_ref()).ok_or(format!(
            "{name} is neither a number nor a text that begins with one"
        ))
    };
    let (from, to) = (end("from")?, end("to")?);
    let steps = match table.get("steps").map(toml::Spanned::get_ref) {
        Some(DeValue::Integer(steps)) => steps.as_str().parse::<usize>().ok(),
        _ => None,
    };
    let steps = steps.ok_or("steps is a whole number, like steps = 10")?;
    if !(2..=MOST_POINTS).contains(&steps) {
        return Err(format!("steps = {steps}: give 2 to {MOST_POINTS}"));
    }
    let log = match table.get("scale").map(|scale| scale.get_ref().as_str()) {
        None | Some(Some("linear")) => false,
        Some(Some("log")) => true,
        Some(_) => return Err("scale is \"linear\" or \"log\"".into()),
    };
    if from.unit != to.unit {
        return Err(format!(
            "from has the unit {:?} and to {:?}; write both in the same",
            from.unit.unwrap_or("none"),
            to.unit.unwrap_or("none")
        ));
    }
    if log && (from.number <= 0.0 || to.number <= 0.0) {
        return Err("a logarithmic range begins and ends above zero".into());
    }
    let values: Vec<_> = (0..steps)
        .map(|step| between(&from, &to, step, steps - 1, log))
        .collect();
    if let Some(twice) = values.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!(
            "{steps} steps are more than there are values between the ends: {} comes twice",
            twice[0]
        ));
    }
    Ok(format!("[{}]", values.join(", ")))
}

/// One end of a range.
struct End<'t> {
    number: f64,
    /// The number as it is written.
    written: &'t str,
    /// What stands behind it; `None` for a number without quotes.
    unit: Option<&'t str>,
    /// Whether there are no fractions of it.
    whole: bool,
}

/// Units without fractions.
const WHOLE: [&str; 5] = ["packets", "packet", "B", "bit/s", "ns"];
/// Digits that count in the values between the ends.
const DIGITS: usize = 4;

impl<'t> End<'t> {
    fn of(value: &'t DeValue<'_>) -> Option<Self> {
        let (written, unit, whole) = match value {
            DeValue::Integer(number) => (number.as_str(), None, true),
            DeValue::Float(number) => (number.as_str(), None, false),
            DeValue::String(text) => {
                let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
                let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
                (number, Some(unit.trim()), WHOLE.contains(&unit.trim()))
            }
            _ => return None,
        };
        let number = written
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())?;
        Some(Self {
            number,
            written,
            unit,
            whole,
        })
    }
}

/// Step `step` of `last`, as TOML.
fn between(from: &End<'_>, to: &End<'_>, step: usize, last: usize, log: bool) -> String {
    let share = step as f64 / last as f64;
    let number = match (step, log) {
        (0, _) => from.written.to_owned(),
        (step, _) if step == last => to.written.to_owned(),
        (_, true) => rounded(
            from.number * (to.number / from.number).powf(share),
            from.whole,
        ),
        (_, false) => rounded(from.number + (to.number - from.number) * share, from.whole),
    };
    match from.unit {
        Some(unit) => format!("\"{number} {unit}\""),
        None if from.whole || number.contains(['.', 'e', 'E']) => number,
        None => format!("{number}.0"),
    }
}

fn rounded(number: f64, whole: bool) -> String {
    if whole {
        return format!("{number:.0}");
    }
    let digits = format!("{number:.*e}", DIGITS - 1);
    let number: f64 = digits.parse().expect("Rust reads what it prints");
    number.to_string()
}

#[cfg(test)]
mod tests {
    use super::expand;

    fn list(range: &str) -> String {
        expand(&format!("x = {range}\n")).map_or_else(
            |error| error.to_string(),
            |text| text.trim_start_matches("x = ").trim_end().to_owned(),
        )
    }

    #[test]
    fn ends_are_kept_and_units_too() {
        for (range, expected) in [
            (
                r#"{ from = "1 Mbit/s", to = "9 Mbit/s", steps = 3 }"#,
                r#"["1 Mbit/s", "5 Mbit/s", "9 Mbit/s"]"#,
            ),
            (
                r#"{ from = "0.0001 %", to = "100 %", steps = 4, scale = "log" }"#,
                r#"["0.0001 %", "0.01 %", "1 %", "100 %"]"#,
            ),
            ("{ from = 1, to = 30, steps = 3 }", "[1, 16, 30]"),
            ("{ from = 1.0, to = 2, steps = 3 }", "[1.0, 1.5, 2.0]"),
            (
                r#"{ from = "10 packets", to = "1000 packets", steps = 3, scale = "log" }"#,
                r#"["10 packets", "100 packets", "1000 packets"]"#,
            ),
            (
                r#"{ from = "9 ms", to = "1 ms", steps = 4, scale = "log" }"#,
                r#"["9 ms", "4.327 ms", "2.08 ms", "1 ms"]"#,
            ),
        ] {
            assert_eq!(list(range), expected);
        }
    }

    #[test]
    fn a_range_that_cannot_be_says_where_and_why() {
        for (range, expected) in [
            (
                r#"{ from = "1 kbit/s", to = "9 Mbit/s", steps = 3 }"#,
                "line 1: x: from has the unit \"kbit/s\" and to \"Mbit/s\"; write both in the same",
            ),
            (
                r#"{ from = "a", to = "9", steps = 3 }"#,
                "line 1: x: from is neither",
            ),
            ("{ from = 1, steps = 3 }", "line 1: x: the range has no to"),
            ("{ from = 1, to = 3 }", "line 1: x: steps is a whole number"),
            (
                "{ from = 1, to = 3, steps = 1 }",
                "line 1: x: steps = 1: give 2 to",
            ),
            (
                "{ from = 1, to = 3, steps = 9 }",
                "line 1: x: 9 steps are more",
            ),
            (
                "{ from = 0, to = 3, steps = 2, scale = \"log\" }",
                "line 1: x: a logarithmic",
            ),
            (
                "{ from = 0, to = 3, steps = 2, scale = \"exp\" }",
                "line 1: x: scale is",
            ),
            (
                "{ from = 0, to = 3, step = 2 }",
                "line 1: x: a range has from, to, steps and scale, not \"step\"",
            ),
        ] {
            assert!(list(range).starts_with(expected), "{}", list(range));
        }
    }

    #[test]
    fn what_only_looks_like_a_range_is_left_alone() {
        let outage = r#"{ from = "1 s", for = "2 s" }"#;
        assert_eq!(list(outage), outage);
    }
}
