//! Times of which least, median, 95th percentile and largest are told, thinned out where there are many.

use super::records::Spread;

/// Samples that are kept for median and percentile.
const MOST: usize = 1 << 13;

/// Microseconds, in the order in which they were measured.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// One of `every`, the first included.
    kept: Vec<u32>,
    every: u64,
    count: u64,
    least: u32,
    largest: u32,
}

impl Samples {
    pub fn add(&mut self, nanos: u64) {
        let micros = u32::try_from(nanos / 1000).unwrap_or(u32::MAX);
        if self.count == 0 {
            (self.every, self.least) = (1, micros);
        }
        self.least = self.least.min(micros);
        self.largest = self.largest.max(micros);
        if self.kept.len() == MOST {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every *= 2;
        }
        if self.count.is_multiple_of(self.every) {
            self.kept.push(micros);
        }
        self.count += 1;
    }

    pub fn spread(mut self) -> Option<Spread> {
        self.kept.sort_unstable();
        let last = self.kept.len().checked_sub(1)?;
        let at = |percent: usize| self.kept[(last * percent + 50) / 100];
        let ms = |micros: u32| f64::from(micros) / 1000.0;
        Some(Spread {
            least: ms(self.least),
            median: ms(at(50)),
            p95: ms(at(95)),
            largest: ms(self.largest),
            count: self.count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Samples};

    #[test]
    fn a_million_samples_are_thinned_out_evenly() {
        let mut samples = Samples::default();
        for micros in 0..1_000_000 {
            samples.add(micros * 1000);
            assert!(samples.kept.len() <= MOST);
        }
        let spread = samples.spread().expect("there are some");
        assert_eq!(
            (spread.least, spread.largest, spread.count),
            (0.0, 999.999, 1_000_000)
        );
        assert!((spread.median - 500.0).abs() < 1.0, "{}", spread.median);
        assert!((spread.p95 - 950.0).abs() < 1.0, "{}", spread.p95);
        assert!(Samples::default().spread().is_none());
    }
}
