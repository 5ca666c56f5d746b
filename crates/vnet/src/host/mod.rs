//! A host: when a program runs on a machine that has other things to do.
//!
//! Real senders do not act at the moment that they want to. A timer fires at the next
//! tick of the kernel's clock, the scheduler lets the program run some time after that,
//! now and then not for milliseconds, and whatever has arrived meanwhile is read in one
//! batch. Each packet costs processor time, which delays the ones behind it.
//!
//! [`Host::timer`] and [`Host::arrival`] say when the program is woken up, [`Host::runs`], asked
//! at that moment, whether it runs or when a stall lets it, [`Host::spend`] what its work costs.
//! All draws come from the seed.

mod fit;

use std::num::NonZeroUsize;

use bentpipe_units::{Span, Time};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use fit::{Fit, WakeUp, fit};

/// How a host behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSpec {
    /// Timers fire at multiples of this; zero for exact ones.
    pub tick: Span,
    /// Mean of the exponential time from wake-up to running.
    pub lateness: Span,
    /// Mean time between two stalls, exponential; zero for none.
    pub stall_every: Span,
    /// A stall lasts so long at least and at most, log-uniform.
    pub stall: (Span, Span),
    /// Processor time for each packet read, and for each one sent without segmentation
    /// offload, or each batch sent with it.
    pub per_packet: Span,
    /// Whether up to ten packets leave by one system call (GSO).
    pub offload: bool,
}

/// A field that is out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("host.{field} = {value}: {remedy}")]
pub struct HostError {
    /// Which.
    pub field: &'static str,
    /// What was given.
    pub value: String,
    /// What would be right.
    pub remedy: &'static str,
}

/// Datagrams that one call may give: the pacer bounds them to 2 ms anyway.
const SEGMENTS: NonZeroUsize = NonZeroUsize::new(10).expect("ten is not zero");
/// Longer than this nothing waits on a machine that works.
const LONGEST: Span = Span::from_millis(1_000);

/// More often no machine stalls.
const LEAST_STALL_EVERY: Span = Span::from_millis(1);

impl HostSpec {
    /// Exact timers and free processors.
    pub const IDEAL: Self = Self {
        tick: Span::ZERO,
        lateness: Span::ZERO,
        stall_every: Span::ZERO,
        stall: (Span::ZERO, Span::ZERO),
        per_packet: Span::ZERO,
        offload: true,
    };

    /// A small virtual machine with nothing else to do: tokio's 1-ms timers, wake-ups within
    /// 0.1 ms, the hypervisor's pauses of 3 to 12 ms every few seconds (docs/limitations.md).
    pub const QUIET: Self = Self {
        tick: Span::from_millis(1),
        lateness: Span::from_nanos(60_000),
        stall_every: Span::from_millis(3_000),
        stall: (Span::from_millis(3), Span::from_millis(12)),
        per_packet: Span::from_nanos(4_000),
        offload: true,
    };

    /// Two cores at load 5 to 13: a time slice of 3 to 4 ms (Linux's default) passes
    /// before the program runs, often several.
    pub const BUSY: Self = Self {
        tick: Span::from_millis(1),
        lateness: Span::from_millis(1),
        stall_every: Span::from_millis(150),
        stall: (Span::from_millis(3), Span::from_millis(50)),
        per_packet: Span::from_nanos(12_000),
        offload: true,
    };

    /// A virtual machine with two processors on which several compilers ran (load 17), as
    /// `bentpipe sim record-host` recorded it over 20 s, the median of three: 988 wake-ups of 7,443 were stalls.
    pub const LOADED: Self = Self {
        tick: Span::from_millis(1),
        lateness: Span::from_nanos(600_000),
        stall_every: Span::from_millis(13),
        stall: (Span::from_millis(3), Span::from_nanos(12_500_000)),
        per_packet: Span::from_nanos(12_000),
        offload: true,
    };

    /// A router with a clock of 250 Hz, a slow processor and no segmentation offload.
    pub const SLOW: Self = Self {
        tick: Span::from_millis(4),
        lateness: Span::from_nanos(500_000),
        stall_every: Span::from_millis(1_000),
        stall: (Span::from_millis(3), Span::from_millis(30)),
        per_packet: Span::from_nanos(20_000),
        offload: false,
    };

    /// Checks each field against its range.
    pub fn check(&self) -> Result<(), HostError> {
        let times = [
            ("tick", self.tick, Span::from_millis(100)),
            ("lateness", self.lateness, LONGEST),
            ("stall", self.stall.1, LONGEST),
            ("per_packet", self.per_packet, Span::from_millis(10)),
        ];
        for (field, value, most) in times {
            if value > most {
                return Err(HostError {
                    field,
                    value: value.to_string(),
                    remedy: "give at most 100 ms for tick, 10 ms for per_packet, 1 s for the others",
                });
            }
        }
        if self.stall_every > Span::ZERO && self.stall_every < LEAST_STALL_EVERY {
            return Err(HostError {
                field: "stall_every",
                value: self.stall_every.to_string(),
                remedy: "give 0 s for no stalls, or at least 1 ms",
            });
        }
        if self.stall.0 > self.stall.1 {
            return Err(HostError {
                field: "stall",
                value: format!("{} to {}", self.stall.0, self.stall.1),
                remedy: "the shortest stall may not be longer than the longest",
            });
        }
        Ok(())
    }
}

/// One machine.
#[derive(Debug, Clone)]
pub struct Host {
    spec: HostSpec,
    random: ChaCha8Rng,
    /// The processor has work until then.
    free_at: Time,
    /// The stall that is under way or comes next.
    stall: Option<(Time, Time)>,
}

impl Host {
    /// A machine as `spec` says; `seed` makes its draws.
    pub fn new(spec: HostSpec, seed: u64) -> Self {
        let mut host = Self {
            spec,
            random: ChaCha8Rng::seed_from_u64(seed),
            free_at: Time::ZERO,
            stall: None,
        };
        host.stall = host.next_stall(Time::ZERO);
        host
    }

    /// Whether everything happens at its moment.
    pub fn is_ideal(&self) -> bool {
        self.spec == HostSpec::IDEAL
    }

    /// Most datagrams for one system call.
    pub fn batch(&self) -> NonZeroUsize {
        if self.spec.offload {
            SEGMENTS
        } else {
            NonZeroUsize::MIN
        }
    }

    /// When a timer set to `wanted` at `now` wakes the program up.
    pub fn timer(&mut self, wanted: Time, now: Time) -> Time {
        let fires = crate::timer::fires(wanted, now, self.spec.tick);
        self.arrival(fires)
    }

    /// When what arrives at `now` wakes the program up: not while the processor works.
    pub fn arrival(&mut self, now: Time) -> Time {
        (now + self.exponential(self.spec.lateness)).max(self.free_at)
    }

    /// When the program runs that was woken up and it is `now`: at once, or when the stall that is
    /// under way is over. Moments never go back from call to call.
    pub fn runs(&mut self, now: Time) -> Time {
        while let Some((from, until)) = self.stall {
            if now < from {
                return now;
            }
            if now < until {
                return until;
            }
            self.stall = self.next_stall(until);
        }
        now
    }

    /// The program has worked on `packets` packets since `now`: the processor is free then.
    pub fn spend(&mut self, now: Time, packets: u64) -> Time {
        let cost = Span::from_nanos(self.spec.per_packet.as_nanos().saturating_mul(packets));
        self.free_at = self.free_at.max(now) + cost;
        self.free_at
    }

    fn next_stall(&mut self, after: Time) -> Option<(Time, Time)> {
        if self.spec.stall_every == Span::ZERO {
            return None;
        }
        let from = after + self.exponential(self.spec.stall_every);
        let (least, most) = self.spec.stall;
        let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
        let length = least * (most / least.max(1e-9)).powf(self.random.random());
        Some((from, from + seconds(length)))
    }

    fn exponential(&mut self, mean: Span) -> Span {
        if mean == Span::ZERO {
            return Span::ZERO;
        }
        let draw: f64 = self.random.random();
        seconds(-(1.0 - draw).max(1e-12).ln() * mean.as_secs_f64())
    }
}

fn seconds(value: f64) -> Span {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a moment of a run, saturating"
    )]
    Span::from_nanos((value * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(spec: HostSpec, seed: u64) -> Vec<Time> {
        let mut host = Host::new(spec, seed);
        (0..5_000_u64)
            .map(|millis| {
                let now = Time::ZERO + Span::from_millis(10 * millis);
                let woken = host.timer(now + Span::from_nanos(300_000), now);
                host.runs(woken)
            })
            .collect()
    }

    #[test]
    fn an_ideal_host_is_exact() {
        for (millis, at) in (0..).zip(moments(HostSpec::IDEAL, 1)) {
            assert_eq!(at.as_nanos(), millis * 10_000_000 + 300_000);
        }
    }

    #[test]
    fn a_seed_says_when() {
        assert_eq!(moments(HostSpec::BUSY, 1), moments(HostSpec::BUSY, 1));
        assert_ne!(moments(HostSpec::BUSY, 1), moments(HostSpec::BUSY, 2));
    }

    #[test]
    fn nothing_runs_before_it_is_due_and_stalls_are_within_their_bounds() {
        let late: Vec<_> = (0..)
            .zip(moments(HostSpec::BUSY, 3))
            .map(|(millis, at)| at.as_nanos() - (millis * 10_000_000 + 300_000))
            .collect();
        let most = late.iter().max().expect("moments");
        assert!((20_000_000..70_000_000).contains(most), "{most}");
        let mean = late.iter().sum::<u64>() / late.len() as u64;
        assert!((1_000_000..6_000_000).contains(&mean), "{mean}");
    }

    /// What is set for later takes no stall away from what comes before.
    #[test]
    fn a_stall_holds_everything_that_wakes_up_in_it() {
        let mut host = Host::new(HostSpec::BUSY, 4);
        let (from, until) = host.stall.expect("a busy host has stalls");
        host.timer(until + Span::from_millis(60_000), Time::ZERO);
        assert_eq!(host.runs(from), until);
        assert_eq!(host.runs(from + Span::from_nanos(1_000)), until);
        assert_eq!(host.runs(until), until);
        assert!(host.stall.expect("and more of them").0 > until);
    }

    #[test]
    fn work_delays_what_comes_behind_it() {
        let mut host = Host::new(
            HostSpec {
                per_packet: Span::from_millis(1),
                ..HostSpec::IDEAL
            },
            1,
        );
        host.spend(Time::ZERO, 5);
        assert_eq!(
            host.arrival(Time::ZERO + Span::from_millis(1)),
            Time::ZERO + Span::from_millis(5)
        );
    }
}
