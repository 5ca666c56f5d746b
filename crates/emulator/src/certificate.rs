//! The certificate of a run, which says whether to trust it: what became of the packets, and how punctual the machine was.

use std::fmt;

use bentpipe_link::Counters;
use bentpipe_units::Span;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::direction::DirectionName;
pub use crate::lateness::Quantiles;
use crate::link_update::AppliedChange;
use bentpipe_os::realtime::Granted;

/// What a run amounted to. A run whose certificate is not valid is repeated, not averaged.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Certificate {
    /// Names this form of the certificate.
    pub schema: &'static str,
    /// The scenario's name.
    pub scenario: String,
    /// Whether the machine kept up with the model.
    pub valid: bool,
    /// Lateness that one packet in a thousand may exceed, microseconds.
    pub limit_us: f64,
    /// Why it is not valid; empty when it is.
    pub reasons: Vec<String>,
    /// When the time that it certifies began, since the run did.
    pub since_s: f64,
    /// How long the links ran in that time.
    pub duration_s: f64,
    /// What the machine granted, and how punctual it was.
    pub machine: Machine,
    /// Every link that ran.
    pub links: Vec<LinkReport>,
    /// What changed about the links in that time, from outside or as the scenario plans it,
    /// in order.
    pub changes: Vec<AppliedChange>,
    /// What ended the run before its time, if anything did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// The machine under the run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Machine {
    /// What it granted.
    #[serde(flatten)]
    pub granted: Granted,
    /// How late it ended the emulator's sleeps.
    pub wake_us: Quantiles,
    /// How busy the emulator's thread was.
    #[serde(flatten)]
    pub busy: Busy,
    /// Processor time that the hypervisor took for itself meanwhile, of all processors
    /// together and in steps of the system's clock tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stolen_ms: Option<u64>,
}

/// How busy the emulator's thread was, in parts of one processor.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct Busy {
    /// In the busiest second.
    pub busiest_second: f64,
    /// Where the kernel stops real-time threads for the rest of a second
    /// (`sched_rt_runtime_us`); nothing where it does not, or the thread is none.
    pub real_time_limit: Option<f64>,
}

impl Busy {
    /// The least that is left below the limit.
    const MARGIN: f64 = 0.03;

    /// Why it is not to be trusted, if it is not.
    pub(super) fn reason(&self) -> Option<String> {
        let limit = self.real_time_limit?;
        (self.busiest_second > limit - Self::MARGIN).then(|| {
            format!(
                "the emulator took {:.0} % of a processor in its busiest second, and the kernel stops real-time threads at {:.0} % (sched_rt_runtime_us): run fewer links or lower rates at once, or lift the limit with `sysctl kernel.sched_rt_runtime_us=-1`",
                self.busiest_second * 100.0,
                limit * 100.0
            )
        })
    }
}

/// One link: two directions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// Forward, then return.
    pub directions: [DirectionReport; 2],
}

/// One direction of a link.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DirectionReport {
    /// Which one.
    pub name: DirectionName,
    /// Where packets came in: namespace and device.
    pub from: String,
    /// Where they came out: namespace and device.
    pub to: String,
    /// What became of them in the model.
    #[serde(flatten)]
    pub counters: Counters,
    /// Packets inside the model at the end.
    pub held: u64,
    /// How long after the model's moment each packet was through to the other side.
    pub lateness_us: Quantiles,
    /// How long packets may have waited for the emulator to take them while it was
    /// busy: an upper bound, over what came in.
    pub unread_us: Quantiles,
    /// Packets that the kernel dropped before the emulator could take them; nothing
    /// when it could not be asked.
    pub overflow: Option<u64>,
    /// Packets that the model delivered and the other side's stack refused.
    pub unwritten: u64,
    /// What it said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Packets longer than the device's MTU; they did not enter.
    pub oversized: u64,
    /// Packets that the kernel handed over and that are not what their headers say; they
    /// did not enter.
    pub malformed: u64,
}

/// The form of the certificate that this version writes.
pub const SCHEMA: &str = "bentpipe/certificate/1";

/// JSON Schema of a certificate.
pub fn schema() -> Schema {
    schemars::schema_for!(Certificate)
}

/// One packet in a thousand may be later than 1 ms, or than 0.5 % of the round-trip
/// time where that is more: below it, lateness hides in any real link's jitter.
pub fn limit(rtt: Span) -> Span {
    Span::from_nanos(rtt.as_nanos() / 200).max(Span::from_millis(1))
}

/// Why a run over `links` is not to be trusted; nothing when it is.
pub(super) fn reasons(limit_us: f64, links: &[LinkReport]) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut directions = links.iter().flat_map(|link| &link.directions);
    if directions.all(|direction| direction.counters.entered == 0) {
        reasons.push("no packet has come in: there is nothing to certify".to_owned());
    }
    for link in links {
        for direction in &link.directions {
            let mut because =
                |why: String| reasons.push(format!("{} {}: {why}", link.name, direction.name));
            let late = direction.lateness_us.p999;
            if late > limit_us {
                because(format!(
                    "p99.9 lateness {}, limit {}",
                    span(late),
                    span(limit_us)
                ));
            }
            let unread = direction.unread_us.p999;
            if unread > limit_us {
                because(format!(
                    "packets waited {} (p99.9) to be read, limit {}",
                    span(unread),
                    span(limit_us)
                ));
            }
            match direction.overflow {
                Some(0) => {}
                Some(lost) => because(format!(
                    "{lost} packets overflowed the kernel's queue at {} before the model saw them",
                    direction.from
                )),
                None => because(format!(
                    "the statistics of {} cannot be read any more",
                    direction.from
                )),
            }
            if direction.unwritten > 0 {
                because(format!(
                    "{} refused {} packets: {}",
                    direction.to,
                    direction.unwritten,
                    direction.refusal.as_deref().unwrap_or("no reason given")
                ));
            }
            if direction.oversized > 0 {
                because(format!(
                    "{} packets longer than the MTU came from {}",
                    direction.oversized, direction.from
                ));
            }
            if direction.malformed > 0 {
                because(format!(
                    "{} handed over {} packets that are not what their headers say",
                    direction.from, direction.malformed
                ));
            }
        }
    }
    reasons
}

/// Microseconds as people read them.
fn span(micros: f64) -> String {
    if micros >= 10_000.0 {
        format!("{:.1} ms", micros / 1000.0)
    } else if micros >= 1000.0 {
        format!("{:.2} ms", micros / 1000.0)
    } else if micros >= 10.0 {
        format!("{micros:.0} us")
    } else {
        format!("{micros:.1} us")
    }
}

impl Certificate {
    /// The same certificate of a run that something from outside has ended.
    pub fn spoilt(self, fault: String) -> Self {
        let mut spoilt = self.doubted(fault.clone());
        spoilt.fault = Some(fault);
        spoilt
    }

    /// The same certificate with one more reason not to trust it.
    pub(super) fn doubted(mut self, reason: String) -> Self {
        self.valid = false;
        self.reasons.push(reason);
        self
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.valid { "valid" } else { "INVALID" };
        writeln!(
            out,
            "certificate: {}, {verdict}, {:.1} s, lateness limit {}",
            self.scenario,
            self.duration_s,
            span(self.limit_us)
        )?;
        for reason in &self.reasons {
            writeln!(out, "  because {reason}")?;
        }
        writeln!(
            out,
            "{:<18}{:>12}{:>12}{:>10}{:>8}   {:>9}{:>9}{:>9}{:>9}",
            "", "entered", "delivered", "dropped", "held", "late p50", "p99", "p99.9", "worst"
        )?;
        for link in &self.links {
            for direction in &link.directions {
                let counters = &direction.counters;
                let late = &direction.lateness_us;
                write!(
                    out,
                    "{:<18}{:>12}{:>12}{:>10}{:>8}   {:>9}{:>9}{:>9}{:>9}",
                    format!("{} {}", link.name, direction.name),
                    counters.entered,
                    counters.delivered,
                    counters.dropped.total(),
                    direction.held,
                    span(late.p50),
                    span(late.p99),
                    span(late.p999),
                    span(late.worst)
                )?;
                let causes: Vec<_> = counters
                    .dropped
                    .iter()
                    .filter(|(_, count)| *count > 0)
                    .map(|(cause, count)| format!("{} {count}", cause.name()))
                    .collect();
                if causes.is_empty() {
                    writeln!(out)?;
                } else {
                    writeln!(out, "   dropped: {}", causes.join(", "))?;
                }
            }
        }
        for change in &self.changes {
            writeln!(out, "changed at {change}")?;
        }
        write!(
            out,
            "machine: {}, {:.0} % of a processor in the busiest second, sleeps end {} late (p50), {} (p99)",
            self.machine.granted,
            self.machine.busy.busiest_second * 100.0,
            span(self.machine.wake_us.p50),
            span(self.machine.wake_us.p99)
        )?;
        match self.machine.stolen_ms {
            None | Some(0) => writeln!(out),
            Some(stolen) => writeln!(out, ", {stolen} ms taken by the hypervisor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn punctual() -> Quantiles {
        Quantiles {
            p50: 10.0,
            p99: 50.0,
            p999: 900.0,
            worst: 20_000.0,
        }
    }

    fn direction(name: DirectionName) -> DirectionReport {
        DirectionReport {
            name,
            from: "gw/sat0".into(),
            to: "term/sat0".into(),
            counters: Counters {
                entered: 100,
                delivered: 100,
                ..Counters::default()
            },
            held: 0,
            lateness_us: punctual(),
            unread_us: punctual(),
            overflow: Some(0),
            unwritten: 0,
            refusal: None,
            oversized: 0,
            malformed: 0,
        }
    }

    fn links(change: impl FnOnce(&mut DirectionReport)) -> Vec<LinkReport> {
        let mut forward = direction(DirectionName::Forward);
        change(&mut forward);
        vec![LinkReport {
            name: "satellite".into(),
            directions: [forward, direction(DirectionName::Return)],
        }]
    }

    #[test]
    fn the_limit_is_a_millisecond_or_half_a_percent_of_the_round_trip() {
        assert_eq!(limit(Span::from_millis(32)), Span::from_millis(1));
        assert_eq!(limit(Span::from_millis(500)), Span::from_nanos(2_500_000));
    }

    #[test]
    fn a_punctual_run_has_nothing_against_it_whatever_its_worst_packet() {
        assert_eq!(reasons(1000.0, &links(|_| ())), Vec::<String>::new());
    }

    #[test]
    fn a_second_that_the_kernel_may_have_cut_short_is_a_reason() {
        let busy = |busiest_second, real_time_limit| Busy {
            busiest_second,
            real_time_limit,
        };
        assert_eq!(busy(0.90, Some(0.95)).reason(), None);
        assert_eq!(busy(0.99, None).reason(), None);
        let reason = busy(0.94, Some(0.95)).reason().unwrap();
        assert!(
            reason.contains("94 %") && reason.contains("sched_rt_runtime_us"),
            "{reason}"
        );
    }

    #[test]
    fn the_schema_names_every_field_of_a_direction() {
        let schema = schema();
        let direction = &schema.get("$defs").unwrap()["DirectionReport"]["properties"];
        let written = serde_json::to_value(direction_report()).unwrap();
        for field in written.as_object().unwrap().keys() {
            assert!(
                direction.get(field).is_some(),
                "{field} is not in {direction}"
            );
        }
    }

    fn direction_report() -> DirectionReport {
        direction(DirectionName::Forward)
    }

    #[test]
    fn nothing_is_certified_where_nothing_came_in() {
        let mut links = links(|_| ());
        links[0].directions[0].counters = Counters::default();
        assert_eq!(reasons(1000.0, &links), Vec::<String>::new());
        links[0].directions[1].counters = Counters::default();
        let reasons = reasons(1000.0, &links);
        assert!(reasons[0].contains("no packet"), "{reasons:?}");
    }

    #[test]
    fn each_failing_is_a_reason_that_names_its_place() {
        type Change = fn(&mut DirectionReport);
        let cases: [(Change, &str); 7] = [
            (
                |d| d.lateness_us.p999 = 1001.0,
                "satellite forward: p99.9 lateness 1.00 ms, limit 1.00 ms",
            ),
            (
                |d| d.unread_us.p999 = 2600.0,
                "satellite forward: packets waited 2.60 ms (p99.9) to be read, limit 1.00 ms",
            ),
            (
                |d| d.overflow = Some(3),
                "satellite forward: 3 packets overflowed the kernel's queue at gw/sat0 before the model saw them",
            ),
            (
                |d| d.overflow = None,
                "satellite forward: the statistics of gw/sat0 cannot be read any more",
            ),
            (
                |d| {
                    d.unwritten = 2;
                    d.refusal = Some("Input/output error".into());
                },
                "satellite forward: term/sat0 refused 2 packets: Input/output error",
            ),
            (
                |d| d.oversized = 1,
                "satellite forward: 1 packets longer than the MTU came from gw/sat0",
            ),
            (
                |d| d.malformed = 4,
                "satellite forward: gw/sat0 handed over 4 packets that are not what their headers say",
            ),
        ];
        for (change, reason) in cases {
            assert_eq!(reasons(1000.0, &links(change)), [reason]);
        }
    }
}
