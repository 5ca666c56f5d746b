//! The host that a recording of a real machine's wake-ups is of.

use bentpipe_units::{Span, Time};

use super::HostSpec;

/// What is shorter than this is lateness, what is longer a stall: a time slice of Linux's
/// default scheduler.
const SHORTEST_STALL: Span = Span::from_millis(3);

/// A moment at which a program that had slept ran again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeUp {
    /// When it wanted to run.
    pub wanted: Time,
    /// When it ran, not before.
    pub ran: Time,
}

/// What was found in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// The host: `lateness`, `stall_every` and `stall` from the recording, the rest that of the
    /// host it was said to be like.
    pub host: HostSpec,
    /// Stalls seen.
    pub stalls: usize,
    /// The longest of them, or the latest wake-up where there was none.
    pub longest: Span,
}

/// Fits `like`'s lateness and stalls to `wake_ups`, which are in order of time; `None` without any.
///
/// Wake-ups that are 3 ms late or more and overlap are one stall. The lateness is the mean of the
/// others, the time between stalls the mean of what lies between them, and the longest stall the
/// one that gives the logarithms of their lengths the mean that they have (moments of
/// the log-uniform distribution that [`super::Host`] draws from).
pub fn fit(wake_ups: &[WakeUp], like: HostSpec) -> Option<Fit> {
    let (first, last) = (wake_ups.first()?, wake_ups.last()?);
    let mut stalls: Vec<(Time, Time)> = Vec::new();
    let mut late = (0.0, 0_u32);
    let mut longest = Span::ZERO;
    for wake_up in wake_ups {
        let by = wake_up.ran.since(wake_up.wanted);
        longest = longest.max(by);
        match stalls.last_mut() {
            // The same stall, or what was still to be done behind it.
            Some((_, until)) if wake_up.wanted < *until => *until = wake_up.ran.max(*until),
            _ if by >= SHORTEST_STALL => stalls.push((wake_up.wanted, wake_up.ran)),
            _ => late = (late.0 + by.as_secs_f64(), late.1 + 1),
        }
    }
    let lengths: Vec<f64> = (stalls.iter())
        .map(|(from, until)| until.since(*from).as_secs_f64())
        .collect();
    let lateness = Span::from_secs_f64(late.0 / f64::from(late.1.max(1)));
    let (stall_every, stall) = if lengths.is_empty() {
        (Span::ZERO, (Span::ZERO, Span::ZERO))
    } else {
        let count = lengths.len() as f64;
        let between = last.ran.since(first.wanted).as_secs_f64() - lengths.iter().sum::<f64>();
        let mean = lengths.iter().map(|length| length.ln()).sum::<f64>() / count;
        let most = (2.0 * mean - SHORTEST_STALL.as_secs_f64().ln()).exp();
        (
            Span::from_secs_f64(between.max(0.0) / count).max(super::LEAST_STALL_EVERY),
            (
                SHORTEST_STALL,
                Span::from_secs_f64(most).clamp(SHORTEST_STALL, super::LONGEST),
            ),
        )
    };
    Some(Fit {
        host: HostSpec {
            lateness: lateness.min(super::LONGEST),
            stall_every,
            stall,
            ..like
        },
        stalls: stalls.len(),
        longest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    /// A minute of a program that sleeps for a millisecond at a time on a host that is known.
    fn recorded(spec: HostSpec, seed: u64) -> Vec<WakeUp> {
        let mut host = Host::new(
            HostSpec {
                tick: Span::ZERO,
                ..spec
            },
            seed,
        );
        let mut now = Time::ZERO;
        std::iter::from_fn(|| {
            let wanted = now + Span::from_millis(1);
            let woken = host.timer(wanted, now);
            now = host.runs(woken);
            (now < Time::ZERO + Span::from_millis(60_000)).then_some(WakeUp { wanted, ran: now })
        })
        .collect()
    }

    fn near(what: &str, is: Span, of: Span, within: f64) {
        let ratio = is.as_secs_f64() / of.as_secs_f64();
        assert!(
            (1.0 - within..1.0 + within).contains(&ratio),
            "{what}: {is}, the host's is {of}"
        );
    }

    #[test]
    fn a_host_is_found_again_in_its_recording() {
        let stalled = HostSpec {
            lateness: Span::from_nanos(200_000),
            stall_every: Span::from_millis(80),
            stall: (SHORTEST_STALL, Span::from_millis(20)),
            ..HostSpec::QUIET
        };
        for seed in 0..10 {
            let fit = fit(&recorded(stalled, seed), HostSpec::QUIET).unwrap();
            near("lateness", fit.host.lateness, stalled.lateness, 0.1);
            near(
                "stall_every",
                fit.host.stall_every,
                stalled.stall_every,
                0.35,
            );
            near("stall", fit.host.stall.1, stalled.stall.1, 0.35);
            fit.host.check().unwrap();
        }
    }

    #[test]
    fn without_stalls_there_are_none() {
        let calm = HostSpec {
            stall_every: Span::ZERO,
            ..HostSpec::QUIET
        };
        let fit = fit(&recorded(calm, 1), HostSpec::QUIET).unwrap();
        assert_eq!((fit.stalls, fit.host.stall_every), (0, Span::ZERO));
        near("lateness", fit.host.lateness, calm.lateness, 0.05);
        assert!(fit.longest < SHORTEST_STALL);
    }

    #[test]
    fn nothing_recorded_is_no_host() {
        assert_eq!(fit(&[], HostSpec::QUIET), None);
    }
}
