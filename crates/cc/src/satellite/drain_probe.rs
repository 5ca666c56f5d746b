//! Queue drain probe: now and then the sender lets the queue run dry.
//!
//! One round trip later two things show. The base round-trip time, which everyone who
//! shares the bottleneck must see now and then. And whether what was taken for a queue is
//! one: sending less shortens a queue, but not a path that has become longer.

use bentpipe_units::{Span, Time};

use super::constants::drain_probe::*;
use crate::convert::whole;

/// What is known when a frame of acknowledgements is complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
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

/// What a probe has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The queue moved with what was left unsent, or was too short to tell.
    Queue,
    /// It did not: the path has become longer.
    LongerPath,
}

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(super) struct DrainProbe {
    due: Option<Time>,
    /// Since when there is doubt, and how many round trips it waits.
    doubted: Option<Time>,
    doubt_rounds: u32,
    running: Option<Drain>,
}

#[derive(Debug, Clone, Copy)]
struct Drain {
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

impl DrainProbe {
    /// Share of the rate to be sent at `now`.
    pub(super) fn gain(&self, now: Time) -> Option<f64> {
        let drain = self.running.filter(|drain| now < drain.until)?;
        Some(1.0 - drain.unsent)
    }

    /// The path has changed, and what is known of its queue with it.
    pub(super) fn restart(&mut self) {
        self.doubt_rounds = DOUBT_ROUNDS;
        self.doubted = None;
    }

    pub(super) fn on_acks_done(&mut self, seen: Observation) -> Option<Verdict> {
        let Observation { now, rtt, .. } = seen;
        let due = *self.due.get_or_insert(now + INTERVAL);
        if let Some(drain) = &mut self.running {
            drain.least = drain.least.min(seen.standing);
            drain.most = drain.most.max(seen.standing);
            drain.busy &= seen.busy;
            // Its end shows a round trip later, in the least of an eighth of a round trip.
            let drain = *drain;
            let shown = drain.until + rtt + Span::from_nanos(rtt.as_nanos() / 4);
            if now < shown {
                return None;
            }
            self.running = None;
            self.doubted = None;
            return drain.busy.then(|| self.judge(drain));
        }
        self.doubted = seen.doubtful.then(|| self.doubted.unwrap_or(now));
        let patience = u64::from(self.doubt_rounds.max(DOUBT_ROUNDS)) * rtt.as_nanos();
        let doubted = seen.urgent
            || (self.doubted).is_some_and(|since| now >= since + Span::from_nanos(patience));
        if doubted || now >= due {
            let (unsent, queue) = if doubted {
                (DOUBT_REDUCTION, seen.standing)
            } else {
                (
                    PERIODIC_REDUCTION,
                    PERIODIC_QUEUES * seen.standing.max(seen.target),
                )
            };
            let span = Span::from_nanos(whole((queue / unsent).min(rtt.as_secs_f64()) * 1e9));
            self.due = Some(now + INTERVAL);
            self.running = Some(Drain {
                from: now,
                until: now + span,
                unsent,
                before: seen.standing,
                least: seen.standing,
                most: seen.standing,
                busy: true,
            });
        }
        None
    }

    fn judge(&mut self, drain: Drain) -> Verdict {
        let unsent = drain.unsent * drain.until.since(drain.from).as_secs_f64();
        let moved = drain.most - drain.least;
        if drain.before > 2.0 * TIMING_NOISE
            && moved < (MIN_RESPONSE * unsent.min(drain.before)).max(TIMING_NOISE)
        {
            self.doubt_rounds = DOUBT_ROUNDS;
            Verdict::LongerPath
        } else {
            self.doubt_rounds = self.doubt_rounds.max(DOUBT_ROUNDS).saturating_mul(2);
            Verdict::Queue
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(40);

    /// What probes show, and when, of `standing` seconds that yield by `share` of what is left
    /// unsent, in doubt for ten seconds; an acknowledgement each millisecond.
    fn verdicts(standing: f64, share: f64) -> Vec<(u64, Verdict)> {
        let mut probe = DrainProbe::default();
        let mut unsent = [0.0_f64; 10_000];
        let mut shown = Vec::new();
        for millis in 0..10_000_u64 {
            let at = usize::try_from(millis).unwrap();
            let now = Time::ZERO + Span::from_millis(millis);
            let missing = probe.gain(now).map_or(0.0, |gain| 1.0 - gain);
            let before = at.checked_sub(1).map_or(0.0, |before| unsent[before]);
            // What was left unsent is sent again afterwards.
            unsent[at] = if missing > 0.0 {
                before + missing * 1e-3
            } else {
                before * 0.9
            };
            let effect = at.checked_sub(40).map_or(0.0, |then| unsent[then]);
            let verdict = probe.on_acks_done(Observation {
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
        // After 4, 8, 16 round trips of doubt, and 2.25 and the probe itself each time.
        let first: Vec<_> = shown.iter().map(|(at, _)| at / 10).take(3).collect();
        assert_eq!(first, [23, 62, 133]);
    }

    #[test]
    fn an_eighth_of_a_queue_yields_too() {
        let shown = verdicts(0.010, 0.125);
        assert!(shown.iter().all(|(_, verdict)| *verdict == Verdict::Queue));
    }

    #[test]
    fn a_longer_path_does_not() {
        let shown = verdicts(0.010, 0.0);
        assert_eq!(shown[0].1, Verdict::LongerPath);
        assert!(shown[0].0 < 300, "{shown:?}");
    }

    #[test]
    fn a_sender_without_data_judges_nothing() {
        let mut probe = DrainProbe::default();
        for millis in 0..10_000 {
            let verdict = probe.on_acks_done(Observation {
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
