//! One direction of a link: the stages joined.

use std::collections::VecDeque;

use bentpipe_units::{Rate, Span, Time};

use crate::accounting::{Accounting, Drop};
use crate::block::TransmitterGate;
use crate::counters::{Cause, Counters};
use crate::cross::Source;
use crate::entry::{Entry, Load, Sent};
use crate::impair::{Impairments, Survivor};
use crate::packet::Packet;
use crate::propagate::delay::PathDelay;
use crate::propagate::propagation_delay::PropagationDelay;
use crate::queue::Queue;
use crate::random::{self, Seed};
use crate::spec::{Change, DirectionSpec, QueueSpec, ScheduledChange};
use crate::transmit::Transmitter;

/// One direction of a link. See the [crate] for the order of calls.
///
/// Moments passed to the `handle_`, `poll_` and `apply` methods must not decrease.
#[derive(Debug)]
pub struct Direction<P> {
    seed: Seed,
    stages: Stages<P>,
    propagation: PropagationDelay<P>,
    accounting: Accounting<P>,
    /// Changes to come, the next one first.
    changes: VecDeque<ScheduledChange>,
}

/// What another link replaces.
#[derive(Debug)]
struct Stages<P> {
    cross: Vec<Source>,
    /// As it was asked for: a limit in time is what that takes at the rate of the moment.
    queue_spec: QueueSpec,
    /// What the transmitter sends at best, and the round trip of this link.
    ceiling: Rate,
    round_trip: Span,
    queue: Queue<P>,
    transmitter: Transmitter<P>,
    gate: TransmitterGate,
    impair: Impairments,
    delay: PathDelay,
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
    /// An idle direction. Equal `spec`, `seed` and arrivals give equal departures. A link's
    /// two directions have their seeds from [`Seeds`](crate::Seeds).
    pub fn new(spec: &DirectionSpec, seed: impl Into<Seed>) -> Self {
        let seed = seed.into();
        Self {
            seed,
            stages: Stages::new(spec, seed),
            propagation: PropagationDelay::new(),
            accounting: Accounting::new(),
            changes: spec.change.iter().cloned().collect(),
        }
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> &Counters {
        &self.accounting.counters
    }

    /// Packets inside: waiting, being sent, or on the air.
    pub fn held(&self) -> u64 {
        (self.stages.waiting() + self.propagation.len()) as u64
    }

    /// The queue, to look at.
    pub fn queue(&self) -> &Queue<P> {
        &self.stages.queue
    }

    /// Keeps packets that are dropped inside for [`Self::poll_drop`].
    pub fn keep_drops(&mut self) {
        self.accounting.kept.get_or_insert_default();
    }

    /// The next packet that was dropped inside, if [`Self::keep_drops`] was called.
    /// Packets that [`Self::handle_arrival`] gave back are not among them.
    pub fn poll_drop(&mut self) -> Option<Drop<P>> {
        self.accounting.kept.as_mut()?.pop_front()
    }

    /// A packet comes in at `now`. An error is a drop at the queue, already counted.
    pub fn handle_arrival(&mut self, now: Time, packet: P) -> Result<(), Dropped<P>> {
        self.advance(now);
        let entry = Entry::ours(packet, now);
        let len = entry.len;
        self.accounting.counters.entered += 1;
        self.accounting.counters.entered_bytes += u64::from(len);
        self.stages
            .enter(now, entry, &mut self.accounting)
            .map_err(|(cause, entry)| {
                self.accounting.count(cause, len);
                let Load::Ours(packet) = entry.load else {
                    unreachable!("the entry that was refused is the one that came in");
                };
                Dropped { cause, packet }
            })
    }

    /// The next packet that has come out by `now`; call until `None`.
    pub fn poll_departure(&mut self, now: Time) -> Option<Departure<P>> {
        self.advance(now);
        let (at, packet) = self.propagation.deliver(now)?;
        self.accounting.counters.delivered += 1;
        self.accounting.counters.delivered_bytes += packet.ip_len() as u64;
        Some(Departure { at, packet })
    }

    /// When to call [`Self::poll_departure`] next, if nothing comes in before.
    pub fn poll_timeout(&self) -> Option<Time> {
        let arrival = self.propagation.next_arrival();
        // Without a packet of ours inside, nothing of what happens there shows.
        if self.stages.waiting() == 0 {
            return arrival;
        }
        let change = self.changes.front().map(|change| Time::ZERO + change.at);
        // What is held behind a missing frame goes on with the next frames, somebody else's too.
        let stages = &self.stages;
        let cross = (stages.cross.iter())
            .filter(|_| stages.transmitter.holds())
            .filter_map(Source::next)
            .min();
        let transmitter = stages.transmitter.next().or(cross);
        [transmitter, change, arrival].into_iter().flatten().min()
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
                        self.change(at, &scheduled.change);
                    }
                }
                Event::Transmitter => {
                    let stages = &mut self.stages;
                    let sent = stages.transmitter.step(
                        at,
                        &mut stages.queue,
                        &mut self.accounting,
                        &mut stages.impair,
                        &stages.gate,
                    );
                    if let Some(sent) = sent {
                        self.send(at, sent);
                    }
                }
                Event::Cross(number) => {
                    if let Some(entry) = self.stages.cross[number].emit() {
                        // What does not fit of somebody else's is not ours to count.
                        let _ = self.stages.enter(at, entry, &mut self.accounting);
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
    fn send(&mut self, left: Time, sent: Sent<P>) {
        let stages = &mut self.stages;
        let Some(Survivor { packet, copy, late }) =
            stages.impair.apply(left, sent, &mut self.accounting)
        else {
            return;
        };
        let arrival = stages.delay.arrival(left);
        if let Some(copy) = copy {
            self.propagation.send(arrival, copy);
        }
        match late {
            Some(late) => self.propagation.send_out_of_order(arrival + late, packet),
            None => self.propagation.send(arrival, packet),
        }
    }

    fn change(&mut self, at: Time, change: &Change) {
        if let Some(link) = &change.link {
            // Another link draws other numbers.
            self.seed = random::after_switch(self.seed);
            let old = std::mem::replace(&mut self.stages, Stages::new(link, self.seed));
            for entry in old.into_entries() {
                self.accounting.drop(at, entry, Cause::Switch);
            }
            self.propagation.change_path();
        }
        if let Some(rate) = change.rate {
            let stages = &mut self.stages;
            stages.transmitter.set_rate(
                at,
                rate,
                &mut stages.queue,
                &mut self.accounting,
                &stages.gate,
            );
            stages.ceiling = rate;
            let resolved = stages.queue_spec.resolved(rate, stages.round_trip);
            stages.queue.set_limit(&resolved);
        }
        if let Some(queue) = change.queue {
            let stages = &mut self.stages;
            stages.queue_spec = queue;
            let resolved = queue.resolved(stages.ceiling, stages.round_trip);
            stages
                .queue
                .replace(at, &resolved, self.seed.own, &mut self.accounting);
        }
        if let Some(delay) = change.delay {
            self.stages.delay.set(delay);
        }
        // What is changed draws other numbers than before.
        let seed = self.seed.own ^ at.as_nanos();
        if let Some(jitter) = change.jitter {
            self.stages.delay.set_jitter(jitter, seed);
        }
        self.stages.impair.change(change, seed);
        if let Some(outage) = change.outage {
            self.stages.impair.set_outage(at, outage);
        }
    }
}

impl<P: Packet> Stages<P> {
    fn new(spec: &DirectionSpec, seed: Seed) -> Self {
        let round_trip = spec.delay.typical().span() + spec.delay.typical().span();
        let ceiling = spec.rate.ceiling();
        Self {
            cross: (0u32..)
                .zip(&spec.cross)
                .map(|(number, cross)| Source::new(*cross, number, seed.own))
                .collect(),
            queue_spec: spec.queue,
            ceiling,
            round_trip,
            queue: Queue::new(&spec.queue.resolved(ceiling, round_trip), seed.own),
            transmitter: Transmitter::new(spec, seed.own),
            gate: TransmitterGate::new(spec),
            impair: Impairments::new(spec, seed.own),
            delay: PathDelay::new(spec, seed),
        }
    }

    /// Packets before the air that are to come out.
    fn waiting(&self) -> usize {
        self.queue.ours() + self.transmitter.ours()
    }

    /// A packet comes in, ours or somebody else's.
    fn enter(
        &mut self,
        now: Time,
        entry: Entry<P>,
        accounting: &mut Accounting<P>,
    ) -> Result<(), (Cause, Entry<P>)> {
        self.transmitter
            .enter(now, entry, &mut self.queue, accounting, &self.gate)
    }

    /// All packets that have not left.
    fn into_entries(mut self) -> Vec<Entry<P>> {
        let mut all = self.transmitter.evict();
        all.extend(std::iter::from_fn(|| self.queue.evict()));
        all
    }
}
