//! Asking the machine for punctuality.

use std::fmt;
use std::io;
use std::num::NonZeroU64;

use rustix::mm::MlockAllFlags;
use serde::Serialize;

/// Above every ordinary thread and the kernel's threaded interrupts (50), below
/// its watchdogs and migration threads (99).
const PRIORITY: i32 = 60;

/// What the machine granted the calling thread.
#[derive(Debug, Clone, Serialize)]
pub struct Granted {
    /// It runs before every ordinary thread (`SCHED_FIFO`).
    pub fifo: bool,
    /// Its memory is never swapped out.
    pub memory_locked: bool,
    /// What was refused, and how to get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

impl Granted {
    /// Asks for all of it, for the calling thread, after its memory is allocated.
    pub fn claim() -> Self {
        let mut refused = Vec::new();
        // Real-time threads have no timer slack anyway; this is for when we get none.
        if let Err(errno) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
            refused.push(format!("timers without slack: {errno}"));
        }
        let fifo = match fifo() {
            Ok(()) => true,
            Err(error) => {
                refused.push(format!(
                    "SCHED_FIFO: {error}; run as root, or grant CAP_SYS_NICE or `ulimit -r {PRIORITY}`"
                ));
                false
            }
        };
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
        Self {
            fifo,
            memory_locked,
            refused,
        }
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
        write!(out, "{fifo}, {memory}")
    }
}

fn fifo() -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    #[expect(unsafe_code, reason = "no crate wraps this call")]
    // SAFETY: the pointer is to a live `sched_param`, which the call only reads; thread
    // 0 is the calling one.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
