//! JSON Schemas of the files that are read and written here.

use bentpipe_sim::Record;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;

use crate::execute::RunLine;
use crate::study::Study;
use crate::table::Line;

/// A plan, with one value in each field. In the file itself, any field may have a list of
/// values or a range, and `[[case]]` tables may stand beside them.
pub fn plan() -> Schema {
    schema_for!(Study)
}

/// A line of `records.jsonl`.
pub fn records() -> Schema {
    schema_for!(RecordsLine<'_>)
}

/// `summary.json`.
pub fn summary() -> Schema {
    schema_for!(Vec<Line>)
}

/// A line of `records.jsonl`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "described, never built: each is written by itself"
)]
enum RecordsLine<'a> {
    /// The first line: which schema the others follow.
    Schema { schema: &'a str },
    /// Before the lines of each run.
    Run(RunLine<'a>),
    /// What a run recorded.
    Record(Record),
}
