//! The modules joined: one direction of a link.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use crate::access::{Framed, dvb_rcs2, dvb_s2};
use crate::counters::{Drop, Ledger};
use crate::cross::Source;
use crate::impair::chance::Chance;
use crate::impair::{Damage, Impairments};
use crate::propagate::air::Air;
use crate::propagate::distance::Distance;
use crate::queue::{Entry, Load, Queue};
use crate::random::{self, Stage};
use crate::scenario::{Change, DirectionSpec, RateSpec, Scheduled};
use crate::serialize::{Clock, Sent, Serial, constant, opportunities, trace};
use crate::standstill::Standstill;
use crate::{Cause, Counters, Packet};

/// One direction of a link. See the [crate] for the order of calls.
///
/// Moments passed to the `handle_`, `poll_` and `apply` methods must not decrease.
#[derive(Debug)]
pub struct Direction<P> {
    seed: u64,
    stages: Stages<P>,
    air: Air<P>,
    ledger: Ledger<P>,
    /// Changes to come, the next one first.
    changes: VecDeque<Scheduled>,
}

/// What another link replaces.
#[derive(Debug)]
struct Stages<P> {
    cross: Vec<Source>,
    queue: Queue<P>,
    transmitter: Transmitter<P>,
    standstill: Standstill,
    impair: Impairments,
    distance: Distance,
    reorder: Option<(Chance, Span)>,
}

#[derive(Debug)]
enum Transmitter<P> {
    Serial(Serial<P>),
    Framed(Box<Framed<P>>),
}

/// A packet that has come out at the other end.
#[derive(Debug)]
pub struct Departure<P> {
    /// When it came out, by the model.
    pub at: Time,
    /// The packet.
    pub packet: P,
}

/// A packet that was refused, and why.
#[derive(Debug)]
pub struct Dropped<P> {
    /// Why.
    pub cause: Cause,
    /// The packet.
    pub packet: P,
}

/// What happens next inside.
enum Event {
    Change,
    Transmitter,
    Cross(usize),
}

impl<P: Packet> Direction<P> {
    /// An idle direction. Equal `spec`, `seed` and arrivals give equal departures.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        Self {
            seed,
            stages: Stages::new(spec, seed),
            air: Air::new(),
            ledger: Ledger::new(),
            changes: spec.change.iter().cloned().collect(),
        }
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> &Counters {
        &self.ledger.counters
    }

    /// Packets inside: waiting, being sent, or on the air.
    pub fn held(&self) -> u64 {
        (self.stages.waiting() + self.air.len()) as u64
    }

    /// The queue, to look at.
    pub fn queue(&self) -> &Queue<P> {
        &self.stages.queue
    }

    /// Keeps packets that are dropped inside for [`Self::poll_drop`].
    pub fn keep_drops(&mut self) {
        self.ledger.kept.get_or_insert_default();
    }

    /// The next packet that was dropped inside, if [`Self::keep_drops`] was called.
    /// Packets that [`Self::handle_arrival`] gave back are not among them.
    pub fn poll_drop(&mut self) -> Option<Drop<P>> {
        self.ledger.kept.as_mut()?.pop_front()
    }

    /// A packet comes in at `now`. An error is a drop at the queue, already counted.
    pub fn handle_arrival(&mut self, now: Time, packet: P) -> Result<(), Dropped<P>> {
        self.advance(now);
        let entry = Entry::ours(packet, now);
        let len = entry.len;
        self.ledger.counters.entered += 1;
        self.ledger.counters.entered_bytes += u64::from(len);
        self.stages
            .enter(now, entry, &mut self.ledger)
            .map_err(|(cause, entry)| {
                self.ledger.count(cause, len);
                let Load::Ours(packet) = entry.load else {
                    unreachable!("the entry that was refused is the one that came in");
                };
                Dropped { cause, packet }
            })
    }

    /// The next packet that has come out by `now`; call until `None`.
    pub fn poll_departure(&mut self, now: Time) -> Option<Departure<P>> {
        self.advance(now);
        let (at, packet) = self.air.land(now)?;
        self.ledger.counters.delivered += 1;
        self.ledger.counters.delivered_bytes += packet.ip_len() as u64;
        Some(Departure { at, packet })
    }

    /// When to call [`Self::poll_departure`] next, if nothing comes in before.
    pub fn poll_timeout(&self) -> Option<Time> {
        let arrival = self.air.next_arrival();
        // Without a packet of ours inside, nothing of what happens there shows.
        if self.stages.waiting() == 0 {
            return arrival;
        }
        let change = self.changes.front().map(|change| Time::ZERO + change.at);
        [self.stages.transmitter.next(), change, arrival]
            .into_iter()
            .flatten()
            .min()
    }

    /// Changes the link at `now`. The packet on the transmitter is sent as it began.
    pub fn apply(&mut self, now: Time, change: &Change) {
        self.advance(now);
        self.change(now, change);
    }

    /// Lets everything happen that happens until `now`.
    fn advance(&mut self, now: Time) {
        while let Some((at, event)) = self.next_event().filter(|(at, _)| *at <= now) {
            match event {
                Event::Change => {
                    if let Some(scheduled) = self.changes.pop_front() {
                        self.change(at, &scheduled.change());
                    }
                }
                Event::Transmitter => {
                    if let Some(sent) = self.stages.step(at, &mut self.ledger) {
                        self.launch(at, sent);
                    }
                }
                Event::Cross(number) => {
                    if let Some(entry) = self.stages.cross[number].emit() {
                        // What does not fit of somebody else's is not ours to count.
                        let _ = self.stages.enter(at, entry, &mut self.ledger);
                    }
                }
            }
        }
    }

    /// At the same moment changes come first, then the transmitter.
    fn next_event(&self) -> Option<(Time, Event)> {
        let mut next = self
            .changes
            .front()
            .map(|change| (Time::ZERO + change.at, Event::Change));
        let mut consider = |at: Option<Time>, event: Event| {
            if let Some(at) = at
                && next.as_ref().is_none_or(|(first, _)| at < *first)
            {
                next = Some((at, event));
            }
        };
        consider(self.stages.transmitter.next(), Event::Transmitter);
        for (number, source) in self.stages.cross.iter().enumerate() {
            consider(source.next(), Event::Cross(number));
        }
        next
    }

    /// A packet's last bit has left.
    fn launch(&mut self, left: Time, sent: Sent<P>) {
        let Sent { entry, fate } = sent;
        let stages = &mut self.stages;
        if let Some(cause) = fate.or_else(|| stages.impair.packet_fate(left)) {
            self.ledger.drop(left, entry, cause);
            return;
        }
        let Load::Ours(mut packet) = entry.load else {
            return;
        };
        match stages.impair.damage(&mut packet) {
            Damage::None => {}
            Damage::Done => self.ledger.counters.corrupted += 1,
            Damage::Impossible => {
                let entry = Entry {
                    load: Load::Ours(packet),
                    ..entry
                };
                self.ledger.drop(left, entry, Cause::Corruption);
                return;
            }
        }
        let arrival = stages.distance.arrival(left);
        if stages.impair.duplication.happens()
            && let Some(copy) = packet.duplicate()
        {
            self.ledger.counters.duplicated += 1;
            self.ledger.counters.duplicated_bytes += u64::from(entry.len);
            self.air.launch(arrival, copy);
        }
        let late = stages
            .reorder
            .as_mut()
            .and_then(|(chance, by)| chance.happens().then_some(*by));
        if let Some(late) = late {
            self.ledger.counters.reordered += 1;
            self.air.launch_astray(arrival + late, packet);
        } else {
            self.air.launch(arrival, packet);
        }
    }

    fn change(&mut self, at: Time, change: &Change) {
        if let Some(link) = &change.link {
            // Another link draws other numbers.
            self.seed = random::after_switch(self.seed);
            let old = std::mem::replace(&mut self.stages, Stages::new(link, self.seed));
            for entry in old.into_entries() {
                self.ledger.drop(at, entry, Cause::Switch);
            }
            self.air.change_way();
        }
        if let Some(rate) = change.rate {
            self.stages.set_rate(at, rate, &mut self.ledger);
        }
        if let Some(delay) = change.delay {
            self.stages.distance.set(delay);
        }
        if let Some(loss) = &change.loss {
            self.stages.impair.set_loss(loss, self.seed ^ at.as_nanos());
        }
        if let Some(down) = change.outage {
            self.stages.impair.down = down;
        }
    }
}

impl<P: Packet> Stages<P> {
    fn new(spec: &DirectionSpec, seed: u64) -> Self {
        let mut queue = spec.queue;
        // A scenario has done this with the round trip of the whole path.
        let there_and_back = spec.delay.typical().span() + spec.delay.typical().span();
        queue.resolve(spec.rate.ceiling(), there_and_back);
        Self {
            cross: (0u32..)
                .zip(&spec.cross)
                .map(|(number, cross)| Source::new(*cross, number, seed))
                .collect(),
            queue: Queue::new(&queue, seed),
            transmitter: match &spec.rate {
                RateSpec::Constant(rate) => {
                    Transmitter::serial(Clock::Constant(constant::Clock::new(*rate)))
                }
                RateSpec::Trace(rates) => {
                    Transmitter::serial(Clock::Trace(trace::Clock::new(rates.clone())))
                }
                RateSpec::Mahimahi(moments) => Transmitter::serial(Clock::Opportunities(
                    opportunities::Clock::new(moments.clone()),
                )),
                RateSpec::DvbS2(carrier) => Transmitter::Framed(Box::new(Framed::dvb_s2(
                    dvb_s2::Carrier::new(carrier, seed),
                ))),
                RateSpec::DvbRcs2(terminal) => Transmitter::Framed(Box::new(Framed::dvb_rcs2(
                    dvb_rcs2::Terminal::new(terminal, seed),
                ))),
            },
            standstill: Standstill::new(spec, seed),
            impair: Impairments::new(spec, seed),
            distance: Distance::new(spec, seed),
            reorder: spec.reorder.map(|reorder| {
                (
                    Chance::new(reorder.chance, seed, Stage::Reordering),
                    reorder.by,
                )
            }),
        }
    }

    /// Packets before the air that are to come out.
    fn waiting(&self) -> usize {
        let sending = match &self.transmitter {
            Transmitter::Serial(serial) => serial.ours(),
            Transmitter::Framed(framed) => framed.ours(),
        };
        self.queue.ours() + sending
    }

    /// A packet comes in, ours or somebody else's.
    fn enter(
        &mut self,
        now: Time,
        entry: Entry<P>,
        ledger: &mut Ledger<P>,
    ) -> Result<(), (Cause, Entry<P>)> {
        match &mut self.transmitter {
            // An idle transmitter takes the packet at once: it never waits.
            Transmitter::Serial(serial) if serial.is_idle() => {
                serial.start(now, entry, &self.standstill);
                Ok(())
            }
            Transmitter::Serial(_) => self.queue.push(now, entry, ledger),
            Transmitter::Framed(framed) => {
                self.queue.push(now, entry, ledger)?;
                framed.kick(now, &self.standstill);
                Ok(())
            }
        }
    }

    /// Lets the transmitter do what it does at `at`; a packet may leave.
    fn step(&mut self, at: Time, ledger: &mut Ledger<P>) -> Option<Sent<P>> {
        match &mut self.transmitter {
            Transmitter::Serial(serial) => {
                serial.step(at, &mut self.queue, ledger, &self.standstill)
            }
            Transmitter::Framed(framed) => framed.step(
                at,
                &mut self.queue,
                ledger,
                &mut self.impair,
                &self.standstill,
            ),
        }
    }

    /// A constant rate from now on, whatever sent before.
    fn set_rate(&mut self, at: Time, rate: bentpipe_units::Rate, ledger: &mut Ledger<P>) {
        match &mut self.transmitter {
            Transmitter::Serial(serial) => serial.set_rate(rate),
            Transmitter::Framed(framed) => {
                for entry in framed.evict() {
                    ledger.drop(at, entry, Cause::Switch);
                }
                let mut serial = Serial::new(Clock::Constant(constant::Clock::new(rate)));
                if let Some(first) = self.queue.pop(at, ledger) {
                    serial.start(at, first, &self.standstill);
                }
                self.transmitter = Transmitter::Serial(serial);
            }
        }
    }

    /// All packets that have not left.
    fn into_entries(mut self) -> Vec<Entry<P>> {
        let mut all: Vec<_> = match &mut self.transmitter {
            Transmitter::Serial(serial) => serial.evict().into_iter().collect(),
            Transmitter::Framed(framed) => framed.evict(),
        };
        all.extend(std::iter::from_fn(|| self.queue.evict()));
        all
    }
}

impl<P: Packet> Transmitter<P> {
    fn serial(clock: Clock) -> Self {
        Self::Serial(Serial::new(clock))
    }

    fn next(&self) -> Option<Time> {
        match self {
            Self::Serial(serial) => serial.next(),
            Self::Framed(framed) => framed.next(),
        }
    }
}
