//! A bound on log lines that strangers can cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines in each interval, at most.
const LINES: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(60);

/// Counts lines, and those that were left out.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// Whether a line may be written at `now`: if so, how many were left out before it.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.is_none_or(|began| now - began >= INTERVAL) {
            state.began = Some(now);
            state.lines = 0;
        }
        if state.lines == LINES {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_a_few_lines_and_a_number() {
        #[expect(clippy::disallowed_methods, reason = "the paused clock")]
        let begin = Instant::now();
        let log = LogLimit::default();
        let written = (0..100_000).filter(|_| log.admit(begin).is_some()).count();
        assert_eq!(written, 10);
        assert_eq!(log.admit(begin + INTERVAL), Some(99_990));
        assert_eq!(log.admit(begin + INTERVAL), Some(0));
    }
}
