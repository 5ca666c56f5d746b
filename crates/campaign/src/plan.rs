//! A plan as people write it, one point of its sweep.

use std::path::Path;

use bentpipe_link::Scenario;
use bentpipe_link::scenario::ScenarioError;
use bentpipe_quic::{ConnectionParameters, Selection, Settings};
use bentpipe_sim::{Change, FlowPlan, LinkPlan, Move, Plan, PlanError, Transfer, What};
use bentpipe_units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};
use toml::de::DeValue;

use crate::problem::Problem;
use crate::sweep::Point;

/// One link, one kind of flow over it, and what happens on the way.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// The name it goes by.
    pub name: String,
    /// Where the study is from.
    #[serde(default)]
    pub source: String,
    /// Runs per point, with seeds 1, 2, ...
    #[serde(default = "one")]
    pub seeds: u64,
    /// Each run ends here at the latest.
    pub until: Span,
    /// How often flows are looked at.
    #[serde(default = "second")]
    pub sample_every: Span,
    pub link: Scenario,
    #[serde(default)]
    pub change: Vec<ChangeFile>,
    pub flow: FlowFile,
    /// Flows alike that run beside each other.
    #[serde(default = "one")]
    pub flows: u64,
    /// One more flow with this controller beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Selection>,
    /// From a moment on, the terminals have another address and come over this link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#move: Option<MoveFile>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFile {
    pub controller: Selection,
    /// What is fetched; without it as much as goes until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Carried before, over the same connection, which is then idle for `idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Bytes>,
    #[serde(default = "second")]
    pub idle: Span,
    /// Packets.
    #[serde(default = "initial_window")]
    pub initial_window: u32,
    /// The satellite's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_rtt: Option<Span>,
    /// Packets that may come beyond the first before they are acknowledged.
    /// By default chosen from rate and round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_after: Option<u32>,
    /// Timers at both ends fire at multiples of this; exactly by default.
    #[serde(default)]
    pub granularity: Span,
    /// UDP payload of a full packet, bytes.
    #[serde(default = "packet")]
    pub packet: u16,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    pub at: Span,
    pub link: Scenario,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeFile {
    pub at: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_rate: Option<Rate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_rate: Option<Rate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blackout: Option<Span>,
}

fn one() -> u64 {
    1
}

fn second() -> Span {
    Span::from_millis(1000)
}

fn initial_window() -> u32 {
    32
}

fn packet() -> u16 {
    1472
}

/// More than any plan carries: 10^15 bytes.
const ENDLESS: Bytes = Bytes::new(1_000_000_000_000_000);

impl PlanFile {
    /// Reads and checks `point` of the plan `text`, which lies in the directory `beside`.
    pub fn read(text: &str, point: &Point<'_>, beside: &Path) -> Result<Self, Problem> {
        let reader = toml::de::Deserializer::from(point.file.clone());
        let mut file = Self::deserialize(reader).map_err(|error| Problem::syntax(text, error))?;
        let wrong = |field: &str, why: String| Err(problem(text, point, field, why));
        file.link = resolve(text, point, "link", &file.link, beside)?;
        if let Some(to) = &mut file.r#move {
            to.link = resolve(text, point, "move.link", &to.link, beside)?;
        }
        if !(1..=10_000).contains(&file.seeds) {
            return wrong("seeds", format!("{} runs: give 1 to 10000", file.seeds));
        }
        if !(1..=1_000).contains(&file.flows) {
            return wrong("flows", format!("{} flows: give 1 to 1000", file.flows));
        }
        if file.flow.bytes.is_some_and(|bytes| bytes.as_u64() == 0) {
            let why = "nothing to fetch; leave it out to fetch until the end";
            return wrong("flow.bytes", why.into());
        }
        if let Some(after) = file.flow.ack_after
            && after > 1_000
        {
            let why = format!("{after} packets: give 0 to 1000");
            return wrong("flow.ack_after", why);
        }
        // QUIC needs 1200 bytes of every path (RFC 9000, section 14); 1472 fill an IP
        // packet of 1500.
        if !(1200..=1472).contains(&file.flow.packet) {
            let why = format!("{} bytes: give 1200 to 1472", file.flow.packet);
            return wrong("flow.packet", why);
        }
        match file.plan(1).check() {
            Ok(()) => Ok(file),
            Err(error) => wrong(&named(&error), error.to_string()),
        }
    }

    /// The run with one seed.
    pub fn plan(&self, seed: u64) -> Plan {
        let mut settings = Settings::new(self.flow.controller);
        settings.initial_window = self.flow.initial_window;
        settings.initial_rtt = self.flow.initial_rtt.unwrap_or(self.link.satellite_rtt());
        settings.know_rate(self.link.forward.rate.ceiling());
        let mut transport = ConnectionParameters::new(settings);
        let other = self
            .r#move
            .as_ref()
            .map(|to| to.link.forward.rate.ceiling());
        let rate = self.link.forward.rate.ceiling();
        transport.rate = rate.max(other.unwrap_or(rate));
        transport.ack_after = self.flow.ack_after;
        transport.packet = self.flow.packet;
        let bytes = self.flow.bytes.unwrap_or(ENDLESS);
        let transfers = match self.flow.warm {
            None => vec![Transfer::now(bytes)],
            Some(warm) => vec![Transfer::now(warm), Transfer::after(self.flow.idle, bytes)],
        };
        let mut flow = FlowPlan::new(transport, transfers);
        flow.granularity = self.flow.granularity;
        let mut links = vec![LinkPlan::of(&self.link)];
        for change in &self.change {
            let what = [
                change.forward_rate.map(What::ForwardRate),
                change.return_rate.map(What::ReturnRate),
                change.blackout.map(What::Blackout),
            ];
            let what = what.into_iter().flatten().map(|what| Change {
                at: change.at,
                what,
            });
            links[0].changes.extend(what);
        }
        if let Some(to) = &self.r#move {
            links.push(LinkPlan::of(&to.link));
            flow.moves = vec![Move {
                at: to.at,
                path: vec![1],
            }];
        }
        let mut flows = vec![flow.clone(); usize::try_from(self.flows).unwrap_or(1)];
        if let Some(controller) = self.beside {
            flow.transport.settings.controller = controller;
            let rate = self.link.forward.rate.ceiling();
            flow.transport.settings.know_rate(rate);
            flows.push(flow);
        }
        Plan {
            seed,
            links,
            flows,
            until: self.until,
            sample_every: self.sample_every,
        }
    }
}

/// The scenario with its defaults, files and queues worked out.
pub fn resolve(
    text: &str,
    point: &Point<'_>,
    field: &str,
    link: &Scenario,
    beside: &Path,
) -> Result<Scenario, Problem> {
    let written =
        toml::to_string(link).map_err(|error| problem(text, point, field, error.to_string()))?;
    let resolved = Scenario::parse_with(&written, &mut |name| {
        let file = beside.join(name);
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    });
    resolved.map_err(|error| match error {
        ScenarioError::Value {
            field: inner,
            value,
            why,
            ..
        } => problem(
            text,
            point,
            &format!("{field}.{inner}"),
            format!("{value:?}: {why}"),
        ),
        error @ ScenarioError::Syntax(_) => problem(text, point, field, error.to_string()),
    })
}

/// A problem with the field of that dotted name, at its line or that of the table around it.
pub fn problem(text: &str, point: &Point<'_>, field: &str, why: String) -> Problem {
    let mut table = point.file.get_ref();
    let mut span = None;
    for step in field.split('.') {
        let Some((key, value)) = table.get_key_value(step) else {
            break;
        };
        span = Some(key.span());
        let DeValue::Table(inner) = value.get_ref() else {
            break;
        };
        table = inner;
    }
    match span {
        Some(span) => Problem::at(text, &span, field, why),
        None => Problem::Field {
            line: None,
            field: field.to_owned(),
            why,
        },
    }
}

/// The plan's field that an error of the simulator is about.
fn named(error: &PlanError) -> String {
    match error {
        PlanError::Endless(_) => "until".into(),
        PlanError::TooManyLooks { .. } => "sample_every".into(),
        PlanError::NoRate(_) => "change".into(),
        PlanError::Granularity(..) => "flow.granularity".into(),
        PlanError::Host { .. } => "flow.host".into(),
        PlanError::Controller { error, .. } => {
            format!("flow.{}", error.parameter().unwrap_or("controller"))
        }
        PlanError::NoSuchLink { .. } | PlanError::NoPath(_) => "flow".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{range, sweep};

    const PLAN: &str = r#"name = "test"
until = "10 s"
[link]
name = "geo"
forward = { rate = "20 Mbit/s", delay = "300 ms", queue = "0.5 BDP" }
return = { rate = "2 Mbit/s", delay = "300 ms", queue = "150 kB" }
[flow]
controller = "cubic"
bytes = "2 MB"
"#;

    fn read(text: &str) -> Result<Vec<PlanFile>, String> {
        let text = range::expand(text).map_err(|problem| problem.to_string())?;
        let points = sweep::points(&text).map_err(|problem| problem.to_string())?;
        (points.iter())
            .map(|point| PlanFile::read(&text, point, Path::new("")))
            .collect::<Result<_, _>>()
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn queues_are_worked_out_at_every_point() {
        let text = PLAN.replace("\"0.5 BDP\"", "[\"0.5 BDP\", \"1 BDP\"]");
        let files = read(&text).expect("a plan");
        let queues: Vec<_> = (files.iter())
            .map(|file| file.link.forward.queue.limit().to_string())
            .collect();
        assert_eq!(queues, ["750 kB", "1.5 MB"]);
    }

    #[test]
    fn what_is_wrong_says_where_in_the_file() {
        for (from, to, expected) in [
            ("2 MB", "0 B", "line 9: flow.bytes: nothing to fetch"),
            (
                "\"cubic\"",
                "\"cubik\"",
                "TOML parse error at line 8, column 14",
            ),
            (
                "\"cubic\"",
                "[\"cubic\", \"vegas\"]",
                "TOML parse error at line 8, column 24",
            ),
            ("bytes", "byte", "TOML parse error at line 9, column 1"),
            (
                "0.5 BDP",
                "5 B",
                "line 5: link.forward.queue: \"5 B\": too small",
            ),
            (
                "\"geo\"",
                "\"g e o\"",
                "line 4: link.name: \"g e o\": a name has letters",
            ),
            ("10 s", "0 s", "line 2: until: until = 0 ns: a run ends"),
            (
                "until",
                "sample_every = \"0 s\"\nuntil",
                "line 2: sample_every: sample_every = 0 ns",
            ),
            (
                "until",
                "seeds = 0\nuntil",
                "line 2: seeds: 0 runs: give 1 to 10000",
            ),
            (
                "until",
                "flows = 9999\nuntil",
                "line 2: flows: 9999 flows: give 1 to 1000",
            ),
            (
                "bytes",
                "initial_window = 1\nbytes",
                "line 9: flow.initial_window: ",
            ),
            (
                "bytes",
                "ack_after = 2000\nbytes",
                "line 9: flow.ack_after: 2000 packets",
            ),
            (
                "bytes",
                "packet = 9000\nbytes",
                "line 9: flow.packet: 9000 bytes",
            ),
            (
                "[flow]",
                "[[change]]\nat = \"1 s\"\nforward_rate = \"0 bit/s\"\n[flow]",
                "line 7: change: links[0]: a change to a rate of zero",
            ),
        ] {
            let error = read(&PLAN.replacen(from, to, 1)).expect_err(expected);
            assert!(error.starts_with(expected), "{error}\nnot {expected}");
        }
    }

    /// A plan can ask for more looks than there is room for.
    #[test]
    fn records_without_end_are_refused() {
        let text = PLAN.replace(
            "until = \"10 s\"",
            "until = \"30 d\"\nsample_every = \"1 ms\"",
        );
        let text = text.replace("30 d", "2592000 s");
        let error = read(&text).expect_err("2.6 thousand million looks");
        assert!(error.contains("give at least 259.2 ms"), "{error}");
    }
}
