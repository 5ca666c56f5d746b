//! Sets of numbers as ranges: which bytes of a stream have been seen.

use std::collections::BTreeMap;

/// Numbers from 0 on, as disjoint ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Start and end (exclusive).
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds `start..end`; how many of these numbers were there already.
    pub fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let (mut first, mut last) = (start, end);
        let mut known = 0;
        let before = self.ranges.range(..=start).next_back();
        if let Some((&from, &to)) = before
            && to >= start
        {
            known += to.min(end) - start;
            (first, last) = (from, last.max(to));
        }
        while let Some((&from, &to)) = self.ranges.range(first.max(start) + 1..=end).next() {
            known += to.min(end) - from.min(end);
            last = last.max(to);
            self.ranges.remove(&from);
        }
        self.ranges.insert(first, last);
        known
    }

    /// Whether `number` is there.
    pub fn contains(&self, number: u64) -> bool {
        let before = self.ranges.range(..=number).next_back();
        before.is_some_and(|(_, &end)| end > number)
    }

    /// How many ranges there are.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Takes the numbers between the first two ranges for seen.
    pub fn close_first_gap(&mut self) {
        let mut starts = self.ranges.iter();
        if let (Some((_, &end)), Some((&next, _))) = (starts.next(), starts.next()) {
            self.insert(end, next);
        }
    }

    /// The end of the range that begins at 0.
    pub fn contiguous(&self) -> u64 {
        match self.ranges.first_key_value() {
            Some((0, &end)) => end,
            _ => 0,
        }
    }

    /// The largest number and one.
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// Gaps between the ranges, and one before the first if it does not begin at 0.
    pub fn gaps(&self) -> usize {
        let leading = self.ranges.keys().next().is_some_and(|start| *start > 0);
        self.ranges.len().saturating_sub(1) + usize::from(leading)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Ranges;

    proptest! {
        #[test]
        fn ranges_are_sets(pieces in prop::collection::vec((0u64..60, 0u64..20), 0..40)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, len) in pieces {
                let known = (start..start + len).filter(|number| !set.insert(*number)).count();
                prop_assert_eq!(ranges.insert(start, start + len), known as u64);
                let contiguous = (0..).take_while(|number| set.contains(number)).count();
                prop_assert_eq!(ranges.contiguous(), contiguous as u64);
                prop_assert_eq!(ranges.end(), set.last().map_or(0, |last| last + 1));
                let gaps = set.iter().filter(|n| **n > 0 && !set.contains(&(**n - 1))).count();
                prop_assert_eq!(ranges.gaps(), gaps);
                prop_assert!((0..90).all(|number| ranges.contains(number) == set.contains(&number)));
            }
            while ranges.count() > 1 {
                let (first, end) = (ranges.count(), ranges.end());
                ranges.close_first_gap();
                prop_assert_eq!((ranges.count(), ranges.end()), (first - 1, end));
            }
        }
    }
}
