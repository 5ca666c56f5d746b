//! The run as one line each second.

use std::time::Duration;

use bentpipe_emulator::DirectionStatus;

/// How often the run is looked at from outside.
pub const LOOK: Duration = Duration::from_secs(1);

/// The run as one line each second.
#[derive(Default)]
pub struct Progress {
    seconds: u64,
    /// Bytes delivered until the last line.
    before: Vec<u64>,
}

impl Progress {
    /// The line of another second.
    pub fn line(&mut self, statuses: &[DirectionStatus]) -> String {
        self.seconds += LOOK.as_secs();
        let directions = statuses.iter().enumerate().map(|(index, status)| {
            let delivered = status.counters.delivered_bytes;
            let before = self.before.get(index).copied().unwrap_or(0);
            format!(
                "{} {}: {:.3} Mbit/s, queue {} kB, dropped {}, late {:.0} us (p99)",
                status.link,
                status.direction,
                (delivered - before) as f64 * 8e-6 / LOOK.as_secs_f64(),
                status.queue_bytes / 1000,
                status.counters.dropped.total(),
                status.late_p99_us
            )
        });
        let line = directions.collect::<Vec<_>>().join(" | ");
        self.before = statuses
            .iter()
            .map(|status| status.counters.delivered_bytes)
            .collect();
        format!("{} s  {line}", self.seconds)
    }
}
