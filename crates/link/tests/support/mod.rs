//! A packet that knows its history, and a way to push packets through a link.
#![allow(dead_code, reason = "each test uses its share")]

pub mod grammar;

use bentpipe_link::spec::DirectionSpec;
use bentpipe_link::{Departure, Direction, Packet, Scenario, Seed};
use bentpipe_units::{Span, Time};

/// A packet that knows when it came in and as which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub number: usize,
    pub entered: Time,
    pub ip_len: usize,
    pub flow: u64,
    /// Can be marked.
    pub ecn: bool,
    pub marked: bool,
    pub damaged: bool,
}

impl Packet for Probe {
    fn ip_len(&self) -> usize {
        self.ip_len
    }
    fn flow(&self) -> u64 {
        self.flow
    }
    fn mark_ce(&mut self) -> bool {
        self.marked |= self.ecn;
        self.ecn
    }
    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
    fn corrupt(&mut self, _: u64) -> bool {
        self.damaged = true;
        true
    }
}

/// One packet to send: gap to the one before in ns, length, flow.
pub type Arrival = (u64, usize, u64);

/// Feeds arrivals and collects what comes out until `until` after the last of them.
pub fn run(
    spec: &DirectionSpec,
    seed: impl Into<Seed>,
    ecn: bool,
    arrivals: &[Arrival],
    until: Span,
) -> (Direction<Probe>, Vec<Departure<Probe>>) {
    let mut link = Direction::new(spec, seed);
    let mut out = Vec::new();
    let mut now = Time::ZERO;
    for (number, (gap, ip_len, flow)) in arrivals.iter().enumerate() {
        let arrival = now + Span::from_nanos(*gap);
        drain(&mut link, arrival, &mut out);
        now = arrival;
        let _ = link.handle_arrival(
            now,
            Probe {
                number,
                entered: now,
                ip_len: *ip_len,
                flow: *flow,
                ecn,
                marked: false,
                damaged: false,
            },
        );
        conserved(&link);
    }
    drain(&mut link, now + until, &mut out);
    conserved(&link);
    (link, out)
}

/// Bytes in = bytes out + bytes dropped + bytes held, at every moment.
fn conserved(link: &Direction<Probe>) {
    let counters = link.counters();
    assert_eq!(
        counters.entered + counters.duplicated,
        counters.delivered + counters.dropped.total() + link.held(),
        "conservation"
    );
}

/// Takes everything out at the moments that the link asks for, up to `until`.
pub fn drain(link: &mut Direction<Probe>, until: Time, out: &mut Vec<Departure<Probe>>) {
    let mut before = Time::ZERO;
    while let Some(at) = link.poll_timeout().filter(|at| *at <= until) {
        assert!(at >= before, "time goes on");
        before = at;
        while let Some(departure) = link.poll_departure(at) {
            assert_eq!(departure.at, at, "out at the moment that was announced");
            out.push(departure);
        }
        assert_ne!(
            link.poll_timeout(),
            Some(at),
            "what was asked for has been done"
        );
    }
}

/// A scenario with this `[forward]`; its return is plain.
pub fn forward(text: &str) -> DirectionSpec {
    let text = format!(
        "name = \"t\"\n[forward]\n{text}\n[return]\nrate = \"1 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"100 packets\"\n"
    );
    Scenario::parse(&text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .forward
}
