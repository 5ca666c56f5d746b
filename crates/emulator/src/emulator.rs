//! Links with their devices, and everything that a run of them needs.
//!
//! [`event_loop`] runs them, [`transfer`] moves packets, [`apply`] changes links and
//! [`certify`] tells what came of it, all on one thread.

mod direction_state;
mod link;
mod event_loop;
mod transfer;
mod apply;
mod certify;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use bentpipe_link::Seeds;
use bentpipe_link::spec::DirectionSpec;
use bentpipe_units::{Span, Time};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use self::link::Link;
use crate::address::UnreachableEnds;
use crate::capture::Capture;
use crate::control::ControlHandle;
use crate::direction::DirectionId;
use crate::link_update::AppliedChange;
use crate::packet_log::PacketLog;
use crate::pool::Pool;
use crate::record::Recorder;
use crate::schedule::{self, Schedule};
use bentpipe_os::namespace::Namespace;
use bentpipe_os::segment;
use bentpipe_os::tun::{TunError, TunSpec};

/// Memory for packets that is there before the first one comes.
const PREALLOCATED: usize = 8 << 20;
/// The control handle's mark among the events; directions have their index.
const CONTROL: u64 = u64::MAX;

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
pub struct LinkPlan {
    /// What the certificate calls it.
    pub name: String,
    /// The end towards the user; of a ground hop, the gateway.
    pub terminal: End,
    /// The end towards the servers; of a ground hop, the server.
    pub gateway: End,
    /// From gateway to terminal.
    pub forward: DirectionSpec,
    /// From terminal to gateway.
    pub r#return: DirectionSpec,
    /// When the terminal gets its next addresses: at the scenario's switches.
    pub new_address_at: Vec<Span>,
    /// What the two directions draw from.
    pub seeds: Seeds,
}

/// Why links cannot run.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// The two ends of a link could not reach each other.
    #[error(transparent)]
    Addresses(#[from] UnreachableEnds),
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
    links: Vec<Link>,
    schedule: Schedule,
    /// What was done to the links so far, and how much of it before this interval.
    changes: Vec<AppliedChange>,
    changes_before: usize,
    /// What went wrong apart from lateness.
    doubts: Vec<String>,
    pool: Pool,
    /// What is read goes here, and what is cut from it there.
    large: Vec<u8>,
    packets: Vec<Vec<u8>>,
    epoll: OwnedFd,
    control: ControlHandle,
    namespaces: Vec<Namespace>,
    log: PacketLog,
}

impl Emulator {
    /// Makes every device. `limit` is the lateness that one packet in a thousand may exceed.
    pub fn create(
        scenario: &str,
        limit: Span,
        plans: Vec<LinkPlan>,
    ) -> Result<Self, EmulatorError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let control = ControlHandle::new().map_err(EmulatorError::Wait)?;
        let mark = EventData::new_u64(CONTROL);
        epoll::add(&epoll, control.wake(), mark, EventFlags::IN)?;
        let mut namespaces = Vec::new();
        let mut links = Vec::new();
        let mut schedule = Schedule::default();
        for (number, plan) in plans.into_iter().enumerate() {
            let (forward, back) = (&plan.forward.change, &plan.r#return.change);
            for (at, planned) in schedule::planned(number, forward, back, &plan.new_address_at) {
                schedule.add(Time::ZERO + at, planned);
            }
            links.push(Link::create(&plan)?);
            namespaces.extend([plan.gateway.namespace, plan.terminal.namespace]);
        }
        for id in DirectionId::all(links.len()) {
            let mark = EventData::new_u64(id.index() as u64);
            epoll::add(&epoll, links[id.link].input(id.name), mark, EventFlags::IN)?;
        }
        // One byte more than the longest packet, so that a longer one shows.
        let room = links.iter().map(|link| link.mtu).max().unwrap_or(0) + 1;
        Ok(Self {
            scenario: scenario.to_owned(),
            limit,
            links,
            schedule,
            changes: Vec::new(),
            changes_before: 0,
            doubts: Vec::new(),
            pool: Pool::new(room, PREALLOCATED / room),
            large: vec![0xff; segment::LONGEST],
            packets: Vec::with_capacity(64),
            epoll,
            control,
            namespaces,
            log: PacketLog::default(),
        })
    }

    /// A handle on the run.
    pub fn control(&self) -> ControlHandle {
        self.control.clone()
    }

    /// Writes down the packets themselves, as pcapng, and with them the keys that programs
    /// log at `keys` (NSS key log format) while it runs.
    pub fn capture(&mut self, file: File, keys: Option<PathBuf>) -> io::Result<()> {
        self.keep_drops();
        let names = self.names();
        self.log.capture = Some(Capture::new(file, &self.scenario, &names, keys)?);
        Ok(())
    }

    /// Writes down what becomes of each packet.
    pub fn record(&mut self, file: File) -> io::Result<()> {
        self.keep_drops();
        let names = self.names();
        self.log.recorder = Some(Recorder::new(file, &self.scenario, names)?);
        Ok(())
    }

    /// The namespaces that the devices are in. The devices keep them alive; whether
    /// they still have their names is for the caller to watch.
    pub fn take_namespaces(&mut self) -> Vec<Namespace> {
        std::mem::take(&mut self.namespaces)
    }

    fn names(&self) -> Vec<String> {
        self.links.iter().map(|link| link.name.clone()).collect()
    }

    fn keep_drops(&mut self) {
        for link in &mut self.links {
            link.forward.model.keep_drops();
            link.r#return.model.keep_drops();
        }
    }
}
