//! The schedule of a run: what changes about its links at moments to come.

use std::collections::VecDeque;

use bentpipe_link::{Directions, ScheduledChange};
use bentpipe_units::{Span, Time};

/// The planned changes of a run's links, the next one first.
#[derive(Debug, Default)]
pub(super) struct Schedule(VecDeque<(Time, PlannedChange)>);

impl Schedule {
    pub fn add(&mut self, at: Time, change: PlannedChange) {
        let place = self.0.partition_point(|(other, _)| *other <= at);
        self.0.insert(place, (at, change));
    }

    /// When the next change is due.
    pub fn next(&self) -> Option<Time> {
        self.0.front().map(|(at, _)| *at)
    }

    /// A change that is due, and since when.
    pub fn take(&mut self, now: Time) -> Option<(Time, PlannedChange)> {
        self.0.pop_front_if(|(at, _)| *at <= now)
    }
}

/// A change that the scenario plans, as it is told of. The link model makes it by itself,
/// except for an address, of which the model knows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedChange {
    /// The link's place among the plans.
    pub link: usize,
    /// Of which directions.
    pub directions: Directions,
    /// What changes.
    pub what: String,
    /// The terminal's device gets its next address.
    pub new_address: bool,
}

/// What a scenario plans for a link with these changes, each with its moment, and
/// with a new address at some of its switches.
pub(super) fn planned(
    link: usize,
    forward: &[ScheduledChange],
    back: &[ScheduledChange],
    new_address_at: &[Span],
) -> Vec<(Span, PlannedChange)> {
    let plan = |directions, what: String, new_address| PlannedChange {
        link,
        directions,
        what,
        new_address,
    };
    let addresses = new_address_at.iter().map(|at| {
        let what = "switch, new_address=true".into();
        (*at, plan(Directions::Both, what, true))
    });
    let directions = [(forward, Directions::Forward), (back, Directions::Return)];
    let changes = directions.into_iter().flat_map(|(changes, direction)| {
        changes.iter().filter_map(move |scheduled| {
            let what = scheduled.change.to_string();
            let at = scheduled.at;
            match (&scheduled.change.link, direction) {
                (None, _) => Some((at, plan(direction, what, false))),
                // A switch is of both directions, and told once.
                (Some(_), Directions::Forward) if !new_address_at.contains(&at) => {
                    Some((at, plan(Directions::Both, what, false)))
                }
                (Some(_), _) => None,
            }
        })
    });
    addresses.chain(changes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_at_their_moments_and_in_order() {
        let at = Time::from_nanos;
        let change = |link| PlannedChange {
            link,
            directions: Directions::Both,
            what: String::new(),
            new_address: false,
        };
        let mut schedule = Schedule::default();
        for (moment, link) in [(30, 3), (10, 1), (20, 2)] {
            schedule.add(at(moment), change(link));
        }
        assert_eq!(schedule.next(), Some(at(10)));
        assert_eq!(schedule.take(at(9)), None);
        assert_eq!(schedule.take(at(25)), Some((at(10), change(1))));
        assert_eq!(schedule.take(at(25)), Some((at(20), change(2))));
        assert_eq!(schedule.take(at(25)), None);
        assert_eq!(schedule.next(), Some(at(30)));
    }

    #[test]
    fn a_scenarios_plan_is_told_direction_by_direction_and_its_switches_once() {
        let link = "rate = \"9 Mbit/s\"\ndelay = \"9 ms\"\nqueue = \"9 kB\"";
        let text = format!(
            "name = \"planned\"\n\
             [forward]\n{link}\nchange = [{{ at = \"1 s\", rate = \"5 Mbit/s\", loss = \"1 %\" }}]\n\
             [return]\n{link}\nchange = [{{ at = \"95 s\", outage = true }}]\n\
             [[switch]]\nat = \"90 s\"\n\
             [switch.forward]\n{link}\n[switch.return]\n{link}\n"
        );
        let scenario = bentpipe_link::Scenario::parse(&text).unwrap();
        let told = |new_address_at: &[Span]| -> Vec<_> {
            planned(
                0,
                &scenario.forward.change,
                &scenario.r#return.change,
                new_address_at,
            )
            .into_iter()
            .map(|(at, it)| {
                (
                    at.as_nanos() / 1_000_000,
                    it.directions,
                    it.what,
                    it.new_address,
                )
            })
            .collect()
        };
        let rate = (
            1000,
            Directions::Forward,
            "loss=1 %, rate=5 Mbit/s".to_owned(),
            false,
        );
        let outage = (95_000, Directions::Return, "outage=true".to_owned(), false);
        assert_eq!(
            told(&[]),
            [
                rate.clone(),
                (90_000, Directions::Both, "switch".into(), false),
                outage.clone()
            ]
        );
        assert_eq!(
            told(&[Span::from_millis(90_000)]),
            [
                (
                    90_000,
                    Directions::Both,
                    "switch, new_address=true".into(),
                    true
                ),
                rate,
                outage
            ]
        );
    }
}
