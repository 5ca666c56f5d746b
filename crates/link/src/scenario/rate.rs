//! Rates: read from files, and checked.

use std::sync::Arc;

use bentpipe_units::{Rate, Span};

use super::carrier::Hop;
use super::files::Files;
use super::problem::Problem;
use crate::spec::{AtEnd, Between, Mahimahi, RateSpec, Trace};

impl RateSpec {
    pub(crate) fn resolve(
        &mut self,
        field: &str,
        files: &mut Files<'_>,
        hop: &Hop,
    ) -> Result<(), Problem> {
        match self {
            Self::Constant(rate) if rate.bits_per_second() == 0 => Err(Problem::new(
                field,
                rate.to_string(),
                "a link that sends nothing; give at least \"1 bit/s\"",
            )),
            Self::Constant(_) => Ok(()),
            Self::Trace(trace) => {
                let field = format!("{field}.trace");
                let trace = Arc::make_mut(trace);
                trace.resolve(&field, files)?;
                check_rate_trace(trace, &field)
            }
            Self::Mahimahi(trace) => {
                Arc::make_mut(trace).resolve(&format!("{field}.mahimahi"), files)
            }
            Self::DvbS2(spec) => {
                Arc::make_mut(spec).resolve(&format!("{field}.dvb-s2"), files, hop)
            }
            Self::DvbRcs2(spec) => {
                Arc::make_mut(spec).resolve(&format!("{field}.dvb-rcs2"), files, hop)
            }
        }
    }
}

fn check_rate_trace(trace: &Trace<Rate>, field: &str) -> Result<(), Problem> {
    if trace.between == Between::Line {
        return Err(Problem::new(
            format!("{field}.between"),
            "line",
            "a rate goes in steps; give more points instead",
        ));
    }
    let sends = |points: &[(Span, Rate)]| points.iter().any(|(_, rate)| rate.bits_per_second() > 0);
    // The last point of a loop only says how long the loop is.
    let (from, why) = match trace.at_end {
        AtEnd::Loop => (
            &trace.points[..trace.points.len() - 1],
            "every rate in the loop is zero, so nothing is ever sent",
        ),
        AtEnd::Hold | AtEnd::End => (
            &trace.points[trace.points.len() - 1..],
            "the last rate is zero, so what waits then never leaves; end with a rate or use at_end = \"loop\"",
        ),
    };
    if !sends(from) {
        return Err(Problem::new(field, "0 bit/s", why));
    }
    if trace.at_end == AtEnd::Loop
        && (trace.length() < Span::from_millis(10) || trace.mean() < 1000.0)
    {
        return Err(Problem::new(
            field,
            trace.length().to_string(),
            "a loop is at least 10 ms long and sends at least 1 kbit/s on average",
        ));
    }
    Ok(())
}

impl Mahimahi {
    fn resolve(&mut self, field: &str, files: &mut Files<'_>) -> Result<(), Problem> {
        let wrong = |value: &str, why: String| Err(Problem::new(field, value, why));
        if let Some(name) = self.file.take() {
            if !self.opportunities.is_empty() {
                return wrong(
                    &name,
                    "a trace has opportunities or a file, not both".into(),
                );
            }
            for (number, line) in files
                .read(&format!("{field}.file"), &name)?
                .lines()
                .enumerate()
            {
                if line.trim().is_empty() {
                    continue;
                }
                let Ok(ms) = line.trim().parse() else {
                    return wrong(
                        &name,
                        format!(
                            "line {}: {line:?} is not a whole number of milliseconds",
                            number + 1
                        ),
                    );
                };
                self.opportunities.push(ms);
            }
        }
        let Some(last) = self.opportunities.last() else {
            return wrong(
                "[]",
                "an empty trace; give opportunities = [...] or a file".into(),
            );
        };
        if let Some(pair) = self.opportunities.windows(2).find(|pair| pair[1] < pair[0]) {
            return wrong(
                &pair[1].to_string(),
                format!(
                    "it stands behind {}; the moments must not decrease",
                    pair[0]
                ),
            );
        }
        if *last > 1_000_000_000_000 {
            return wrong(
                &last.to_string(),
                "more than 31 years of milliseconds".into(),
            );
        }
        match self.at_end {
            AtEnd::Loop if *last > 0 => Ok(()),
            AtEnd::Loop => wrong("loop", "a trace of no length cannot loop".into()),
            AtEnd::End => Ok(()),
            AtEnd::Hold => wrong(
                "hold",
                "an opportunity cannot be held; say at_end = \"loop\" (as mahimahi does) or \"end\"".into(),
            ),
        }
    }
}
