//! Somebody else's packets in the same queue.

use bentpipe_units::Time;

use crate::activity::Activity;
use crate::queue::{Entry, Load};
use crate::random::{self, Stage};
use crate::scenario::Cross;
use crate::serialize::constant::Clock;

/// One source: constant bit rate, always or in turns with pauses.
#[derive(Debug)]
pub(crate) struct Source {
    spec: Cross,
    number: u32,
    /// When the next packet comes, `None` after the last.
    next: Option<Time>,
    clock: Clock,
    activity: Activity,
}

impl Source {
    pub fn new(spec: Cross, number: u32, seed: u64) -> Self {
        let random = random::numbered(seed, Stage::Cross, u64::from(number));
        let mut activity = Activity::new(spec.turns(), random);
        Self {
            clock: Clock::new(spec.rate),
            next: activity.next(Time::ZERO),
            activity,
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
        self.next = self.activity.next(self.clock.send(at, len));
        Some(Entry {
            load: Load::Cross(self.number),
            len,
            entered: at,
        })
    }
}
