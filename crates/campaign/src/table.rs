//! The summary of a plan as a table: a line per point.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bentpipe_sim::record::{QuicVerdict, Records, TransferRecord, TunnelFlow};
use bentpipe_units::truncated;
use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::PlanFile;
use crate::sweep::Axes;

/// The flows of one kind in one run.
pub type Kind = Vec<Figures>;

/// What the table needs of one run; of its first flow where nothing else is said.
#[derive(Debug, Clone)]
pub struct Figures {
    /// "ok", or what became of it instead.
    pub verdict: String,
    /// Of the last transfer, if it is whole.
    seconds: Option<f64>,
    /// To the first byte of the last transfer.
    first_byte: Option<f64>,
    /// Payload received, bit/s, over the time of the transfers.
    goodput: f64,
    /// Bytes at the IP level that the gateway sent for each byte received.
    wire_per_payload: Option<f64>,
    /// Share of all that was received by all flows.
    share: f64,
    /// Of a call: the 95th percentile of its echoes' times, and the share that has not come.
    echo: Option<(Option<f64>, f64)>,
}

impl Figures {
    /// Of a run according to `file`.
    pub fn of(file: &PlanFile, records: &Records) -> Self {
        let flow = &records.flows[0];
        let endless = file.flow.bytes.is_none();
        let verdict = match &flow.verdict {
            QuicVerdict::TimedOut if endless => "ok".to_owned(),
            QuicVerdict::Ok => "ok".to_owned(),
            QuicVerdict::TimedOut => "timed out".to_owned(),
            QuicVerdict::Broken(why) => format!("broken: {why}"),
        };
        let first = |at: &&TransferRecord| at.flow == 0;
        let last = records.transfers.iter().rfind(first);
        let total = |transfers: &mut dyn Iterator<Item = &TransferRecord>| {
            transfers.map(|at| at.received).sum::<u64>() as f64
        };
        let received = total(&mut records.transfers.iter().filter(first));
        // An unfinished transfer lasts until the end.
        let spent: f64 = (records.transfers.iter().filter(first))
            .map(|at| {
                let end = at.done_ns.unwrap_or(file.until.as_nanos());
                end.saturating_sub(at.begun_ns) as f64 / 1e9
            })
            .sum();
        Self {
            verdict,
            seconds: last.and_then(TransferRecord::seconds),
            first_byte: last.and_then(|last| {
                let first = last.first_byte_ns?;
                Some(first.saturating_sub(last.begun_ns) as f64 / 1e9)
            }),
            goodput: if spent > 0.0 {
                received * 8.0 / spent
            } else {
                0.0
            },
            wire_per_payload: (received > 0.0).then(|| flow.forward_ip_bytes as f64 / received),
            share: received / total(&mut records.transfers.iter()).max(1.0),
            echo: None,
        }
    }
}

impl Figures {
    /// Of a flow through the tunnel; `share` of all that the run carried.
    pub fn of_flow(flow: &TunnelFlow, share: f64) -> Self {
        let seconds = flow.seconds();
        Self {
            verdict: flow.verdict.text().to_owned(),
            seconds,
            first_byte: flow.first_byte_s(),
            goodput: seconds.map_or(0.0, |seconds| flow.arrived as f64 * 8.0 / seconds),
            wire_per_payload: None,
            share,
            echo: (flow.echo.as_ref())
                .map(|echo| (echo.p95_ns.map(|ns| ns as f64 / 1e9), echo.lost())),
        }
    }
}

/// One line: all runs of one point, or all flows of a kind where they go through the
/// tunnel. Times are of those that ended well.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Line {
    /// What was chosen.
    pub axes: Axes,
    /// Those that ended well: all that was asked for arrived, or the flow had no end.
    pub n_ok: usize,
    /// All of them.
    pub n_total: usize,
    /// Of the last transfer of the first flow, from its beginning to its last byte.
    pub median_s: Option<f64>,
    /// A quarter of the times lies below it.
    pub p25_s: Option<f64>,
    /// A quarter of the times lies above it.
    pub p75_s: Option<f64>,
    /// To its first byte.
    pub median_first_byte_s: Option<f64>,
    /// Payload that the first flow received; an unfinished transfer lasts until the end.
    pub median_goodput_bit_s: Option<f64>,
    /// Bytes at the IP level that its gateway sent for each byte received.
    pub median_wire_per_payload: Option<f64>,
    /// Its share of all that was received.
    pub median_share: Option<f64>,
    /// Of calls: the 95th percentile of the times to their datagrams' echoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_echo_p95_s: Option<f64>,
    /// Of calls: the share of their datagrams whose echo has not come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_echo_lost: Option<f64>,
    /// What became of the runs.
    pub verdicts: BTreeMap<String, usize>,
}

impl Line {
    /// Of all runs of one point; `None` stands for a run that failed.
    pub fn of(axes: &Axes, runs: &[Option<Figures>]) -> Self {
        let mut verdicts = BTreeMap::new();
        for run in runs {
            let verdict = run.as_ref().map_or("failed", |run| &run.verdict);
            *verdicts.entry(verdict.to_owned()).or_insert(0) += 1;
        }
        let runs: Vec<_> = runs.iter().flatten().collect();
        let all = |of: &dyn Fn(&Figures) -> Option<f64>| -> Vec<f64> {
            let mut values: Vec<_> = runs.iter().filter_map(|run| of(run)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let good = |run: &&Figures| run.verdict == "ok";
        let times = all(&|run| run.seconds.filter(|_| good(&run)));
        Self {
            axes: axes.clone(),
            n_ok: runs.iter().copied().filter(good).count(),
            n_total: verdicts.values().sum(),
            median_s: quantile(&times, 0.5),
            p25_s: quantile(&times, 0.25),
            p75_s: quantile(&times, 0.75),
            median_first_byte_s: quantile(&all(&|run| run.first_byte), 0.5),
            median_goodput_bit_s: quantile(&all(&|run| Some(run.goodput)), 0.5),
            median_wire_per_payload: quantile(&all(&|run| run.wire_per_payload), 0.5),
            median_share: quantile(&all(&|run| Some(run.share)), 0.5),
            median_echo_p95_s: quantile(&all(&|run| run.echo.and_then(|(p95, _)| p95)), 0.5),
            median_echo_lost: quantile(&all(&|run| run.echo.map(|(_, lost)| lost)), 0.5),
            verdicts,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let axes: Vec<_> = (self.axes.iter())
            .map(|(path, value)| match path.as_str() {
                "case" => value.clone(),
                path => format!("{path} = {value}"),
            })
            .collect();
        let seconds = (self.median_s).map_or("-".into(), |seconds| format!("{seconds:.3} s"));
        let goodput = self.median_goodput_bit_s.unwrap_or(0.0) / 1e6;
        let echo = match (self.median_echo_p95_s, self.median_echo_lost) {
            (Some(p95), Some(lost)) => {
                format!(
                    "   echo {:.1} ms (p95), {:.2} % lost",
                    p95 * 1e3,
                    lost * 100.0
                )
            }
            _ => String::new(),
        };
        format!(
            "{:<60} {:>4} of {:<4} {seconds:>12} {goodput:>9.3} Mbit/s{echo}",
            axes.join(", "),
            self.n_ok,
            self.n_total,
        )
    }
}

/// The names of the columns of [`Line::text`].
pub fn heading() -> String {
    format!(
        "{:<60} {:<12} {:>12} {:>16}",
        "point", "ended well", "median time", "median goodput"
    )
}

/// The quantile of sorted values, between the two nearest in proportion.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share * last as f64;
    let below = usize::try_from(truncated(place)).unwrap_or(last);
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64))
}

/// The table as comma-separated values (RFC 4180): axes first, then the figures.
pub fn csv(lines: &[Line]) -> String {
    let mut axes: Vec<&str> = (lines.iter())
        .flat_map(|line| line.axes.keys().map(String::as_str))
        .collect();
    axes.sort_unstable();
    axes.dedup();
    let head = [
        "n_ok",
        "n_total",
        "median_s",
        "p25_s",
        "p75_s",
        "median_first_byte_s",
        "median_goodput_bit_s",
        "median_wire_per_payload",
        "median_share",
    ];
    let mut text = String::new();
    let mut row = |cells: Vec<String>| {
        let cells: Vec<_> = cells.iter().map(|cell| quoted(cell)).collect();
        let _ = writeln!(text, "{}", cells.join(","));
    };
    row(axes.iter().chain(&head).map(ToString::to_string).collect());
    for line in lines {
        let value = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
        let mut cells: Vec<_> = (axes.iter())
            .map(|axis| line.axes.get(*axis).cloned().unwrap_or_default())
            .collect();
        cells.extend([line.n_ok.to_string(), line.n_total.to_string()]);
        cells.extend(
            [
                line.median_s,
                line.p25_s,
                line.p75_s,
                line.median_first_byte_s,
                line.median_goodput_bit_s,
                line.median_wire_per_payload,
                line.median_share,
            ]
            .map(value),
        );
        row(cells);
    }
    text
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(verdict: &str, seconds: Option<f64>) -> Option<Figures> {
        Some(Figures {
            verdict: verdict.into(),
            seconds,
            first_byte: None,
            goodput: 1e6,
            wire_per_payload: None,
            share: 1.0,
            echo: None,
        })
    }

    #[test]
    fn times_are_of_the_runs_that_ended_well_and_all_are_counted() {
        let runs = [
            figures("ok", Some(1.0)),
            figures("ok", Some(2.0)),
            figures("ok", Some(4.0)),
            figures("timed out", None),
            None,
        ];
        let line = Line::of(&Axes::new(), &runs);
        assert_eq!((line.n_ok, line.n_total), (3, 5));
        assert_eq!(
            (line.p25_s, line.median_s, line.p75_s),
            (Some(1.5), Some(2.0), Some(3.0))
        );
        assert_eq!(line.verdicts["failed"], 1);
        let none = Line::of(&Axes::new(), &[figures("timed out", None)]);
        assert_eq!((none.n_ok, none.median_s), (0, None));
    }

    #[test]
    fn comma_separated_values_have_a_column_for_every_field_of_any_point() {
        let axes = |name: &str, value: &str| Axes::from([(name.to_owned(), value.to_owned())]);
        let lines = [
            Line::of(&axes("b", "1, or 2"), &[figures("ok", Some(1.5))]),
            Line::of(&axes("a", "x"), &[]),
        ];
        let text = csv(&lines);
        let rows: Vec<_> = text.lines().collect();
        assert!(rows[0].starts_with("a,b,n_ok,n_total,median_s,"));
        assert!(rows[1].starts_with(",\"1, or 2\",1,1,1.5,1.5,1.5,,1000000,,1"));
        assert!(rows[2].starts_with("x,,0,0,,"));
    }
}
