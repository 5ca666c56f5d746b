//! Somebody else's packets in the same queue.

use bentpipe_units::{Span, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

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
    /// When the time of sending that the next packet lies in is over.
    on_until: Option<Time>,
    random: ChaCha8Rng,
}

impl Source {
    pub fn new(spec: Cross, number: u32, seed: u64) -> Self {
        let mut source = Self {
            clock: Clock::new(spec.rate),
            next: None,
            on_until: None,
            random: random::numbered(seed, Stage::Cross, u64::from(number)),
            spec,
            number,
        };
        let from = Time::ZERO + spec.from;
        source.on_until = spec.on.map(|on| from + source.length(on));
        source.next = source.within(from);
        source
    }

    pub fn next(&self) -> Option<Time> {
        self.next
    }

    /// The packet of [`Self::next`].
    pub fn emit<P>(&mut self) -> Option<Entry<P>> {
        let at = self.next?;
        let len = u32::try_from(self.spec.packet.as_u64()).unwrap_or(u32::MAX);
        let mut next = self.clock.send(at, len);
        if let (Some(until), Some(on), Some(off)) = (self.on_until, self.spec.on, self.spec.off) {
            let mut until = until;
            while next >= until {
                let begin = until + self.length(off);
                until = begin + self.length(on);
                next = next.max(begin);
            }
            self.on_until = Some(until);
        }
        self.next = self.within(next);
        Some(Entry {
            load: Load::Cross(self.number),
            len,
            entered: at,
        })
    }

    fn within(&self, at: Time) -> Option<Time> {
        let over = self
            .spec
            .until
            .is_some_and(|until| at >= Time::ZERO + until);
        (!over && at.as_nanos() < u64::MAX).then_some(at)
    }

    /// A time of `mean`, at least a nanosecond, so that time goes on.
    fn length(&mut self, mean: Span) -> Span {
        if !self.spec.exponential {
            return mean;
        }
        let unit: f64 = self.random.random();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the logarithm of 1 - unit is not positive and not below -37"
        )]
        let nanos = (-(1.0 - unit).ln() * mean.as_nanos() as f64) as u64;
        Span::from_nanos(nanos.max(1))
    }
}
