//! Room that hosts share: a host may hold three times what is still free and no more (dynamic
//! thresholds, Choudhury and Hahne 1998), so that others mostly find some. Where many hosts hold what
//! they can, whoever has fewer takes a place of the one that has most (longest queue drop, Suter and
//! others 1999): in the end all that want more have the same.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::oneshot;

/// One host alone comes to three quarters of the room.
const TIMES_FREE: usize = 3;

/// A bounded number of places, and who holds them.
#[derive(Debug)]
pub(super) struct Room<H> {
    most: usize,
    /// Free ones beside these, which are for others.
    spare: usize,
    taken: usize,
    next: u64,
    /// The places of each holder, the newest last. To drop what stands there is to tell that it is lost.
    held: BTreeMap<H, BTreeMap<u64, oneshot::Sender<()>>>,
    /// Holders by their number of places.
    by_size: BTreeSet<(usize, H)>,
}

/// A place of a room, for who holds it.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) number: u64,
    lost: oneshot::Receiver<()>,
}

impl Seat {
    /// Resolves when the place is given to another.
    pub(super) async fn lost(&mut self) {
        // Nothing is ever sent: it is dropped.
        let _ = (&mut self.lost).await;
    }

    #[cfg(test)]
    pub(super) fn is_lost(&mut self) -> bool {
        self.lost.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }
}

impl<H: Ord + Copy> Room<H> {
    /// `most` free places.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            spare: 0,
            taken: 0,
            next: 0,
            held: BTreeMap::new(),
            by_size: BTreeSet::new(),
        }
    }

    /// There are `most` from now on; what is held stays so. While `spare` others are free that are not for these
    /// holders, one may have more.
    pub(super) fn limit(&mut self, most: usize, spare: usize) {
        self.most = most;
        self.spare = spare;
    }

    /// Whether one that is free may be `holder`'s.
    pub(super) fn is_there_for(&self, holder: H) -> bool {
        let free = self.most.saturating_sub(self.taken);
        free > 0 && self.held(holder) < TIMES_FREE * (free + self.spare)
    }

    /// The one that has most.
    pub(super) fn largest(&self) -> Option<H> {
        self.by_size.last().map(|&(_, largest)| largest)
    }

    /// The same if it has so many more than `holder` that it has not fewer after giving one.
    pub(super) fn largest_beside(&self, holder: H) -> Option<H> {
        let &(size, largest) = self.by_size.last()?;
        (size > self.held(holder) + 1).then_some(largest)
    }

    /// A place for `holder`: one that is free, or the newest of who has most.
    pub(super) fn enter(&mut self, holder: H) -> Option<Seat> {
        if !self.is_there_for(holder) {
            let largest = self.largest_beside(holder)?;
            let (newest, _) = self.held.get(&largest)?.last_key_value()?;
            self.leave(largest, *newest);
        }
        Some(self.take(holder))
    }

    /// Gives `holder` one more, whether it may have it or not.
    pub(super) fn take(&mut self, holder: H) -> Seat {
        let (tell, lost) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.taken += 1;
        self.change(holder, |places| drop(places.insert(number, tell)));
        Seat { number, lost }
    }

    /// `holder` has the place with `number` no longer, if it had it.
    pub(super) fn leave(&mut self, holder: H, number: u64) {
        let mut had = false;
        self.change(holder, |places| had = places.remove(&number).is_some());
        self.taken -= usize::from(had);
    }

    fn change(&mut self, holder: H, change: impl FnOnce(&mut BTreeMap<u64, oneshot::Sender<()>>)) {
        let places = self.held.entry(holder).or_default();
        let before = places.len();
        change(places);
        let after = places.len();
        self.by_size.remove(&(before, holder));
        match after {
            0 => drop(self.held.remove(&holder)),
            _ => drop(self.by_size.insert((after, holder))),
        }
    }

    /// How many `holder` has.
    pub(super) fn held(&self, holder: H) -> usize {
        self.held.get(&holder).map_or(0, BTreeMap::len)
    }

    /// How many all have.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes what there is for `host`.
    fn all(room: &mut Room<usize>, host: usize) -> Vec<Seat> {
        std::iter::from_fn(|| room.enter(host)).collect()
    }

    /// Each takes what it can get, one after the other.
    #[test]
    fn however_many_take_what_they_can_all_have_the_same_and_the_next_finds_some() {
        for hosts in [1, 2, 3, 7, 8, 20, 100, 1000] {
            let mut room = Room::new(16_000);
            let mut seats: Vec<_> = (0..hosts).flat_map(|host| all(&mut room, host)).collect();
            let held: Vec<_> = (0..hosts).map(|host| room.held(host)).collect();
            let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
            assert!(most - least <= 1, "{held:?}");
            assert!(room.taken() >= 12_000 && room.taken() <= 16_000);
            let kept = seats
                .iter_mut()
                .filter_map(|seat| (!seat.is_lost()).then_some(()));
            assert_eq!(kept.count(), room.taken(), "who has lost one is told");
            for _ in 0..10 {
                assert!(room.enter(hosts).is_some(), "beside {hosts}");
            }
            assert!(room.taken() <= 16_000);
        }
    }

    /// In turns they come to equal parts, and nobody loses any.
    #[test]
    fn those_who_take_in_turns_have_the_same() {
        let mut room = Room::new(16_000);
        let mut seats: [Vec<_>; 4] = Default::default();
        loop {
            let before = room.taken();
            for (host, seats) in seats.iter_mut().enumerate() {
                seats.extend(room.enter(host));
            }
            if room.taken() == before {
                break;
            }
        }
        assert!((0..4).all(|host| room.held(host).abs_diff(16_000 * 3 / 13) <= 3));
        assert!(!seats.iter_mut().flatten().any(Seat::is_lost));
        for (host, seats) in seats.iter().enumerate() {
            seats.iter().for_each(|seat| room.leave(host, seat.number));
        }
        assert!(room.taken() == 0 && room.held.is_empty() && room.by_size.is_empty());
    }

    #[test]
    fn who_has_most_loses_its_newest() {
        let mut room = Room::new(4);
        let mut of_first = all(&mut room, 1);
        assert_eq!(of_first.len(), 3);
        let mut of_others: Vec<_> = (2..4).map(|host| room.enter(host).unwrap()).collect();
        assert_eq!(
            of_first.iter_mut().map(Seat::is_lost).collect::<Vec<_>>(),
            [false, false, true]
        );
        // To lose another it would have to have more than who comes.
        assert!(room.enter(2).is_none());
        assert!(!of_others.iter_mut().any(Seat::is_lost));
    }
}
