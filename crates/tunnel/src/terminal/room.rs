//! Room that hosts share: a host may hold three times what is still free and no more, so that
//! another always finds some (dynamic thresholds, Choudhury and Hahne 1998).

use std::collections::BTreeMap;

/// One host alone comes to three quarters of the room, two to six sevenths.
const TIMES_FREE: usize = 3;

/// A bounded number of places, and how many of them each holder has.
#[derive(Debug)]
pub(super) struct Room<H> {
    most: usize,
    taken: usize,
    held: BTreeMap<H, usize>,
}

impl<H: Ord + Copy> Room<H> {
    /// `most` free places.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            taken: 0,
            held: BTreeMap::new(),
        }
    }

    /// There are `most` from now on; what is held stays so.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Whether `holder` may have one more.
    pub(super) fn is_there_for(&self, holder: H) -> bool {
        let free = self.most.saturating_sub(self.taken);
        self.held(holder) < TIMES_FREE * free
    }

    /// Gives `holder` one more, whether it may have it or not.
    pub(super) fn enter(&mut self, holder: H) {
        self.taken += 1;
        *self.held.entry(holder).or_default() += 1;
    }

    /// The same if it may.
    pub(super) fn try_enter(&mut self, holder: H) -> bool {
        let may = self.is_there_for(holder);
        if may {
            self.enter(holder);
        }
        may
    }

    /// Takes one from `holder`, which has some.
    pub(super) fn leave(&mut self, holder: H) {
        let Some(held) = self.held.get_mut(&holder) else {
            return;
        };
        self.taken -= 1;
        *held -= 1;
        if *held == 0 {
            self.held.remove(&holder);
        }
    }

    /// How many `holder` has.
    pub(super) fn held(&self, holder: H) -> usize {
        self.held.get(&holder).copied().unwrap_or(0)
    }

    /// How many all have.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each takes what it can get, one after the other: what is left of 16,000 then.
    #[test]
    fn however_many_take_what_they_can_the_next_finds_some() {
        for (hosts, left) in [(1, 4000), (2, 1000), (3, 250), (5, 15)] {
            let mut room = Room::new(16_000);
            for host in 0..hosts {
                while room.try_enter(host) {}
            }
            assert_eq!(16_000 - room.taken(), left, "{hosts} hosts");
            assert!(room.try_enter(hosts));
        }
    }

    /// In turns they come to equal parts.
    #[test]
    fn those_who_take_in_turns_have_the_same() {
        let mut room = Room::new(16_000);
        while (0..4).filter(|host| room.try_enter(*host)).count() > 0 {}
        assert!((0..4).all(|host| room.held(host).abs_diff(16_000 * 3 / 13) <= 3));
        for host in 0..4 {
            (0..room.held(host)).for_each(|_| room.leave(host));
        }
        assert!(room.taken() == 0 && room.held.is_empty());
    }
}
