//! What must hold for one direction of a link, whatever comes in.

use bentpipe_link::spec::{DirectionSpec, QueueLimit};
use bentpipe_link::{Cause, Departure, Direction, Packet};
use bentpipe_units::{Bytes, OneWayDelay, Probability, Rate, Span, Time};
use proptest::prelude::*;

/// A packet that knows when it came in and as which.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    number: usize,
    entered: Time,
    ip_len: usize,
}

impl Packet for Probe {
    fn ip_len(&self) -> usize {
        self.ip_len
    }
}

fn spec(rate: u64, delay_us: u64, loss: f64, queue: QueueLimit) -> DirectionSpec {
    DirectionSpec::new(
        Rate::from_bits_per_second(rate),
        OneWayDelay::new(Span::from_nanos(delay_us * 1000)),
        Probability::new(loss).unwrap(),
        queue,
    )
}

fn rate_of(spec: &DirectionSpec) -> Rate {
    spec.rate.ceiling()
}

/// Feeds arrivals (gap to the one before in ns, length) and collects all departures.
fn run(
    spec: &DirectionSpec,
    seed: u64,
    arrivals: &[(u64, usize)],
) -> (Direction<Probe>, Vec<Departure<Probe>>) {
    let mut link = Direction::new(spec, seed);
    let mut out = Vec::new();
    let mut now = Time::ZERO;
    for (number, (gap, ip_len)) in arrivals.iter().enumerate() {
        let arrival = now + Span::from_nanos(*gap);
        drain(&mut link, arrival, &mut out);
        now = arrival;
        let _ = link.handle_arrival(
            now,
            Probe {
                number,
                entered: now,
                ip_len: *ip_len,
            },
        );
        let counters = link.counters();
        assert_eq!(
            counters.entered,
            counters.delivered + counters.dropped.total() + link.held(),
            "conservation at {now:?}"
        );
    }
    drain(&mut link, Time::from_nanos(u64::MAX), &mut out);
    (link, out)
}

/// Takes everything out at the moments that the link asks for, up to `until`.
fn drain(link: &mut Direction<Probe>, until: Time, out: &mut Vec<Departure<Probe>>) {
    while let Some(at) = link.poll_timeout().filter(|at| *at <= until) {
        while let Some(departure) = link.poll_departure(at) {
            assert_eq!(departure.at, at, "out at the moment that was announced");
            out.push(departure);
        }
    }
}

fn queues() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        (1u32..50).prop_map(QueueLimit::Packets),
        (1500u64..200_000).prop_map(|bytes| QueueLimit::Bytes(Bytes::new(bytes))),
    ]
}

prop_compose! {
    fn specs()(rate in 1u64..2_000_000_000, delay_us in 0u64..1_000_000, loss in prop_oneof![Just(0.0), 0.0..=1.0f64], queue in queues()) -> DirectionSpec {
        spec(rate, delay_us, loss, queue)
    }
}

proptest! {
    #[test]
    fn nothing_is_made_up_reordered_or_early(
        spec in specs(),
        seed in any::<u64>(),
        arrivals in prop::collection::vec((0u64..3_000_000, 20usize..1500), 1..300),
    ) {
        let (link, out) = run(&spec, seed, &arrivals);
        let counters = *link.counters();
        prop_assert_eq!(link.held(), 0);
        prop_assert_eq!(counters.entered, counters.delivered + counters.dropped.total());
        prop_assert_eq!(counters.entered_bytes, counters.delivered_bytes + counters.dropped_bytes);
        prop_assert_eq!(counters.delivered, out.len() as u64);
        for pair in out.windows(2) {
            prop_assert!(pair[0].packet.number < pair[1].packet.number, "first in, first out");
            let apart = pair[1].at - pair[0].at;
            let needed = pair[1].packet.ip_len as u128 * 8 * 1_000_000_000 / u128::from(rate_of(&spec).bits_per_second());
            prop_assert!(u128::from(apart.as_nanos()) + 1 >= needed, "never above the rate");
        }
        for departure in &out {
            let alone = rate_of(&spec).time_for(Bytes::new(departure.packet.ip_len as u64)).unwrap();
            let earliest = departure.packet.entered + spec.delay.typical().span() + alone;
            prop_assert!(departure.at.as_nanos() + 1 >= earliest.as_nanos(), "not before delay and serialisation");
        }
    }

    #[test]
    fn the_same_seed_and_arrivals_give_the_same_departures(
        spec in specs(),
        seed in any::<u64>(),
        arrivals in prop::collection::vec((0u64..3_000_000, 20usize..1500), 1..100),
    ) {
        let departures = |(_, out): (_, Vec<Departure<Probe>>)| {
            out.into_iter().map(|d| (d.at, d.packet)).collect::<Vec<_>>()
        };
        prop_assert_eq!(departures(run(&spec, seed, &arrivals)), departures(run(&spec, seed, &arrivals)));
    }

    #[test]
    fn a_saturated_link_sends_at_its_rate_to_the_nanosecond(
        rate in 1_000u64..2_000_000_000,
        lengths in prop::collection::vec(20usize..1500, 2..200),
    ) {
        let queue = QueueLimit::Bytes(Bytes::new(1 << 30));
        let arrivals: Vec<_> = lengths.iter().map(|len| (0, *len)).collect();
        let (_, out) = run(&spec(rate, 0, 0.0, queue), 1, &arrivals);
        let bits: u128 = lengths.iter().map(|len| *len as u128 * 8).sum();
        // All packets together: one rounding, not one for each packet.
        let expected = bits * 1_000_000_000 / u128::from(rate);
        prop_assert_eq!(u128::from(out.last().unwrap().at.as_nanos()), expected);
    }
}

#[test]
fn a_queue_in_packets_holds_that_many_besides_the_one_being_sent() {
    let spec = spec(1_000_000, 0, 0.0, QueueLimit::Packets(25));
    let (link, out) = run(&spec, 1, &[(0, 1000); 100]);
    assert_eq!(
        (out.len(), link.counters().dropped.of(Cause::Queue)),
        (26, 74)
    );
}

#[test]
fn bytes_on_the_air_are_not_in_the_queue() {
    // 250 ms of air hold 416 packets of 1500 bytes at 20 Mbit/s; the queue holds two.
    let spec = spec(
        20_000_000,
        250_000,
        0.0,
        QueueLimit::Bytes(Bytes::new(3000)),
    );
    let (link, out) = run(&spec, 1, &[(600_000, 1500); 1000]);
    assert_eq!(
        (out.len(), link.counters().dropped.of(Cause::Queue)),
        (1000, 0)
    );
}

#[test]
fn losses_come_as_often_as_asked() {
    // 99.99 % binomial interval of 200,000 draws at 1 %: 2000 +- 174.
    let spec = spec(1_000_000_000, 0, 0.01, QueueLimit::Packets(10));
    let (link, _) = run(&spec, 7, &vec![(100_000, 1500); 200_000]);
    let lost = link.counters().dropped.of(Cause::Loss);
    assert!((1826..=2174).contains(&lost), "{lost} of 200000");
}
