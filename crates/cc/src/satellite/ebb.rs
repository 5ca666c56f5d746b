//! The ebb: now and then the sender lets the queue run dry.
//!
//! One round trip later two things show. The base round-trip time, which everyone who
//! shares the bottleneck must see now and then. And whether what was taken for a queue is
//! one: sending less shortens a queue, but not a way that has become longer.

use bentpipe_units::{Span, Time};

/// How often, so that one dry moment is always inside the memory of the base.
const EVERY: Span = super::queue::MEMORY_HALF;
/// Share of the rate that is left unsent then, until twice the own queue could run off.
const GENTLE: f64 = 0.1;
const OWN_QUEUES: f64 = 2.0;
/// Share of the rate that is left unsent in doubt, until all that stands could.
const DEEP: f64 = 0.5;
/// Round trips in doubt until an ebb; each that shows a true queue doubles them.
const SOON: u32 = 4;
/// A queue that moved by less than this share of what was left unsent is none: eight flows
/// alike move it by an eighth each, one that is being starved by less.
const YIELDS: f64 = 0.04;
/// Or by less than this many seconds: machines tremble. A queue of twice that shows nothing.
const TREMBLE: f64 = 0.0005;

/// What is known when a frame of acknowledgements is complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    pub(super) now: Time,
    pub(super) rtt: Span,
    /// Seconds of standing queue, and how many are wanted.
    pub(super) standing: f64,
    pub(super) target: f64,
    /// Whether a queue stands that may be none.
    pub(super) doubtful: bool,
    /// Whether that must be known now.
    pub(super) urgent: bool,
    /// Whether all that the pacing allows is sent.
    pub(super) busy: bool,
}

/// What an ebb has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The queue moved with what was left unsent, or was too short to tell.
    Queue,
    /// It did not: the way has become longer.
    LongerWay,
}

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(super) struct Ebb {
    due: Option<Time>,
    /// Since when there is doubt, and how many round trips it waits.
    doubted: Option<Time>,
    patience: u32,
    tide: Option<Tide>,
}

#[derive(Debug, Clone, Copy)]
struct Tide {
    from: Time,
    until: Time,
    /// Share of the rate that is left unsent.
    unsent: f64,
    /// Seconds that stood before, and the least and the most since.
    before: f64,
    least: f64,
    most: f64,
    /// Whether the sender sent all that it was let.
    busy: bool,
}

impl Ebb {
    /// Share of the rate to be sent at `now`.
    pub(super) fn gain(&self, now: Time) -> Option<f64> {
        let tide = self.tide.filter(|tide| now < tide.until)?;
        Some(1.0 - tide.unsent)
    }

    /// The path has changed, and what is known of its queue with it.
    pub(super) fn restart(&mut self) {
        self.patience = SOON;
        self.doubted = None;
    }

    pub(super) fn on_acks_done(&mut self, sight: Sight) -> Option<Verdict> {
        let Sight { now, rtt, .. } = sight;
        let due = *self.due.get_or_insert(now + EVERY);
        if let Some(tide) = &mut self.tide {
            tide.least = tide.least.min(sight.standing);
            tide.most = tide.most.max(sight.standing);
            tide.busy &= sight.busy;
            // Its end shows a round trip later, in the least of an eighth of a round trip.
            let tide = *tide;
            let shown = tide.until + rtt + Span::from_nanos(rtt.as_nanos() / 4);
            if now < shown {
                return None;
            }
            self.tide = None;
            self.doubted = None;
            return tide.busy.then(|| self.judge(tide));
        }
        self.doubted = sight.doubtful.then(|| self.doubted.unwrap_or(now));
        let patience = u64::from(self.patience.max(SOON)) * rtt.as_nanos();
        let doubted = sight.urgent
            || (self.doubted).is_some_and(|since| now >= since + Span::from_nanos(patience));
        if doubted || now >= due {
            let (unsent, queue) = if doubted {
                (DEEP, sight.standing)
            } else {
                (GENTLE, OWN_QUEUES * sight.standing.max(sight.target))
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "less than a round trip"
            )]
            let span = Span::from_nanos(((queue / unsent).min(rtt.as_secs_f64()) * 1e9) as u64);
            self.due = Some(now + EVERY);
            self.tide = Some(Tide {
                from: now,
                until: now + span,
                unsent,
                before: sight.standing,
                least: sight.standing,
                most: sight.standing,
                busy: true,
            });
        }
        None
    }

    fn judge(&mut self, tide: Tide) -> Verdict {
        let unsent = tide.unsent * tide.until.since(tide.from).as_secs_f64();
        let moved = tide.most - tide.least;
        if tide.before > 2.0 * TREMBLE && moved < (YIELDS * unsent.min(tide.before)).max(TREMBLE) {
            self.patience = SOON;
            Verdict::LongerWay
        } else {
            self.patience = self.patience.max(SOON).saturating_mul(2);
            Verdict::Queue
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(40);

    /// What ebbs show, and when, of `standing` seconds that yield by `share` of what is left
    /// unsent, in doubt for ten seconds; an acknowledgement each millisecond.
    fn verdicts(standing: f64, share: f64) -> Vec<(u64, Verdict)> {
        let mut ebb = Ebb::default();
        let mut unsent = [0.0_f64; 10_000];
        let mut shown = Vec::new();
        for millis in 0..10_000_u64 {
            let at = usize::try_from(millis).unwrap();
            let now = Time::ZERO + Span::from_millis(millis);
            let missing = ebb.gain(now).map_or(0.0, |gain| 1.0 - gain);
            let before = at.checked_sub(1).map_or(0.0, |before| unsent[before]);
            // What was left unsent is sent again afterwards.
            unsent[at] = if missing > 0.0 {
                before + missing * 1e-3
            } else {
                before * 0.9
            };
            let effect = at.checked_sub(40).map_or(0.0, |then| unsent[then]);
            let verdict = ebb.on_acks_done(Sight {
                now,
                rtt: RTT,
                standing: (standing - share * effect).max(0.0),
                target: 0.002,
                doubtful: true,
                urgent: false,
                busy: true,
            });
            shown.extend(verdict.map(|verdict| (millis, verdict)));
        }
        shown
    }

    #[test]
    fn a_queue_yields_and_is_doubted_less_and_less() {
        let shown = verdicts(0.010, 1.0);
        assert!(shown.iter().all(|(_, verdict)| *verdict == Verdict::Queue));
        // After 4, 8, 16 round trips of doubt, and 2.25 and the ebb itself each time.
        let first: Vec<_> = shown.iter().map(|(at, _)| at / 10).take(3).collect();
        assert_eq!(first, [23, 62, 133]);
    }

    #[test]
    fn an_eighth_of_a_queue_yields_too() {
        let shown = verdicts(0.010, 0.125);
        assert!(shown.iter().all(|(_, verdict)| *verdict == Verdict::Queue));
    }

    #[test]
    fn a_longer_way_does_not() {
        let shown = verdicts(0.010, 0.0);
        assert_eq!(shown[0].1, Verdict::LongerWay);
        assert!(shown[0].0 < 300, "{shown:?}");
    }

    #[test]
    fn a_sender_without_data_judges_nothing() {
        let mut ebb = Ebb::default();
        for millis in 0..10_000 {
            let verdict = ebb.on_acks_done(Sight {
                now: Time::ZERO + Span::from_millis(millis),
                rtt: RTT,
                standing: 0.010,
                target: 0.002,
                doubtful: true,
                urgent: true,
                busy: false,
            });
            assert_eq!(verdict, None);
        }
    }
}
