//! The loop: it moves packets and decides nothing.

mod lane;
mod obey;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bentpipe_link::Seeds;
use bentpipe_link::scenario::DirectionSpec;
use bentpipe_units::{Span, Time};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use self::lane::{BEFORE, LAP, Lane};
use crate::capture::{Capture, Point};
use crate::certificate::{self, Certificate, LinkReport, Machine, Quantiles};
use crate::change::{self, Agenda, Changed, Task};
use crate::frame::Frame;
use crate::lateness::Distribution;
use crate::pace::{self, Load, Margin, Step};
use crate::pool::Pool;
use crate::record::{Fate, Record, Recorder};
use crate::remote::{Remote, Request, Sight};
use bentpipe_os::namespace::Namespace;
use bentpipe_os::realtime::{self, Granted};
use bentpipe_os::segment;
use bentpipe_os::tun::{Tun, TunError, TunSpec};

/// Packets to take from one device, or to give to one, before looking at the others.
const BATCH: usize = 16;
/// Memory for packets that is there before the first one comes.
const PREALLOCATED: usize = 8 << 20;
/// A call that sleeps takes longer than this; one that does not, less.
const SLEPT: Span = Span::from_nanos(3_000);

/// One end of a link: a device to be made in a namespace.
#[derive(Debug)]
pub struct End {
    /// Where.
    pub namespace: Namespace,
    /// What.
    pub tun: TunSpec,
}

/// A link to be run.
#[derive(Debug)]
pub struct Plan {
    /// What the certificate calls it.
    pub name: String,
    /// The end towards the user: the terminal.
    pub near: End,
    /// The end towards the servers: the gateway.
    pub far: End,
    /// From the far end to the near one.
    pub forward: DirectionSpec,
    /// From the near end to the far one.
    pub r#return: DirectionSpec,
    /// When the near end gets its next addresses: at the scenario's switches.
    pub new_address_at: Vec<Span>,
    /// What the two directions draw from.
    pub seeds: Seeds,
}

/// Why links cannot run.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// A device cannot be had.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The system refuses what every Linux since 5.11 can do.
    #[error("cannot wait for packets: {0}")]
    Wait(io::Error),
}

impl From<Errno> for EmulatorError {
    fn from(errno: Errno) -> Self {
        Self::Wait(errno.into())
    }
}

/// Links with their devices made, ready to run.
pub struct Emulator {
    scenario: String,
    limit: Span,
    ports: Vec<Port>,
    /// The lane that port `n` feeds is lane `n`.
    lanes: Vec<Lane>,
    names: Vec<String>,
    agenda: Agenda,
    /// What was done to the links so far, and how much of it before this lap.
    changes: Vec<Changed>,
    changes_before: usize,
    /// What went wrong apart from lateness.
    doubts: Vec<String>,
    pool: Pool,
    /// What is read goes here, and what is cut from it there.
    large: Vec<u8>,
    packets: Vec<Vec<u8>>,
    epoll: OwnedFd,
    remote: Remote,
    namespaces: Vec<Namespace>,
    recorder: Option<Recorder>,
    capture: Option<Capture>,
}

/// A device.
struct Port {
    tun: Tun,
    mtu: usize,
}

/// The stretch of a run that a certificate is for.
struct Stretch {
    since: Time,
    until: Time,
    wakes: Quantiles,
    stolen: Option<Span>,
    fault: Option<String>,
}

/// The remote's mark among the events; ports have their index.
const BELL: u64 = u64::MAX;

impl Emulator {
    /// Makes every device. `limit` is the lateness that one packet in a thousand may exceed.
    pub fn create(scenario: &str, limit: Span, plans: Vec<Plan>) -> Result<Self, EmulatorError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let remote = Remote::new().map_err(EmulatorError::Wait)?;
        epoll::add(
            &epoll,
            remote.bell(),
            EventData::new_u64(BELL),
            EventFlags::IN,
        )?;
        let mut namespaces = Vec::new();
        let (mut ports, mut lanes, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let mut agenda = Agenda::default();
        for plan in plans {
            let first = ports.len();
            // Port `first` is the far end: what comes out of it goes forward, to the near one.
            for (end, spec, out, seed) in [
                (&plan.far, &plan.forward, first + 1, plan.seeds.forward),
                (&plan.near, &plan.r#return, first, plan.seeds.r#return),
            ] {
                let tun = Tun::create(&end.namespace, &end.tun)?;
                epoll::add(
                    &epoll,
                    &tun,
                    EventData::new_u64(ports.len() as u64),
                    EventFlags::IN,
                )?;
                ports.push(Port {
                    tun,
                    mtu: end.tun.mtu as usize,
                });
                lanes.push(Lane::new(spec, seed, out));
            }
            let (forward, back) = (&plan.forward.change, &plan.r#return.change);
            for (at, planned) in change::planned(forward, back, &plan.new_address_at) {
                agenda.add(Time::ZERO + at, Task::Planned(names.len(), planned));
            }
            names.push(plan.name);
            namespaces.extend([plan.far.namespace, plan.near.namespace]);
        }
        // One byte more than the longest packet, so that a longer one shows.
        let room = ports.iter().map(|port| port.mtu).max().unwrap_or(0) + 1;
        Ok(Self {
            scenario: scenario.to_owned(),
            limit,
            ports,
            lanes,
            names,
            agenda,
            changes: Vec::new(),
            changes_before: 0,
            doubts: Vec::new(),
            pool: Pool::new(room, PREALLOCATED / room),
            large: vec![0xff; segment::LONGEST],
            packets: Vec::with_capacity(64),
            epoll,
            remote,
            namespaces,
            recorder: None,
            capture: None,
        })
    }

    /// A handle on the run.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Writes down the packets themselves, as pcapng, and with them the keys that programs
    /// log at `keys` (NSS key log format) while it runs.
    pub fn capture(&mut self, file: File, keys: Option<PathBuf>) -> io::Result<()> {
        self.keep_drops();
        self.capture = Some(Capture::new(file, &self.scenario, &self.names, keys)?);
        Ok(())
    }

    fn keep_drops(&mut self) {
        for lane in &mut self.lanes {
            lane.link.keep_drops();
        }
    }

    /// Writes down what becomes of each packet.
    pub fn record(&mut self, file: File) -> io::Result<()> {
        self.keep_drops();
        self.recorder = Some(Recorder::new(file, &self.scenario, &self.names)?);
        Ok(())
    }

    /// The namespaces that the devices are in. The devices keep them alive; whether
    /// they still have their names is for the caller to watch.
    pub fn take_namespaces(&mut self) -> Vec<Namespace> {
        std::mem::take(&mut self.namespaces)
    }

    /// Runs the links on the calling thread until `duration` has passed or
    /// [`Remote::stop`] is called, and removes the devices.
    pub fn run(mut self, duration: Option<Span>) -> Result<Certificate, EmulatorError> {
        let (granted, mut vigil) = Granted::claim();
        for refused in &granted.refused {
            tracing::warn!("lateness may suffer: {refused}");
        }
        let stolen_before = realtime::stolen();
        let mut lap = Lap {
            since: Time::ZERO,
            stolen_before,
            wakes: Distribution::new(),
        };
        let clock = Clock(Instant::now());
        if let Some(capture) = &mut self.capture {
            capture.begin();
        }
        let end = duration.map(|duration| Time::ZERO + duration);
        let mut wakes = Distribution::new();
        let mut margin = Margin::default();
        let mut load = Load::new(Time::ZERO, processor_time());
        let mut events = Vec::with_capacity(8);
        let mut fault = None;
        // Since when a packet that comes in would have been waiting.
        let mut attended = Time::ZERO;
        'run: loop {
            let due = self
                .lanes
                .iter()
                .filter_map(|lane| lane.link.poll_timeout())
                .chain(self.agenda.next())
                .chain(vigil.ends());
            let now = clock.now();
            let step = pace::next(now, due.min(), end, load.mode(margin.span()));
            let nap = match step {
                Step::End => break,
                Step::Go => {
                    self.do_tasks(now);
                    if self.depart(&clock) {
                        vigil.packet(now);
                    }
                    vigil.look(now);
                    Some(Span::ZERO)
                }
                Step::Watch => Some(Span::ZERO),
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
                nap.map(timespec).as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let woke = clock.now();
            // A packet that came in during a sleep ended it; during anything else it waited.
            let asleep = matches!(step, Step::Sleep(_) | Step::Wait) && woke.since(now) > SLEPT;
            let since = if asleep { woke } else { attended };
            if load.wants(woke) {
                load.learn(woke, processor_time());
            }
            if let (Step::Sleep(span), true) = (step, events.is_empty()) {
                let late = woke.since(now + span);
                lap.wakes.record(late);
                margin.learn(late);
            }
            attended = woke;
            for event in &events {
                if event.data.u64() == BELL {
                    if self.answer(&clock, &granted, &mut lap, &mut wakes) {
                        break 'run;
                    }
                    continue;
                }
                vigil.packet(woke);
                let port = usize::try_from(event.data.u64()).expect("it was an index");
                if let Err(errno) = self.take(port, since, &clock) {
                    let tun = &self.ports[port].tun;
                    fault = Some(format!(
                        "the device {} in {} has vanished: {errno}",
                        tun.device(),
                        tun.namespace()
                    ));
                    break 'run;
                }
            }
        }
        self.bury();
        self.close_lap();
        wakes.absorb(&mut lap.wakes);
        let stretch = Stretch {
            since: Time::ZERO,
            until: clock.now(),
            wakes: wakes.quantiles(),
            stolen: stolen_since(stolen_before),
            fault,
        };
        self.lanes.iter_mut().for_each(Lane::open_run);
        self.changes_before = 0;
        let certificate = self.certify(BEFORE, &granted, stretch);
        let certificate = match self.recorder.map(Recorder::finish) {
            Some(Err(error)) => {
                certificate.doubted(format!("the records are not complete: {error}"))
            }
            _ => certificate,
        };
        Ok(match self.capture.map(Capture::finish) {
            Some(Err(error)) => {
                certificate.doubted(format!("the capture is not complete: {error}"))
            }
            _ => certificate,
        })
    }

    /// Does what it has been asked for; `true`: to end.
    fn answer(
        &mut self,
        clock: &Clock,
        granted: &Granted,
        lap: &mut Lap,
        wakes: &mut Distribution,
    ) -> bool {
        for request in self.remote.take() {
            // Whoever has asked may have gone since: sending may fail.
            match request {
                Request::Stop => return true,
                Request::Look(sender) => {
                    let _ = sender.send(self.sights());
                }
                Request::Change(orders, sender) => {
                    let _ = sender.send(self.change(clock.now(), orders));
                }
                Request::Changes(sender) => {
                    let _ = sender.send(self.changes.clone());
                }
                Request::Lap(sender) => {
                    let stretch = Stretch {
                        since: lap.since,
                        until: clock.now(),
                        wakes: lap.wakes.quantiles(),
                        stolen: stolen_since(lap.stolen_before),
                        fault: None,
                    };
                    lap.since = stretch.until;
                    lap.stolen_before = realtime::stolen();
                    wakes.absorb(&mut lap.wakes);
                    let _ = sender.send(self.certify(LAP, granted, stretch));
                    self.close_lap();
                }
            }
        }
        false
    }

    /// Begins the next lap.
    fn close_lap(&mut self) {
        self.changes_before = self.changes.len();
        for (lane, port) in self.lanes.iter_mut().zip(&mut self.ports) {
            lane.close_lap(port.tun.overflow().ok());
        }
    }

    fn sights(&self) -> Vec<Sight> {
        let directions = ["forward", "return"].into_iter().cycle();
        self.lanes
            .iter()
            .zip(directions)
            .enumerate()
            .map(|(index, (lane, direction))| Sight {
                link: self.names[index / 2].clone(),
                direction,
                counters: *lane.link.counters(),
                held: lane.link.held(),
                queue_bytes: lane.link.queue().bytes(),
                late_p99_us: lane.lateness[LAP].quantiles().p99,
            })
            .collect()
    }

    /// Takes packets from a port into its lane.
    fn take(&mut self, index: usize, since: Time, clock: &Clock) -> Result<(), Errno> {
        let mut taken = 0;
        while taken < BATCH {
            let read = match self.ports[index].tun.read(&mut self.large) {
                Ok(length) => &mut self.large[..length],
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            // Its own moment for each: a batch has not come in all at once.
            let now = clock.now();
            let (pool, packets) = (&mut self.pool, &mut self.packets);
            let cut = segment::segment(read, || pool.take(), |packet| packets.push(packet));
            if let Err(error) = cut {
                tracing::debug!("a packet that the kernel hands over: {error}");
                self.lanes[index].malformed += 1;
                taken += 1;
                continue;
            }
            taken += self.packets.len();
            self.enter(index, now, since);
        }
        Ok(())
    }

    /// Lets what was read at `now` enter its lane.
    fn enter(&mut self, index: usize, now: Time, since: Time) {
        let (port, lane) = (&self.ports[index], &mut self.lanes[index]);
        for bytes in self.packets.drain(..) {
            if bytes.len() > port.mtu {
                lane.oversized += 1;
                self.pool.give(bytes);
                continue;
            }
            lane.unread[LAP].record(now.since(since));
            if let Some(capture) = &mut self.capture {
                capture.add(now, index, Point::In, Fate::Delivered, &bytes);
            }
            let frame = Frame {
                bytes,
                entered: now,
                queue: lane.link.queue().bytes(),
            };
            if let Err(dropped) = lane.link.handle_arrival(now, frame) {
                let fate = Fate::Dropped(dropped.cause);
                if let Some(recorder) = &mut self.recorder {
                    recorder.add(&record(index, &dropped.packet, now, 0, fate));
                }
                if let Some(capture) = &mut self.capture {
                    capture.add(now, index, Point::Dropped, fate, &dropped.packet.bytes);
                }
                self.pool.give(dropped.packet.bytes);
            }
        }
    }

    /// Writes what is due, a batch at most from each lane; says whether there was any.
    fn depart(&mut self, clock: &Clock) -> bool {
        let mut departed = false;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let out = &self.ports[lane.out].tun;
            let mut now = clock.now();
            for _ in 0..BATCH {
                let Some(departure) = lane.link.poll_departure(now) else {
                    break;
                };
                departed = true;
                let mut fate = Fate::Delivered;
                if let Err(errno) = out.write(&departure.packet.bytes) {
                    fate = Fate::Unwritten;
                    lane.unwritten += 1;
                    lane.refusal = Some(errno);
                }
                now = clock.now();
                let late = now.since(departure.at);
                lane.lateness[LAP].record(late);
                if let Some(recorder) = &mut self.recorder {
                    let (packet, at) = (&departure.packet, departure.at);
                    recorder.add(&record(index, packet, at, late.as_nanos(), fate));
                }
                if let Some(capture) = &mut self.capture {
                    let point = match fate {
                        Fate::Delivered => Point::Out,
                        _ => Point::Dropped,
                    };
                    capture.add(now, index, point, fate, &departure.packet.bytes);
                }
                self.pool.give(departure.packet.bytes);
            }
        }
        self.bury();
        departed
    }

    /// Writes down what was dropped inside the links, if that is wanted.
    fn bury(&mut self) {
        if self.recorder.is_none() && self.capture.is_none() {
            return;
        }
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            while let Some(drop) = lane.link.poll_drop() {
                let fate = Fate::Dropped(drop.cause);
                if let Some(recorder) = &mut self.recorder {
                    recorder.add(&record(index, &drop.packet, drop.at, 0, fate));
                }
                if let Some(capture) = &mut self.capture {
                    capture.add(drop.at, index, Point::Dropped, fate, &drop.packet.bytes);
                }
                self.pool.give(drop.packet.bytes);
            }
        }
    }

    /// Certifies a stretch of the run: the current lap, or all of it.
    fn certify(&mut self, which: usize, granted: &Granted, stretch: Stretch) -> Certificate {
        let places: Vec<_> = self
            .ports
            .iter()
            .map(|port| format!("{}/{}", port.tun.namespace(), port.tun.device()))
            .collect();
        let mut report = |index: usize, name| {
            let lane = &self.lanes[index];
            let ends = (places[index].as_str(), places[lane.out].as_str());
            let overflow = self.ports[index].tun.overflow().ok();
            lane.report(which, name, ends, overflow)
        };
        let links: Vec<_> = self
            .names
            .iter()
            .enumerate()
            .map(|(link, name)| LinkReport {
                name: name.clone(),
                directions: [report(2 * link, "forward"), report(2 * link + 1, "return")],
            })
            .collect();
        let limit_us = self.limit.as_secs_f64() * 1e6;
        let mut reasons = certificate::reasons(limit_us, &links);
        reasons.extend(self.doubts.iter().cloned());
        reasons.extend(stretch.fault.clone());
        Certificate {
            schema: certificate::SCHEMA,
            scenario: self.scenario.clone(),
            valid: reasons.is_empty(),
            limit_us,
            reasons,
            since_s: stretch.since.since(Time::ZERO).as_secs_f64(),
            duration_s: stretch.until.since(stretch.since).as_secs_f64(),
            machine: Machine {
                granted: granted.clone(),
                wake_us: stretch.wakes,
                stolen_ms: stretch.stolen.map(|stolen| stolen.as_nanos() / 1_000_000),
            },
            links,
            changes: self.changes[self.changes_before..].to_vec(),
            fault: stretch.fault,
        }
    }
}

/// What belongs to the machine in the current lap.
struct Lap {
    since: Time,
    stolen_before: Option<Span>,
    wakes: Distribution,
}

/// Processor time that the hypervisor has taken since `before`.
fn stolen_since(before: Option<Span>) -> Option<Span> {
    let (now, before) = realtime::stolen().zip(before)?;
    Some(Span::from_nanos(
        now.as_nanos().saturating_sub(before.as_nanos()),
    ))
}

fn record(direction: usize, packet: &Frame, left: Time, late_ns: u64, fate: Fate) -> Record {
    Record {
        entered: packet.entered,
        left,
        late_ns,
        queue: packet.queue,
        length: packet.bytes.len(),
        direction,
        fate,
    }
}

/// The time of the run: nanoseconds since it began.
struct Clock(Instant);

impl Clock {
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
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
