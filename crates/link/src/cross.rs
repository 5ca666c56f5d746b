//! Cross traffic: somebody else's packets in the same queue.

use bentpipe_units::Time;

use crate::entry::{Entry, Load};
use crate::on_off::OnOffPeriods;
use crate::random::{self, Stage};
use crate::spec::Cross;
use crate::transmit::constant::Clock;

/// One source: constant bit rate, always or with pauses.
#[derive(Debug)]
pub(crate) struct Source {
    spec: Cross,
    number: u32,
    /// When the next packet comes, `None` after the last.
    next: Option<Time>,
    clock: Clock,
    periods: OnOffPeriods,
}

impl Source {
    pub fn new(spec: Cross, number: u32, seed: u64) -> Self {
        let random = random::numbered(seed, Stage::Cross, u64::from(number));
        let mut periods = OnOffPeriods::new(spec.on_off(), random);
        Self {
            clock: Clock::new(spec.rate),
            next: periods.next(Time::ZERO),
            periods,
            spec,
            number,
        }
    }

    pub fn next(&self) -> Option<Time> {
        self.next
    }

    /// The packet of [`Self::next`].
    pub fn emit<P>(&mut self) -> Option<Entry<P>> {
        let at = self.next?;
        let len = u32::try_from(self.spec.packet.as_u64()).unwrap_or(u32::MAX);
        self.next = self.periods.next(self.clock.send(at, len));
        Some(Entry {
            load: Load::Cross(self.number),
            len,
            entered: at,
        })
    }
}
