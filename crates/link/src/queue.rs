//! The queue before the transmitter: what it holds, and by which discipline.

use bentpipe_units::{Bytes, Time};

use crate::accounting::Accounting;
use crate::aqm::codel::{CoDel, Signal};
use crate::aqm::fq_codel::FqCoDel;
use crate::aqm::pie::Pie;
use crate::counters::Cause;
use crate::entry::Entry;
use crate::fifo::Fifo;
use crate::packet::Packet;
use crate::spec::{QueueLimit, QueueSpec};

/// What waits for the transmitter. What the transmitter holds is not among it.
#[derive(Debug)]
pub struct Queue<P> {
    limit: QueueLimit,
    discipline: Discipline<P>,
    /// Bytes that were let in so far, cross traffic included.
    admitted_bytes: u64,
    /// Packets waiting that are to come out at the other end.
    ours: usize,
}

#[derive(Debug)]
enum Discipline<P> {
    DropTail(Fifo<P>),
    /// Marks what comes while more than this waits.
    Marking(Fifo<P>, QueueLimit),
    CoDel(Fifo<P>, CoDel),
    Pie(Fifo<P>, Box<Pie>),
    FqCoDel(Box<FqCoDel<P>>),
}

impl<P: Packet> Queue<P> {
    /// An empty queue. The limit must be in packets or bytes.
    pub(crate) fn new(spec: &QueueSpec, seed: u64) -> Self {
        Self {
            limit: spec.limit(),
            discipline: match spec {
                QueueSpec::DropTail(_) => Discipline::DropTail(Fifo::new()),
                QueueSpec::Marking(spec) => Discipline::Marking(Fifo::new(), spec.above),
                QueueSpec::CoDel(spec) => Discipline::CoDel(
                    Fifo::new(),
                    CoDel::new(spec.target, spec.interval, spec.ecn),
                ),
                QueueSpec::Pie(spec) => {
                    Discipline::Pie(Fifo::new(), Box::new(Pie::new(spec, seed)))
                }
                QueueSpec::FqCoDel(spec) => Discipline::FqCoDel(Box::new(FqCoDel::new(spec))),
            },
            admitted_bytes: 0,
            ours: 0,
        }
    }

    /// Another limit, and threshold, of the same discipline. What waits beyond it stays, and
    /// one full packet always has room, however little it is in time at a low rate.
    pub(crate) fn set_limit(&mut self, spec: &QueueSpec) {
        const FULL_PACKET: Bytes = Bytes::new(1500);
        self.limit = match spec.limit() {
            QueueLimit::Bytes(bytes) => QueueLimit::Bytes(bytes.max(FULL_PACKET)),
            limit => limit,
        };
        if let (Discipline::Marking(_, above), QueueSpec::Marking(spec)) =
            (&mut self.discipline, spec)
        {
            *above = spec.above;
        }
    }

    /// Another queue takes over what waits, as far as it has room.
    pub(crate) fn replace(
        &mut self,
        now: Time,
        spec: &QueueSpec,
        seed: u64,
        accounting: &mut Accounting<P>,
    ) {
        let mut next = Self::new(spec, seed);
        while let Some(entry) = self.evict() {
            if let Err((cause, entry)) = next.push(now, entry, accounting) {
                accounting.drop(now, entry, cause);
            }
        }
        // What was let in before counts once.
        next.admitted_bytes = self.admitted_bytes;
        *self = next;
    }

    /// Packets that wait, cross traffic included.
    pub fn len(&self) -> usize {
        match &self.discipline {
            Discipline::DropTail(fifo)
            | Discipline::Marking(fifo, _)
            | Discipline::CoDel(fifo, _)
            | Discipline::Pie(fifo, _) => fifo.len(),
            Discipline::FqCoDel(queues) => queues.len(),
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes at the IP level that wait, cross traffic included.
    pub fn bytes(&self) -> u64 {
        match &self.discipline {
            Discipline::DropTail(fifo)
            | Discipline::Marking(fifo, _)
            | Discipline::CoDel(fifo, _)
            | Discipline::Pie(fifo, _) => fifo.bytes(),
            Discipline::FqCoDel(queues) => queues.bytes(),
        }
    }

    /// The chance with which PIE drops what comes in now.
    pub fn drop_chance(&self) -> Option<f64> {
        match &self.discipline {
            Discipline::Pie(_, pie) => Some(pie.drop_chance()),
            _ => None,
        }
    }

    pub(crate) fn ours(&self) -> usize {
        self.ours
    }

    pub(crate) fn admitted_bytes(&self) -> u64 {
        self.admitted_bytes
    }

    fn fits(&self, len: u32) -> bool {
        match self.limit {
            QueueLimit::Packets(most) => self.len() < most as usize,
            QueueLimit::Bytes(most) => self.bytes() + u64::from(len) <= most.as_u64(),
            QueueLimit::Time(_) | QueueLimit::Bdp(_) => {
                unreachable!("a direction resolves its queue's limit")
            }
        }
    }

    /// Takes `entry` in, or gives it back with the reason.
    pub(crate) fn push(
        &mut self,
        now: Time,
        mut entry: Entry<P>,
        accounting: &mut Accounting<P>,
    ) -> Result<(), (Cause, Entry<P>)> {
        let fits = self.fits(entry.len);
        let ours = usize::from(entry.is_ours());
        let len = u64::from(entry.len);
        match &mut self.discipline {
            Discipline::FqCoDel(queues) => {
                // RFC 8290, section 4.1: the new packet always enters; when there
                // is no room, the longest queue loses half of its packets, at most 64.
                queues.push(entry);
                self.ours += ours;
                self.admitted_bytes += len;
                while !self.within_limit() {
                    let Discipline::FqCoDel(queues) = &mut self.discipline else {
                        unreachable!("the discipline does not change");
                    };
                    let victims = queues.shed(64);
                    if victims.is_empty() {
                        break;
                    }
                    for victim in victims {
                        self.ours -= usize::from(victim.is_ours());
                        accounting.drop(now, victim, Cause::Queue);
                    }
                }
                return Ok(());
            }
            Discipline::Pie(_, pie) if !fits => {
                pie.forced_drop();
                return Err((Cause::Queue, entry));
            }
            _ if !fits => return Err((Cause::Queue, entry)),
            Discipline::Pie(fifo, pie) => {
                if !pie.admits(now, fifo, &mut entry, accounting) {
                    return Err((Cause::Management, entry));
                }
                fifo.push(entry);
            }
            Discipline::Marking(fifo, above) => {
                let marks = match above {
                    QueueLimit::Packets(most) => fifo.len() > *most as usize,
                    QueueLimit::Bytes(most) => fifo.bytes() > most.as_u64(),
                    QueueLimit::Time(_) | QueueLimit::Bdp(_) => {
                        unreachable!("a direction resolves its queue's threshold")
                    }
                };
                if marks {
                    accounting.mark(&mut entry);
                }
                fifo.push(entry);
            }
            Discipline::DropTail(fifo) | Discipline::CoDel(fifo, _) => fifo.push(entry),
        }
        self.ours += ours;
        self.admitted_bytes += len;
        Ok(())
    }

    fn within_limit(&self) -> bool {
        match self.limit {
            QueueLimit::Packets(most) => self.len() <= most as usize,
            QueueLimit::Bytes(most) => self.bytes() <= most.as_u64() || self.len() <= 1,
            QueueLimit::Time(_) | QueueLimit::Bdp(_) => true,
        }
    }

    /// Takes the next packet to send out.
    pub(crate) fn pop(&mut self, now: Time, accounting: &mut Accounting<P>) -> Option<Entry<P>> {
        let entry = match &mut self.discipline {
            Discipline::DropTail(fifo) | Discipline::Marking(fifo, _) => fifo.pop(),
            Discipline::CoDel(fifo, codel) => {
                let ours = &mut self.ours;
                codel.pop(now, fifo, &mut |event| settle(event, now, ours, accounting))
            }
            Discipline::Pie(fifo, pie) => pie.pop(now, fifo),
            Discipline::FqCoDel(queues) => {
                let ours = &mut self.ours;
                queues.pop(now, &mut |event| settle(event, now, ours, accounting))
            }
        }?;
        self.ours -= usize::from(entry.is_ours());
        Some(entry)
    }

    /// Takes the longest-waiting packet out without asking anybody.
    pub(crate) fn evict(&mut self) -> Option<Entry<P>> {
        let entry = match &mut self.discipline {
            Discipline::DropTail(fifo)
            | Discipline::Marking(fifo, _)
            | Discipline::CoDel(fifo, _)
            | Discipline::Pie(fifo, _) => fifo.pop(),
            Discipline::FqCoDel(queues) => queues.shed(1).pop(),
        }?;
        self.ours -= usize::from(entry.is_ours());
        Some(entry)
    }
}

fn settle<P: Packet>(
    signal: Signal<'_, P>,
    now: Time,
    ours: &mut usize,
    accounting: &mut Accounting<P>,
) -> bool {
    match signal {
        Signal::Drop(entry) => {
            *ours -= usize::from(entry.is_ours());
            accounting.drop(now, entry, Cause::Management);
            true
        }
        Signal::Mark(entry) => accounting.mark(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{DirectionSpec, Scenario};

    struct Probe;

    impl Packet for Probe {
        fn ip_len(&self) -> usize {
            1500
        }
    }

    /// A full queue that PIE manages and is about to drop from, and what it does with a packet
    /// that finds room after `before` that did not.
    fn after(before: usize) -> Result<(), Cause> {
        let text = "name = \"pie\"\n\
            [forward]\nrate = \"1 Mbit/s\"\ndelay = \"0 ms\"\nqueue.pie = { limit = \"3 packets\" }\n\
            [return]\nrate = \"1 Mbit/s\"\ndelay = \"0 ms\"\nqueue = \"3 packets\"\n";
        let DirectionSpec { queue, .. } = Scenario::parse(text).expect("a scenario").forward;
        let (mut queue, mut accounting) = (Queue::new(&queue, 1), Accounting::new());
        let mut push = |queue: &mut Queue<Probe>| {
            let entry = Entry::ours(Probe, Time::ZERO);
            queue
                .push(Time::ZERO, entry, &mut accounting)
                .map_err(|(cause, _)| cause)
        };
        (0..3).for_each(|_| assert_eq!(push(&mut queue), Ok(())));
        let Discipline::Pie(_, pie) = &mut queue.discipline else {
            unreachable!("it was asked for");
        };
        pie.about_to_drop();
        (0..before).for_each(|_| assert_eq!(push(&mut queue), Err(Cause::Queue)));
        queue.evict();
        push(&mut queue)
    }

    #[test]
    fn a_drop_for_lack_of_room_is_a_drop_to_pie() {
        assert_eq!(after(0), Err(Cause::Management));
        assert_eq!(after(1), Ok(()));
    }
}
