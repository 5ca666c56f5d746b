//! What the system lets this process have.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of files that may be open to what the system permits: each flow
/// is one. Returns that number.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// What flows may take of `files`: seven eighths. The rest is left to those that begin, and to
/// what is no flow.
pub fn for_flows(files: u64) -> usize {
    usize::try_from(files / 8 * 7).unwrap_or(usize::MAX)
}

/// What UDP flows may take of `files`: three quarters. A flood of datagrams must not stop
/// connections.
pub fn for_udp(files: u64) -> usize {
    usize::try_from(files / 4 * 3).unwrap_or(usize::MAX)
}

/// Does `work` while files that are made are for this user alone. The mask belongs to
/// the whole process: other threads must not make files meanwhile.
pub fn privately<T>(work: impl FnOnce() -> T) -> T {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let result = work();
    rustix::process::umask(before);
    result
}

/// What the kernel counts as this process's resident memory (proc_pid_statm(5)), bytes.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    let pages: u64 = pages.and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
