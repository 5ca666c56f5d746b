//! Plans of QUIC connections alone, as people write them: one point of a sweep.

use std::path::Path;

use bentpipe_link::Scenario;
use bentpipe_link::ScenarioError;
use bentpipe_quic::{ConnectionParameters, Selection, Settings};
use bentpipe_sim::quic::{FlowPlan, Transfer};
use bentpipe_sim::{LinkPlan, Nodes, Plan, PlanError};
use bentpipe_units::{Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::de::DeValue;

use crate::change::{ChangeFile, moves};
use crate::host::HostFile;
use crate::pep::PepFile;
use crate::problem::Problem;
use crate::sweep::Point;

/// One link, one kind of flow over it, and what happens on the way.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// The name it goes by.
    pub name: String,
    /// Where the study is from.
    #[serde(default)]
    pub source: String,
    /// Runs per point, each with a seed of its own.
    #[serde(default = "one")]
    pub seeds: u64,
    /// The seed of the first; those of the others follow it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub first_seed: u64,
    /// Each run ends here at the latest.
    pub until: Span,
    /// How often flows are looked at.
    #[serde(default = "second")]
    pub sample_every: Span,
    /// What runs the connections.
    #[serde(default, skip_serializing_if = "Runtime::is_lean")]
    pub runtime: Runtime,
    /// The link that all cross. Where it switches with a new address, the terminals have another
    /// address from then on.
    pub link: Scenario,
    /// Links between that and the terminals: the first flow crosses the first, the next the
    /// next, in turn. For flows with different round trips over one bottleneck.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<Scenario>,
    /// What changes on it.
    #[serde(default)]
    pub change: Vec<ChangeFile>,
    /// What each flow does.
    pub flow: FlowFile,
    /// Flows alike that run beside each other.
    #[serde(default = "one")]
    pub flows: u64,
    /// Each begins so much later than the one before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stagger: Span,
    /// One more flow with this controller beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Selection>,
    /// Splitting proxies at both ends of the link; the connections then run on the async runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pep: Option<PepFile>,
}

/// What runs the connections' programs, which are those of `bentpipe perf`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// The QUIC library's core alone: the fastest.
    #[default]
    Lean,
    /// The async runtime, as in real time.
    Async,
}

impl Runtime {
    fn is_lean(&self) -> bool {
        *self == Self::Lean
    }
}

#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowFile {
    /// The congestion controller of both ends.
    pub controller: Selection,
    /// What is fetched; without it as much as goes until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// So often, one after the other over the same connection.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub requests: u64,
    /// Idle time between the end of one and the request of the next.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pause: Span,
    /// Carried before, over the same connection, which is then idle for `idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Bytes>,
    #[serde(default = "second")]
    pub idle: Span,
    /// Packets.
    #[serde(default = "initial_window")]
    pub initial_window: u32,
    /// Whether a window is spread over a round trip; `false` for `newreno`, `cubic` and `cubic-search` only.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub pacing: bool,
    /// The satellite's by default; with proxies, what they expect on the ground.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_rtt: Option<Span>,
    /// Packets that may come beyond the first before they are acknowledged.
    /// By default chosen from rate and round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_after: Option<u32>,
    /// Timers at both ends fire at multiples of this; exactly by default.
    #[serde(default)]
    pub granularity: Span,
    /// The machines at both ends; ideal ones by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostFile>,
    /// UDP payload of a full packet, bytes.
    #[serde(default = "packet")]
    pub packet: u16,
}

fn yes() -> bool {
    true
}

fn is_yes(yes: &bool) -> bool {
    *yes
}

fn one() -> u64 {
    1
}

fn is_one(count: &u64) -> bool {
    *count == 1
}

fn is_zero(span: &Span) -> bool {
    *span == Span::ZERO
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

/// So that no seed is beyond what records and tables hold exactly.
pub(crate) const MOST_FIRST_SEED: u64 = 1_000_000_000;
/// Requests of one flow; each has its record.
const MOST_REQUESTS: u64 = 100_000;
/// More than any plan carries: 10^15 bytes.
const ENDLESS: Bytes = Bytes::new(1_000_000_000_000_000);

impl PlanFile {
    /// Reads and checks `point` of the plan `text`, which lies in the directory `beside`.
    pub fn read(text: &str, point: &Point<'_>, beside: &Path) -> Result<Self, Problem> {
        let reader = toml::de::Deserializer::from(point.file.clone());
        let mut file = Self::deserialize(reader).map_err(|error| Problem::syntax(text, error))?;
        let wrong = |field: &str, why: String| Err(problem(text, point, field, why));
        file.link = resolve(text, point, "link", &file.link, beside)?;
        for (number, link) in file.access.iter_mut().enumerate() {
            *link = resolve(text, point, &format!("access.{number}"), link, beside)?;
        }
        if !(1..=10_000).contains(&file.seeds) {
            return wrong("seeds", format!("{} runs: give 1 to 10000", file.seeds));
        }
        if !(1..=MOST_FIRST_SEED).contains(&file.first_seed) {
            let why = format!("{}: give 1 to {MOST_FIRST_SEED}", file.first_seed);
            return wrong("first_seed", why);
        }
        if !(1..=1_000).contains(&file.flows) {
            return wrong("flows", format!("{} flows: give 1 to 1000", file.flows));
        }
        if file.flow.bytes.is_some_and(|bytes| bytes.as_u64() == 0) {
            let why = "nothing to fetch; leave it out to fetch until the end";
            return wrong("flow.bytes", why.into());
        }
        if !(1..=MOST_REQUESTS).contains(&file.flow.requests) {
            let requests = file.flow.requests;
            let why = format!("{requests} requests: give 1 to {MOST_REQUESTS}");
            return wrong("flow.requests", why);
        }
        if file.flow.requests > 1 && file.flow.bytes.is_none() {
            let why = "the first request has no end; give bytes, like bytes = \"100 kB\"";
            return wrong("flow.requests", why.into());
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
        if let Some(pep) = &file.pep {
            if !file.access.is_empty() || !moves(&file.link).is_empty() {
                let why = "the terminals are behind a proxy, whose address stays: leave access and new_address out";
                return wrong("pep", why.into());
            }
            if let Err((field, why)) = pep.check() {
                return wrong(field, why);
            }
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
        settings.pacing = self.flow.pacing;
        let rtt = (self.pep.as_ref()).map_or(self.link.satellite_rtt(), PepFile::rtt);
        settings.initial_rtt = self.flow.initial_rtt.unwrap_or(rtt);
        settings.know_rate(self.link.forward.rate.ceiling());
        let mut transport = ConnectionParameters::new(settings);
        let later = self.link.switch.iter().map(|switch| &switch.forward);
        let rates = later.map(|forward| forward.rate.ceiling());
        transport.rate = rates.fold(self.link.forward.rate.ceiling(), Ord::max);
        transport.ack_after = self.flow.ack_after;
        transport.packet = self.flow.packet;
        let bytes = self.flow.bytes.unwrap_or(ENDLESS);
        let mut transfers: Vec<_> = self.flow.warm.map(Transfer::now).into_iter().collect();
        let idle = self.flow.warm.map_or(Span::ZERO, |_| self.flow.idle);
        transfers.push(Transfer::after(idle, bytes));
        let again = Transfer::after(self.flow.pause, bytes);
        transfers.extend((1..self.flow.requests).map(|_| again));
        let mut flow = FlowPlan::new(transport, transfers);
        flow.granularity = self.flow.granularity;
        flow.host = self.flow.host.as_ref().map_or(flow.host, HostFile::spec);
        flow.moves = moves(&self.link);
        let link = LinkPlan::of(&self.link);
        let mut links = vec![
            self.change
                .iter()
                .fold(link, |link, change| change.of(link)),
        ];
        let mut flows = vec![flow.clone(); usize::try_from(self.flows).unwrap_or(1)];
        if let Some(controller) = self.beside {
            flow.transport.settings.controller = controller;
            let rate = self.link.forward.rate.ceiling();
            flow.transport.settings.know_rate(rate);
            flows.push(flow);
        }
        for (number, flow) in (0..).zip(&mut flows) {
            flow.start = Span::from_nanos(self.stagger.as_nanos().saturating_mul(number));
        }
        self.add_access(&mut links, &mut flows);
        let nodes = match (&self.pep, self.runtime) {
            (Some(pep), _) => pep.split(flows, &mut links),
            (None, Runtime::Lean) => Nodes::Quic(flows),
            (None, Runtime::Async) => Nodes::QuicOnRuntime(flows),
        };
        Plan {
            seed,
            links,
            nodes,
            until: self.until,
            sample_every: self.sample_every,
        }
    }
}

impl PlanFile {
    /// Puts each flow behind its access link, if there are any.
    fn add_access(&self, links: &mut Vec<LinkPlan>, flows: &mut [FlowPlan]) {
        let first = links.len();
        links.extend(self.access.iter().map(LinkPlan::of));
        let turns = self.access.iter().enumerate().cycle();
        for (flow, (number, access)) in flows.iter_mut().zip(turns) {
            let paths = flow.moves.iter_mut().map(|to| &mut to.path);
            for path in paths.chain([&mut flow.path]) {
                path.push(first + number);
            }
            let settings = &mut flow.transport.settings;
            if self.flow.initial_rtt.is_none() {
                settings.initial_rtt = settings.initial_rtt + access.satellite_rtt();
            }
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
        PlanError::TooManySamples { .. } => "sample_every".into(),
        PlanError::NoRate(_) => "change".into(),
        PlanError::NeverStarts { .. } => "stagger".into(),
        PlanError::Granularity { .. } => "flow.granularity".into(),
        PlanError::Host { .. } => "flow.host".into(),
        PlanError::Proxy(..) => "pep".into(),
        PlanError::Controller { error, .. } => {
            format!("flow.{}", error.parameter().unwrap_or("controller"))
        }
        _ => "flow".into(),
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
        let points =
            sweep::points(&text, crate::study::schema).map_err(|problem| problem.to_string())?;
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
            (
                "until",
                "first_seed = 0\nuntil",
                "line 2: first_seed: 0: give 1 to 1000000000",
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
                "until",
                "flows = 3\nstagger = \"5 s\"\nuntil",
                "line 3: stagger: flows[2] would start at 10 s, but the run ends at 10 s",
            ),
            (
                "bytes = \"2 MB\"",
                "requests = 2",
                "line 9: flow.requests: the first request has no end",
            ),
            (
                "[flow]",
                "[[access]]\nname = \"a\"\nforward = { rate = \"1 Mbit/s\", delay = \"1 ms\", queue = \"5 B\" }\nreturn = { rate = \"1 Mbit/s\", delay = \"1 ms\", queue = \"9 kB\" }\n[flow]",
                "line 7: access.0.forward.queue: \"5 B\": too small",
            ),
            (
                "bytes",
                "packet = 9000\nbytes",
                "line 9: flow.packet: 9000 bytes",
            ),
            (
                "bytes",
                "host = { like = \"bussy\" }\nbytes",
                "TOML parse error at line 9, column 17",
            ),
            (
                "bytes",
                "host = { tick = \"2 s\" }\nbytes",
                "line 9: flow.host: ",
            ),
            (
                "bytes",
                "host = { stall_every = \"1 us\" }\nbytes",
                "line 9: flow.host: ",
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

    /// Which fields are lists is known of every type, not of a chosen few.
    #[test]
    fn lists_of_a_link_are_no_sweep_wherever_they_stand() {
        let mahimahi = r#"rate.mahimahi = { opportunities = [0, 1, 2, 4], at_end = "loop" }"#;
        let others = r#"rate.dvb-rcs2 = { bandwidth = "10 MHz", roll_off = 0.35, waveform = 12, cra = "512 kbit/s", rbdc = "1 Mbit/s", superframe = "45 ms", others = [{ rate = "2 Mbit/s", on = ["1 s", "5 s"], off = "1 s" }, { rate = "1 Mbit/s", from = "9 s" }] }, loss_per = "packet""#;
        for (from, to, axes) in [
            (r#"rate = "20 Mbit/s""#, mahimahi, vec![""]),
            (
                r#"rate = "2 Mbit/s""#,
                others,
                vec![
                    "link.return.rate.dvb-rcs2.others.0.on = 1 s",
                    "link.return.rate.dvb-rcs2.others.0.on = 5 s",
                ],
            ),
        ] {
            assert!(PLAN.contains(from));
            let text = range::expand(&PLAN.replacen(from, to, 1)).expect("no range");
            let points = sweep::points(&text, crate::study::schema).expect("points");
            let found: Vec<_> = (points.iter())
                .map(|point| {
                    PlanFile::read(&text, point, Path::new("")).expect("a plan");
                    let axes = point
                        .axes
                        .iter()
                        .map(|(name, value)| format!("{name} = {value}"));
                    axes.collect::<Vec<_>>().join(", ")
                })
                .collect();
            assert_eq!(found, axes);
        }
    }

    /// A plan can ask for more samples than there is room for.
    #[test]
    fn records_without_end_are_refused() {
        let text = PLAN.replace(
            "until = \"10 s\"",
            "until = \"30 d\"\nsample_every = \"1 ms\"",
        );
        let text = text.replace("30 d", "2592000 s");
        let error = read(&text).expect_err("2.6 thousand million samples");
        assert!(error.contains("give at least 259.2 ms"), "{error}");
    }

    /// Late machines make a download later, and a field changes one of the known ones.
    #[test]
    fn a_plan_names_its_machines() {
        let seconds = |host: &str| {
            let text = PLAN.replace("10 s", "60 s");
            let text = text.replace("bytes", &format!("{host}\nbytes"));
            let file = read(&text).expect("a plan").remove(0);
            let records = bentpipe_sim::Records::of(&file.plan(1), std::time::Instant::now());
            let done = records.expect("a run").transfers[0].seconds();
            done.expect("2 MB arrive in a minute")
        };
        let ideal = seconds("");
        assert!((seconds("host = {}") - ideal).abs() < 1e-9);
        let slow = seconds("host = { like = \"slow\" }");
        let slower = seconds("host = { like = \"slow\", tick = \"50 ms\" }");
        assert!(ideal < slow && slow < slower, "{ideal} {slow} {slower}");
    }

    /// With each new address a connection validates its path and starts again, and goes on.
    #[test]
    fn a_terminal_moves_where_its_link_switches_with_a_new_address() {
        let direction = "{ rate = \"20 Mbit/s\", delay = \"20 ms\", queue = \"100 kB\" }";
        let seconds = |new_address: bool| {
            let switches = ["2 s", "4 s"].map(|at| {
                format!("[[link.switch]]\nat = \"{at}\"\nnew_address = {new_address}\nforward = {direction}\nreturn = {direction}\n")
            });
            let text = PLAN
                .replace("10 s", "60 s")
                .replace("2 MB", "20 MB")
                .replace("[flow]", &format!("{}[flow]", switches.concat()));
            let plan = read(&text).expect("a plan").remove(0).plan(1);
            let Nodes::Quic(flows) = &plan.nodes else {
                panic!("one link, QUIC alone")
            };
            assert_eq!(flows[0].moves.len(), if new_address { 2 } else { 0 });
            let records = bentpipe_sim::Records::of(&plan, std::time::Instant::now());
            let done = records.expect("a run").transfers[0].seconds();
            done.expect("20 MB arrive in a minute")
        };
        assert_ne!(seconds(true), seconds(false));
    }

    #[test]
    fn a_terminal_behind_a_proxy_keeps_its_address() {
        let direction = "{ rate = \"20 Mbit/s\", delay = \"20 ms\", queue = \"100 kB\" }";
        let text = PLAN.replace("[flow]", &format!("[[link.switch]]\nat = \"2 s\"\nnew_address = true\nforward = {direction}\nreturn = {direction}\n[pep]\n[flow]"));
        let error = read(&text).expect_err("its proxy would have to move");
        assert!(
            error.contains("leave access and new_address out"),
            "{error}"
        );
    }

    /// Two flows with requests and pauses, one 5 s after the other, with 100 ms and 300 ms of
    /// round trip more than the link that they share, whose packets are held now and then.
    #[test]
    fn flows_come_one_by_one_over_paths_of_their_own() {
        let access = |delay: &str| {
            let direction =
                format!("{{ rate = \"100 Mbit/s\", delay = \"{delay}\", queue = \"1 MB\" }}");
            format!("[[access]]\nname = \"access\"\nforward = {direction}\nreturn = {direction}\n")
        };
        let text = PLAN
            .replace("10 s", "60 s\"\nflows = 2\nstagger = \"5 s")
            .replace("queue = \"0.5 BDP\"", "queue = \"0.5 BDP\", outages = [{ from = \"2 s\", for = \"120 ms\", every = \"3 s\", packets = \"wait\" }]")
            .replace("[flow]", &format!("{}{}[flow]", access("50 ms"), access("150 ms")))
            .replace("\"2 MB\"", "\"100 kB\"\nrequests = 3\npause = \"2 s\"");
        let file = read(&text).expect("a plan").remove(0);
        let records = bentpipe_sim::Records::of(&file.plan(1), std::time::Instant::now());
        let transfers = records.expect("a run").transfers;
        assert_eq!(transfers.len(), 6, "{transfers:?}");
        for (flow, rtt) in [(0, 0.7), (1, 0.9)] {
            let mine: Vec<_> = (transfers.iter()).filter(|at| at.flow == flow).collect();
            assert!(mine[0].begun_ns == 5_000_000_000 * flow as u64, "{mine:?}");
            for pair in mine.windows(2) {
                let done = pair[0].done_ns.expect("it is done");
                assert_eq!(pair[1].asked_ns - done, 2_000_000_000, "{mine:?}");
            }
            for transfer in &mine[1..] {
                let first = transfer.first_byte_ns.expect("it is done") - transfer.asked_ns;
                let first = first as f64 / 1e9;
                // Held for 120 ms at most, once on the way there and once back.
                assert!((rtt..rtt + 0.25).contains(&first), "{first} s, {mine:?}");
            }
        }
    }
}
