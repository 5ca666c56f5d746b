//! The transmitter: what it sends when, one kind of rate per file.
//!
//! Packets leave one by one (`serial`: `constant`, `trace`, `opportunities`) or cut into
//! frames (`framed`, with `leaving`: `dvb_s2`, `dvb_rcs2`, with what `modcod` and `acm` allow and
//! `encapsulate` cuts).

pub mod modcod;
mod acm;
pub mod encapsulate;
pub mod constant;
mod trace;
mod opportunities;
mod serial;
pub mod dvb_s2;
pub mod dvb_rcs2;
mod leaving;
mod framed;
mod ceiling;

use bentpipe_units::{Rate, Time};

use crate::accounting::Accounting;
use crate::block::TransmitterGate;
use crate::counters::Cause;
use crate::entry::{Entry, Sent};
use crate::impair::Impairments;
use crate::packet::Packet;
use crate::queue::Queue;
use crate::spec::{DirectionSpec, RateSpec};
use framed::Framed;
use serial::{Clock, Serial};

/// The transmitter of one direction.
#[derive(Debug)]
pub(crate) enum Transmitter<P> {
    Serial(Serial<P>),
    Framed(Box<Framed<P>>),
}

impl<P: Packet> Transmitter<P> {
    /// For `spec.rate`.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        let clock = match &spec.rate {
            RateSpec::Constant(rate) => Clock::Constant(constant::Clock::new(*rate)),
            RateSpec::Trace(rates) => Clock::Trace(trace::Clock::new(rates.clone())),
            RateSpec::Mahimahi(moments) => {
                Clock::Opportunities(opportunities::Clock::new(moments.clone()))
            }
            RateSpec::DvbS2(carrier) => {
                let carrier = dvb_s2::Carrier::new(carrier, seed);
                return Self::Framed(Box::new(Framed::dvb_s2(carrier, spec.resequence)));
            }
            RateSpec::DvbRcs2(terminal) => {
                let terminal = dvb_rcs2::Terminal::new(terminal, seed);
                return Self::Framed(Box::new(Framed::dvb_rcs2(terminal, spec.resequence)));
            }
        };
        Self::Serial(Serial::new(clock))
    }

    /// When it does something next.
    pub fn next(&self) -> Option<Time> {
        match self {
            Self::Serial(serial) => serial.next(),
            Self::Framed(framed) => framed.next(),
        }
    }

    /// Whether packets have left, and are held by the receiver behind a missing frame.
    pub fn holds(&self) -> bool {
        match self {
            Self::Serial(_) => false,
            Self::Framed(framed) => framed.holds(),
        }
    }

    /// Packets inside that are to come out.
    pub fn ours(&self) -> usize {
        match self {
            Self::Serial(serial) => serial.ours(),
            Self::Framed(framed) => framed.ours(),
        }
    }

    /// Takes a packet that comes in, or has it wait in `queue`.
    pub fn enter(
        &mut self,
        now: Time,
        entry: Entry<P>,
        queue: &mut Queue<P>,
        accounting: &mut Accounting<P>,
        gate: &TransmitterGate,
    ) -> Result<(), (Cause, Entry<P>)> {
        match self {
            // An idle transmitter takes the packet at once: it never waits.
            Self::Serial(serial) if serial.is_idle() => {
                serial.start(now, entry, gate);
                Ok(())
            }
            Self::Serial(_) => queue.push(now, entry, accounting),
            Self::Framed(framed) => {
                queue.push(now, entry, accounting)?;
                framed.kick(now, gate);
                Ok(())
            }
        }
    }

    /// Does what it does at `at`; a packet may leave.
    pub fn step(
        &mut self,
        at: Time,
        queue: &mut Queue<P>,
        accounting: &mut Accounting<P>,
        impair: &mut Impairments,
        gate: &TransmitterGate,
    ) -> Option<Sent<P>> {
        match self {
            Self::Serial(serial) => serial.step(at, queue, accounting, gate),
            Self::Framed(framed) => framed.step(at, queue, accounting, impair, gate),
        }
    }

    /// A constant rate from now on, whatever sent before.
    pub fn set_rate(
        &mut self,
        at: Time,
        rate: Rate,
        queue: &mut Queue<P>,
        accounting: &mut Accounting<P>,
        gate: &TransmitterGate,
    ) {
        match self {
            Self::Serial(serial) => serial.set_rate(rate),
            Self::Framed(framed) => {
                for entry in framed.evict() {
                    accounting.drop(at, entry, Cause::Switch);
                }
                let mut serial = Serial::new(Clock::Constant(constant::Clock::new(rate)));
                if let Some(first) = queue.pop(at, accounting) {
                    serial.start(at, first, gate);
                }
                *self = Self::Serial(serial);
            }
        }
    }

    /// Gives up everything inside.
    pub fn evict(&mut self) -> Vec<Entry<P>> {
        match self {
            Self::Serial(serial) => serial.evict().into_iter().collect(),
            Self::Framed(framed) => framed.evict(),
        }
    }
}
