//! Certificates of a run and of intervals of it, and its status while it goes on.

use bentpipe_units::{Span, Time};

use super::Emulator;
use super::direction_state::Window;
use super::link::Transfer;
use crate::certificate::{self, Busy, Certificate, LinkReport, Machine, Quantiles};
use crate::control::DirectionStatus;
use crate::direction::{DirectionId, DirectionName};
use crate::lateness::Distribution;
use crate::pace::BusiestSecond;
use bentpipe_os::realtime::{self, Granted};

/// What belongs to the machine in the current interval.
pub(super) struct MachineInterval {
    pub since: Time,
    pub stolen_before: Option<Span>,
    pub wakes: Distribution,
    pub busiest: BusiestSecond,
}

/// What belonged to the machine in the intervals before.
pub(super) struct Before {
    pub wakes: Distribution,
    pub busiest_second: f64,
}

impl Before {
    /// Takes over what the interval has so far; gives the share of its busiest second.
    pub fn absorb(&mut self, interval: &mut MachineInterval) -> f64 {
        self.wakes.absorb(&mut interval.wakes);
        let busiest = interval.busiest.take();
        self.busiest_second = self.busiest_second.max(busiest);
        busiest
    }
}

/// The part of a run that a certificate is for.
pub(super) struct Period {
    pub since: Time,
    pub until: Time,
    pub wakes: Quantiles,
    pub busy: Busy,
    pub stolen: Option<Span>,
    pub fault: Option<String>,
}

impl Emulator {
    /// How every direction is doing, in the certificate's order.
    pub(super) fn status(&self) -> Vec<DirectionStatus> {
        DirectionId::all(self.links.len())
            .map(|id| {
                let link = &self.links[id.link];
                let state = link.state(id.name);
                DirectionStatus {
                    link: link.name.clone(),
                    direction: id.name,
                    counters: *state.model.counters(),
                    held: state.model.held(),
                    queue_bytes: state.model.queue().bytes(),
                    late_p99_us: state.lateness.quantiles(Window::Interval).p99,
                }
            })
            .collect()
    }

    /// Begins the next interval.
    pub(super) fn end_interval(&mut self) {
        self.changes_before = self.changes.len();
        for id in DirectionId::all(self.links.len()) {
            let Transfer { state, input, .. } = self.links[id.link].transfer(id.name);
            state.end_interval(input.overflow().ok());
        }
    }

    /// Certifies the current interval, or after the last one the whole run.
    pub(super) fn certify(
        &mut self,
        window: Window,
        granted: &Granted,
        period: Period,
    ) -> Certificate {
        let links: Vec<_> = self
            .links
            .iter_mut()
            .map(|link| LinkReport {
                name: link.name.clone(),
                directions: DirectionName::BOTH.map(|name| {
                    let transfer = link.transfer(name);
                    let ends = [&*transfer.input, &*transfer.output]
                        .map(|tun| format!("{}/{}", tun.namespace(), tun.device()));
                    let overflow = transfer.input.overflow().ok();
                    transfer.state.report(window, name, ends, overflow)
                }),
            })
            .collect();
        let limit_us = self.limit.as_secs_f64() * 1e6;
        let mut reasons = certificate::reasons(limit_us, &links);
        reasons.extend(period.busy.reason());
        reasons.extend(self.doubts.iter().cloned());
        reasons.extend(period.fault.clone());
        let changes_before = match window {
            Window::Interval => self.changes_before,
            Window::Run => 0,
        };
        Certificate {
            schema: certificate::SCHEMA,
            scenario: self.scenario.clone(),
            valid: reasons.is_empty(),
            limit_us,
            reasons,
            since_s: period.since.since(Time::ZERO).as_secs_f64(),
            duration_s: period.until.since(period.since).as_secs_f64(),
            machine: Machine {
                granted: granted.clone(),
                wake_us: period.wakes,
                busy: period.busy,
                stolen_ms: period.stolen.map(|stolen| stolen.as_nanos() / 1_000_000),
            },
            links,
            changes: self.changes[changes_before..].to_vec(),
            fault: period.fault,
        }
    }
}

/// Processor time that the hypervisor has taken since `before`.
pub(super) fn stolen_since(before: Option<Span>) -> Option<Span> {
    let (now, before) = realtime::stolen().zip(before)?;
    Some(Span::from_nanos(
        now.as_nanos().saturating_sub(before.as_nanos()),
    ))
}
