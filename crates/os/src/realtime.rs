//! Real-time scheduling, and what else the machine grants a thread that must be punctual.

use std::fmt;
use std::io;
use std::num::NonZeroU64;

use bentpipe_units::Span;
use rustix::mm::MlockAllFlags;
use rustix::thread::CpuSet;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cpu_latency::{self, CpuLatency};

/// Above every ordinary thread and the kernel's threaded interrupts (50), below
/// its watchdogs and migration threads (99).
const PRIORITY: i32 = 60;

/// What the machine granted the calling thread.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Granted {
    /// It runs before every ordinary thread (`SCHED_FIFO`).
    pub fifo: bool,
    /// The part of each second after which the kernel stops it all the same; nothing where
    /// it does not.
    #[serde(skip)]
    pub real_time_limit: Option<f64>,
    /// Its memory is never swapped out.
    pub memory_locked: bool,
    /// No idle processor sleeps while packets flow (PM QoS).
    pub processors_awake: bool,
    /// What was refused, and how to get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

impl Granted {
    /// Gives the priority back: what follows is in nobody's time, and would keep others from theirs.
    pub fn yield_priority(&self) {
        if self.fifo {
            let _ = scheduled(libc::SCHED_OTHER, 0);
        }
    }

    /// Asks for all of it, for the calling thread, after its memory is allocated. When
    /// processors are kept awake is then up to the caller.
    pub fn claim() -> (Self, CpuLatency) {
        let mut refused = Vec::new();
        // Real-time threads have no timer slack anyway; this is for when we get none.
        if let Err(errno) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
            refused.push(format!("timers without slack: {errno}"));
        }
        // Before the priority: locking takes milliseconds, which another real-time thread would have to wait for.
        // Not MCL_FUTURE: past the limit on locked memory it would make allocations fail.
        let memory_locked = match rustix::mm::mlockall(MlockAllFlags::CURRENT) {
            Ok(()) => true,
            Err(errno) => {
                refused.push(format!(
                    "locked memory: {errno}; run as root, or grant CAP_IPC_LOCK or `ulimit -l unlimited`"
                ));
                false
            }
        };
        let fifo = match fifo() {
            Ok(()) => true,
            Err(error) => {
                refused.push(format!(
                    "SCHED_FIFO: {error}; run as root, or grant CAP_SYS_NICE or `ulimit -r {PRIORITY}`"
                ));
                false
            }
        };
        let (cpu_latency, awake) = CpuLatency::claim();
        if let Err(error) = &awake {
            refused.push(format!(
                "awake processors: {}: {error}; {}",
                cpu_latency::DEVICE,
                cpu_latency::remedy(error)
            ));
        }
        let granted = Self {
            fifo,
            real_time_limit: fifo.then(real_time_limit).flatten(),
            memory_locked,
            processors_awake: awake.is_ok(),
            refused,
        };
        (granted, cpu_latency)
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fifo = if self.fifo {
            "SCHED_FIFO"
        } else {
            "ordinary scheduling (SCHED_FIFO refused)"
        };
        let memory = if self.memory_locked {
            "memory locked"
        } else {
            "memory not locked"
        };
        let processors = if self.processors_awake {
            "processors kept awake"
        } else {
            "processors may sleep"
        };
        write!(out, "{fifo}, {memory}, {processors}")
    }
}

/// Time that the hypervisor has had this machine's processors wait since it started
/// (proc(5), "steal"): what no priority inside the machine can prevent. `None` where
/// the system does not tell.
pub fn stolen() -> Option<Span> {
    steal(&std::fs::read_to_string("/proc/stat").ok()?)
        .map(|ticks| Span::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// The eighth number of all processors together.
fn steal(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    all.split_whitespace().nth(7)?.parse().ok()
}

/// Processors that a thread, and the programs that it starts, may run on.
#[derive(Debug, Clone, Copy)]
pub struct Processors(CpuSet);

impl Processors {
    /// Divides the processors that this process may use: one, drawn by its number, so that
    /// several processes take several, and all others. Nothing where there is only one.
    pub fn divide() -> Option<(Self, Self)> {
        let allowed = rustix::thread::sched_getaffinity(None).ok()?;
        let numbers: Vec<_> = (0..CpuSet::MAX_CPU)
            .filter(|it| allowed.is_set(*it))
            .collect();
        let chosen = *numbers.get(usize::try_from(std::process::id()).ok()? % numbers.len())?;
        let one = Self::one(chosen);
        Some((one, one.others()?))
    }

    /// The processor of that number, whether or not this process keeps to others now.
    ///
    /// # Errors
    ///
    /// Where the system lets no thread of this process run there.
    pub fn chosen(number: usize) -> io::Result<Self> {
        if number >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let one = Self::one(number);
        std::thread::scope(|scope| {
            let tried = std::thread::Builder::new().spawn_scoped(scope, || one.keep_to())?;
            tried
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(one)
    }

    fn one(number: usize) -> Self {
        let mut one = CpuSet::new();
        one.set(number);
        Self(one)
    }

    /// All others that this process may use; nothing where there are none.
    pub fn others(&self) -> Option<Self> {
        let mut others = rustix::thread::sched_getaffinity(None).ok()?;
        for number in (0..CpuSet::MAX_CPU).filter(|it| self.0.is_set(*it)) {
            others.unset(number);
        }
        (others.count() > 0).then_some(Self(others))
    }

    /// Keeps the calling thread to them.
    pub fn keep_to(&self) -> io::Result<()> {
        Ok(rustix::thread::sched_setaffinity(None, &self.0)?)
    }
}

/// The part of each period that real-time threads may have together (sched(7)).
fn real_time_limit() -> Option<f64> {
    let micros = |name| -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let (runtime, period) = micros("sched_rt_runtime_us").zip(micros("sched_rt_period_us"))?;
    (runtime >= 0.0 && runtime < period).then_some(runtime / period)
}

fn fifo() -> io::Result<()> {
    scheduled(libc::SCHED_FIFO, PRIORITY)
}

/// Has the calling thread scheduled by a policy.
fn scheduled(policy: libc::c_int, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    #[expect(unsafe_code, reason = "no crate wraps this call")]
    // SAFETY: the pointer is to a live `sched_param`, which the call only reads; thread
    // 0 is the calling one.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 0 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(steal(stat), Some(8));
        assert_eq!(steal("cpu0 1 2 3\n"), None);
    }

    #[test]
    fn one_processor_is_for_the_emulator_and_the_others_for_programs() {
        let Some((one, others)) = Processors::divide() else {
            return;
        };
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                one.keep_to().unwrap();
                let mine = rustix::thread::sched_getaffinity(None).unwrap();
                let shared = (0..CpuSet::MAX_CPU).any(|it| mine.is_set(it) && others.0.is_set(it));
                (mine.count(), shared)
            });
            assert_eq!(inside.join().unwrap(), (1, false));
        });
    }
}
