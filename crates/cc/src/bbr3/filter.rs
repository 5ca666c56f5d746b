//! A windowed maximum (Kathleen Nichols' algorithm in effect): the largest value of the
//! last so many rounds or cycles.

use std::collections::VecDeque;

/// Values falling, times rising; the front is the maximum.
#[derive(Debug, Clone, Default)]
pub(super) struct WindowedMax {
    values: VecDeque<(u64, f64)>,
}

impl WindowedMax {
    pub(super) fn get(&self) -> f64 {
        self.values.front().map_or(0.0, |(_, value)| *value)
    }

    /// Adds `value` at `time`; forgets what is `length` older and more.
    pub(super) fn update(&mut self, value: f64, time: u64, length: u64) {
        while self.values.back().is_some_and(|(_, last)| *last <= value) {
            self.values.pop_back();
        }
        self.values.push_back((time, value));
        while self
            .values
            .front()
            .is_some_and(|(at, _)| at + length <= time)
        {
            self.values.pop_front();
        }
    }
}
