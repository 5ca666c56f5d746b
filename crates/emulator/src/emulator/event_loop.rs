//! The event loop: it waits for packets, moments and requests, and decides nothing.

use std::time::{Duration, Instant};

use bentpipe_units::{Span, Time};
use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::io::Errno;

use super::certify::{Before, MachineInterval, Period, stolen_since};
use super::direction_state::Window;
use super::{CONTROL, Emulator, EmulatorError};
use crate::certificate::{Busy, Certificate};
use crate::control::Request;
use crate::direction::DirectionId;
use crate::lateness::Distribution;
use crate::pace::{self, BusiestSecond, Load, Margin, Step};
use bentpipe_os::realtime::{self, Granted};

/// A call that sleeps takes longer than this; one that does not, less.
const SLEPT: Span = Span::from_nanos(3_000);

/// The time of the run: nanoseconds since it began.
pub(super) struct Clock(Instant);

impl Clock {
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Emulator {
    /// Runs the links on the calling thread until `duration` has passed or
    /// [`ControlHandle::stop`](crate::ControlHandle::stop) is called, and removes the devices.
    pub fn run(mut self, duration: Option<Span>) -> Result<Certificate, EmulatorError> {
        let (granted, mut cpu_latency) = Granted::claim();
        for refused in &granted.refused {
            tracing::warn!("lateness may suffer: {refused}");
        }
        let stolen_before = realtime::stolen();
        let mut interval = MachineInterval {
            since: Time::ZERO,
            stolen_before,
            wakes: Distribution::new(),
            busiest: BusiestSecond::new(Time::ZERO, processor_time()),
        };
        let clock = Clock(Instant::now());
        self.log.begin();
        let end = duration.map(|duration| Time::ZERO + duration);
        let mut before = Before {
            wakes: Distribution::new(),
            busiest_second: 0.0,
        };
        let mut margin = Margin::default();
        let mut load = Load::new(Time::ZERO, processor_time());
        let mut events = Vec::with_capacity(8);
        let mut fault = None;
        // Since when a packet that comes in would have been waiting.
        let mut attended = Time::ZERO;
        'run: loop {
            let due = self.due().into_iter().chain(cpu_latency.ends());
            let now = clock.now();
            let step = pace::next(now, due.min(), end, load.mode(margin.span()));
            let sleep = match step {
                Step::End => break,
                Step::Go => {
                    self.apply_planned(now);
                    if self.depart(&clock) {
                        cpu_latency.packet(now);
                    }
                    cpu_latency.look(now);
                    Some(Span::ZERO)
                }
                Step::Watch => {
                    // Other emulators may have this processor, too, and what they are to do now.
                    if granted.fifo {
                        rustix::thread::sched_yield();
                    }
                    Some(Span::ZERO)
                }
                Step::Sleep(span) => Some(span),
                Step::Rest(span) => {
                    std::thread::sleep(span.as_duration());
                    Some(Span::ZERO)
                }
                Step::Wait => None,
            };
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                sleep.map(timespec).as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let woke = clock.now();
            // A packet that came in during a sleep ended it; during anything else it waited.
            let asleep = matches!(step, Step::Sleep(_) | Step::Wait) && woke.since(now) > SLEPT;
            let since = if asleep { woke } else { attended };
            if load.wants(woke) {
                let used = processor_time();
                load.learn(woke, used);
                interval.busiest.learn(woke, used);
            }
            if let (Step::Sleep(span), true) = (step, events.is_empty()) {
                let late = woke.since(now + span);
                interval.wakes.record(late);
                margin.learn(late);
            }
            attended = woke;
            for event in &events {
                let mark = event.data.u64();
                if mark == CONTROL {
                    if self.answer(&clock, &granted, &mut interval, &mut before) {
                        break 'run;
                    }
                    continue;
                }
                cpu_latency.packet(woke);
                let id = DirectionId::at(usize::try_from(mark).expect("it was an index"));
                if let Err(errno) = self.take(id, since, &clock) {
                    let tun = self.links[id.link].input(id.name);
                    fault = Some(format!(
                        "the device {} in {} has vanished: {errno}",
                        tun.device(),
                        tun.namespace()
                    ));
                    break 'run;
                }
            }
        }
        let until = clock.now();
        granted.yield_priority();
        self.record_drops();
        self.end_interval();
        before.absorb(&mut interval);
        let period = Period {
            since: Time::ZERO,
            until,
            wakes: before.wakes.quantiles(),
            busy: Busy {
                busiest_second: before.busiest_second,
                real_time_limit: granted.real_time_limit,
            },
            stolen: stolen_since(stolen_before),
            fault,
        };
        let mut certificate = self.certify(Window::Run, &granted, period);
        for incomplete in self.log.finish() {
            certificate = certificate.doubted(incomplete);
        }
        Ok(certificate)
    }

    /// When the next packet leaves a link, or something is scheduled.
    fn due(&self) -> Option<Time> {
        self.links
            .iter()
            .flat_map(|link| [&link.forward, &link.r#return])
            .filter_map(|state| state.model.poll_timeout())
            .chain(self.schedule.next())
            .min()
    }

    /// Does what it has been asked for; `true`: to end.
    fn answer(
        &mut self,
        clock: &Clock,
        granted: &Granted,
        interval: &mut MachineInterval,
        before: &mut Before,
    ) -> bool {
        for request in self.control.take() {
            // Whoever has asked may have gone since: sending may fail.
            match request {
                Request::Stop => return true,
                Request::Status(sender) => {
                    self.log.hand_over();
                    let _ = sender.send(self.status());
                }
                Request::Update(updates, sender) => {
                    let _ = sender.send(self.update(clock.now(), updates));
                }
                Request::Changes(sender) => {
                    let _ = sender.send(self.changes.clone());
                }
                Request::Interval(sender) => {
                    let wakes = interval.wakes.quantiles();
                    let busiest_second = before.absorb(interval);
                    let period = Period {
                        since: interval.since,
                        until: clock.now(),
                        wakes,
                        busy: Busy {
                            busiest_second,
                            real_time_limit: granted.real_time_limit,
                        },
                        stolen: stolen_since(interval.stolen_before),
                        fault: None,
                    };
                    interval.since = period.until;
                    interval.stolen_before = realtime::stolen();
                    let _ = sender.send(self.certify(Window::Interval, granted, period));
                    self.end_interval();
                }
            }
        }
        false
    }
}

/// Processor time that the calling thread has used.
fn processor_time() -> Span {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used)
        .ok()
        .and_then(|used| u64::try_from(used.as_nanos()).ok())
        .map_or(Span::ZERO, Span::from_nanos)
}

fn timespec(span: Span) -> Timespec {
    const SECOND: u64 = 1_000_000_000;
    let parts = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: parts(span.as_nanos() / SECOND),
        tv_nsec: parts(span.as_nanos() % SECOND),
    }
}
