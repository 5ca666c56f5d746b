//! Traces: read from files, and checked.

use bentpipe_units::{ParseError, Span};

use super::files::Files;
use super::problem::Problem;
use crate::spec::{AtEnd, Trace, Value};

impl<V: Value> Trace<V> {
    /// Reads the file, if one is named, and checks the points.
    pub(crate) fn resolve(&mut self, field: &str, files: &mut Files<'_>) -> Result<(), Problem> {
        if let Some(name) = &self.file {
            if !self.points.is_empty() {
                return Err(Problem::new(
                    format!("{field}.file"),
                    name,
                    "a trace has points or a file, not both",
                ));
            }
            let Some((time, value)) = &self.columns else {
                return Err(Problem::new(
                    format!("{field}.file"),
                    name,
                    "the units of its two columns are not said; add columns = [\"s\", \"ms\"] or what they are",
                ));
            };
            let wrong = |why: String| Problem::new(format!("{field}.file"), name, why);
            self.points =
                read(&files.read(&format!("{field}.file"), name)?, time, value).map_err(wrong)?;
            if self.points.is_empty() {
                return Err(wrong(format!(
                    "an empty trace; write a time in {time} and a value in {value} on each line"
                )));
            }
            self.file = None;
            self.columns = None;
        }
        self.check(field)
    }

    fn check(&self, field: &str) -> Result<(), Problem> {
        let wrong = |value: String, why: &str| Err(Problem::new(field.to_owned(), value, why));
        if self.points.is_empty() {
            return wrong(
                "[]".into(),
                "an empty trace; give points = [[\"0 s\", ...], ...] or a file",
            );
        }
        for pair in self.points.windows(2) {
            if pair[1].0 <= pair[0].0 {
                return wrong(
                    pair[1].0.to_string(),
                    &format!(
                        "it stands behind {}; the moments of a trace must increase",
                        pair[0].0
                    ),
                );
            }
        }
        if self.at_end == AtEnd::Loop && self.length() == Span::ZERO {
            return wrong(
                "loop".into(),
                "a trace of no length cannot loop; add a last point that says how long it is, or at_end = \"hold\"",
            );
        }
        Ok(())
    }
}

/// Reads two columns, separated by a comma or by white space; `#` starts a comment.
fn read<V: Value>(text: &str, time: &str, value: &str) -> Result<Vec<(Span, V)>, String> {
    let mut points: Vec<(Span, V)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let at = |why: String| format!("line {}: {why}", number + 1);
        let mut cells = line
            .split(|c: char| c == ',' || c.is_whitespace())
            .filter(|cell| !cell.is_empty());
        let (Some(first), Some(second), None) = (cells.next(), cells.next(), cells.next()) else {
            return Err(at(format!("{line:?} is not two columns")));
        };
        let moment: Span = format!("{first} {time}")
            .parse()
            .map_err(|error: ParseError| at(error.to_string()))?;
        let value = format!("{second} {value}")
            .parse()
            .map_err(|error: ParseError| at(error.to_string()))?;
        if let Some((before, _)) = points.last().filter(|(before, _)| *before >= moment) {
            return Err(at(format!(
                "{moment} stands behind {before}; the moments of a trace must increase"
            )));
        }
        points.push((moment, value));
    }
    Ok(points)
}
