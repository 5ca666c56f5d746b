//! `bentpipe schema`: JSON Schemas of the files that are read and written.

use bentpipe_campaign::schema;
use schemars::Schema;

use crate::failure::Failure;
use crate::{config, quic_pep};

/// Print the JSON Schema of a file that bentpipe reads or writes
#[derive(Debug, clap::Args)]
pub struct Command {
    /// Of which file; without it, the names are listed
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(SCHEMAS.iter().map(|(name, _)| *name)))]
    name: Option<String>,
}

/// A file's name and its schema.
type Named = (&'static str, fn() -> Schema);

/// Every schema by name; `schemas/` has a file of each.
const SCHEMAS: &[Named] = &[
    ("scenario", || {
        schemars::schema_for!(bentpipe_link::Scenario)
    }),
    ("plan", schema::plan),
    ("records", schema::records),
    ("summary", schema::summary),
    ("certificate", bentpipe_emulator::certificate::schema),
    ("packets", bentpipe_emulator::packets_schema),
    ("status", bentpipe_emulator::status_schema),
    ("perf", || {
        schemars::schema_for!(bentpipe_perf::report::Report)
    }),
    ("perf-records", || {
        schemars::schema_for!(bentpipe_perf::report::Record)
    }),
    ("terminal", config::terminal_schema),
    ("gateway", config::gateway_schema),
    ("quic-pep", quic_pep::schema),
];

/// `schema` with its names in alphabetical order, whatever the order of declaration.
pub fn sorted(schema: Schema) -> Schema {
    let mut value = schema.to_value();
    value.sort_all_objects();
    Schema::try_from(value).unwrap_or_default()
}

pub fn run(command: &Command) -> Result<(), Failure> {
    match &command.name {
        None => {
            for (name, _) in SCHEMAS {
                println!("{name}");
            }
        }
        Some(wanted) => {
            for (_, schema) in SCHEMAS.iter().filter(|(name, _)| name == wanted) {
                let text =
                    serde_json::to_string_pretty(&sorted(schema())).map_err(anyhow::Error::from)?;
                println!("{text}");
            }
        }
    }
    Ok(())
}
