//! A queue that does not yield: the way has become longer, or the queue is not ours.
//!
//! Another satellite, and the base round-trip time is a few milliseconds longer: that
//! looks like a queue. But sending less empties a queue of our own. When so much has
//! been left unsent for a round trip that the queue should be gone, and it is not, it
//! becomes part of the base, and up to twice the rate is tried, the rate of before at most.

use bentpipe_units::Time;

/// Share of the base round trip below which a queue is left alone: what a flow of
/// ours wants at most (0.12 of its pipe) may be another's.
pub(super) const LEAST: f64 = 0.08;
/// What is left of a queue that did not yield in a round.
const LEFT: f64 = 0.75;
/// How much the round-trip time may have moved within the last round, of the queue.
const STEADY: f64 = 0.3;

/// Watches one queue at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Unmoved(Option<Watch>);

#[derive(Debug, Clone, Copy)]
struct Watch {
    since: Time,
    /// Seconds that stood when it began, and the rate then, bytes per second.
    standing: f64,
    rate: f64,
    sent: f64,
    /// Bytes left unsent, and seconds that stood, one round ago.
    unsent: f64,
    before: f64,
}

impl Unmoved {
    pub(super) fn on_sent(&mut self, bytes: u64) {
        if let Some(watch) = &mut self.0 {
            watch.sent += bytes as f64;
        }
    }

    /// `standing` seconds of queue, perhaps a `foreign` one, at `rate` bytes per second.
    pub(super) fn on_acks_done(&mut self, now: Time, foreign: bool, standing: f64, rate: f64) {
        if !foreign {
            self.0 = None;
            return;
        }
        self.0.get_or_insert(Watch {
            since: now,
            standing,
            rate,
            sent: 0.0,
            unsent: 0.0,
            before: standing,
        });
    }

    /// A round has ended in which the queue moved by `moved` seconds: the rate of before, if
    /// the queue is not ours.
    pub(super) fn on_round(&mut self, now: Time, standing: f64, moved: f64) -> Option<f64> {
        let watch = self.0.as_mut()?;
        let due = watch.unsent >= watch.standing * watch.rate;
        watch.unsent = watch.rate * now.since(watch.since).as_secs_f64() - watch.sent;
        let before = std::mem::replace(&mut watch.before, standing);
        if due && standing >= LEFT * before && moved <= STEADY * standing {
            return self.0.take().map(|watch| watch.rate);
        }
        None
    }
}
