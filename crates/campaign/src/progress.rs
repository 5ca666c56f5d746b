//! The progress of many runs: for people at a terminal a line that changes, for logs a
//! line every few seconds.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the line at a terminal changes.
const AT_A_TERMINAL: Duration = Duration::from_millis(200);
/// How often a log gets a line.
const IN_A_LOG: Duration = Duration::from_secs(5);

/// How far it is and how long it will take, on the standard error output.
#[derive(Debug)]
pub struct Progress {
    all: usize,
    begun: Instant,
    shown: Instant,
    terminal: bool,
}

impl Progress {
    /// Nothing of `all` runs is done.
    pub fn new(all: usize) -> Self {
        let now = Instant::now();
        Self {
            all,
            begun: now,
            shown: now,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// `done` runs are done; shows it if it is time to.
    pub fn show(&mut self, done: usize) {
        let every = if self.terminal {
            AT_A_TERMINAL
        } else {
            IN_A_LOG
        };
        if done < self.all && self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let text = text(done, self.all, self.begun.elapsed());
        let mut out = std::io::stderr();
        // Progress that cannot be shown is no failure.
        let _ = match (self.terminal, done == self.all) {
            (true, false) => write!(out, "\r\x1b[K{text}"),
            (true, true) => writeln!(out, "\r\x1b[K{text}"),
            (false, _) => writeln!(out, "{text}"),
        };
    }
}

fn text(done: usize, all: usize, elapsed: Duration) -> String {
    let text = format!("{done} of {all} runs");
    if done == all {
        return format!("{text} in {}", human(elapsed));
    }
    let left = elapsed.mul_f64((all - done) as f64 / done.max(1) as f64);
    format!("{text}, about {} left", human(left))
}

fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_judged_by_what_is_done() {
        let text = |done, seconds| text(done, 400, Duration::from_secs(seconds));
        assert_eq!(text(100, 25), "100 of 400 runs, about 1 min 15 s left");
        assert_eq!(text(4, 60), "4 of 400 runs, about 1 h 39 min left");
        assert_eq!(text(400, 59), "400 of 400 runs in 59 s");
    }
}
