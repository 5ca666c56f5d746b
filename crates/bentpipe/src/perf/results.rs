//! Where the results of a measurement go, and the options about that.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_perf::iperf3;
use bentpipe_perf::report::{Record, Report};
use bentpipe_units::Span;
use clap::Args;

use super::output::{Output, is_stdout};
use super::table;
use crate::failure::Failure;

/// What is written, and where to.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub struct Results {
    /// Length of an interval
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    pub interval: Span,
    /// Write the report as JSON (`bentpipe schema perf`); `-` is the standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write it as iperf3 would; `-` is the standard output
    #[arg(long, value_name = "FILE")]
    iperf3_json: Option<PathBuf>,
    /// Write a line of JSON for each interval and request (`bentpipe schema perf-records`)
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// And one for each change of this end's window, pacing or losses
    #[arg(long, requires = "records")]
    pub changes: bool,
}

impl Results {
    /// Checks what a workload does not.
    pub fn check(&self) -> Result<(), Failure> {
        if self.interval < Span::from_millis(1) {
            return Err(Failure::Configuration(
                "give an --interval of at least 1 ms".into(),
            ));
        }
        Ok(())
    }
}

/// Where results go.
pub struct Outputs {
    json: Option<Output>,
    records: Option<Output>,
    iperf3: Option<Output>,
    /// When, since 1970.
    began: Duration,
    /// Whoever reads JSON from the standard output wants nothing else there.
    quiet: bool,
    /// Why a record could not be written, the first time.
    failed: Option<Failure>,
}

impl Outputs {
    /// Opens what `results` names.
    pub fn open(results: &Results) -> Result<Self, Failure> {
        let at_stdout = [&results.json, &results.records, &results.iperf3_json]
            .into_iter()
            .flatten()
            .filter(|path| is_stdout(path))
            .count();
        if at_stdout > 1 {
            return Err(Failure::Configuration(
                "--json, --iperf3-json, --records: one of them may be `-`, the standard output"
                    .into(),
            ));
        }
        Ok(Self {
            json: results.json.as_deref().map(Output::open).transpose()?,
            failed: None,
            began: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            records: results.records.as_deref().map(Output::open).transpose()?,
            iperf3: results
                .iperf3_json
                .as_deref()
                .map(Output::open)
                .transpose()?,
            quiet: at_stdout > 0,
        })
    }

    /// Says what is measured, and begins the table of it for people.
    pub fn begin(&self, what: &str) {
        self.say(what);
        self.say(table::HEAD);
    }

    /// Takes a record as soon as it is known.
    pub fn record(&mut self, record: &Record) {
        if let Record::Interval(interval) = record {
            self.say(&table::row(interval));
        }
        if let Some(records) = &mut self.records {
            let line = serde_json::to_string(record).expect("records are plain data");
            self.failed = self.failed.take().or(records.line(&line).err());
        }
    }

    /// The measurement is over.
    pub fn end(self, report: Report) -> Measured {
        Measured {
            report,
            outputs: self,
        }
    }

    /// A line for people; nobody may be reading any more.
    fn say(&self, line: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
}

/// A measurement that is over.
pub struct Measured {
    report: Report,
    outputs: Outputs,
}

impl Measured {
    /// Tells the result; a file that cannot be written keeps nothing from the others.
    pub fn finish(self) -> Result<(), Failure> {
        let Self {
            report,
            mut outputs,
        } = self;
        if !report.connections.is_empty() {
            for line in table::summary(&report) {
                outputs.say(&line);
            }
        }
        let json = (outputs.json.as_mut()).map(|json| json.line(&report.to_json()));
        let iperf3 = (outputs.iperf3.as_mut())
            .map(|iperf3| iperf3.line(&iperf3::document(&report, outputs.began).to_string()));
        let failed = report.error.map(|error| Err(anyhow::anyhow!(error).into()));
        let records = outputs.failed.map(Err);
        [json, iperf3, records, failed]
            .into_iter()
            .flatten()
            .collect()
    }
}
