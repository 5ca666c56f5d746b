//! Fair queues with controlled delay, RFC 8290: flows take turns, new ones
//! first, and each has a CoDel of its own.

use std::collections::VecDeque;

use bentpipe_units::Time;

use super::codel::{CoDel, Signal};
use crate::entry::Entry;
use crate::fifo::Fifo;
use crate::packet::Packet;
use crate::spec::FqCoDelSpec;

/// The queues of all flows.
#[derive(Debug)]
pub struct FqCoDel<P> {
    flows: Vec<Flow<P>>,
    /// Flows that have just begun to send, then those that go on (section 4.2).
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    quantum: i64,
    packets: usize,
    bytes: u64,
}

#[derive(Debug)]
struct Flow<P> {
    queue: Fifo<P>,
    codel: CoDel,
    /// Bytes it may still send in this turn.
    credit: i64,
    listed: bool,
}

impl<P: Packet> FqCoDel<P> {
    /// Empty queues.
    pub fn new(spec: &FqCoDelSpec) -> Self {
        Self {
            flows: (0..spec.flows)
                .map(|_| Flow {
                    queue: Fifo::new(),
                    codel: CoDel::new(spec.target, spec.interval, spec.ecn),
                    credit: 0,
                    listed: false,
                })
                .collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum: i64::try_from(spec.quantum.as_u64()).unwrap_or(i64::MAX),
            packets: 0,
            bytes: 0,
        }
    }

    /// Packets in all queues.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Bytes in all queues.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Section 4.1: into the queue of its flow.
    pub(crate) fn push(&mut self, entry: Entry<P>) {
        let number = entry.flow() % self.flows.len() as u64;
        let number = u16::try_from(number).expect("there are at most 65535 queues");
        self.packets += 1;
        self.bytes += u64::from(entry.len);
        let flow = &mut self.flows[usize::from(number)];
        flow.queue.push(entry);
        if !flow.listed {
            flow.listed = true;
            flow.credit = self.quantum;
            self.new.push_back(number);
        }
    }

    /// Section 4.2: the next packet to send.
    pub(crate) fn pop(
        &mut self,
        now: Time,
        signal: &mut impl FnMut(Signal<'_, P>) -> bool,
    ) -> Option<Entry<P>> {
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            let number = *list.front()?;
            let flow = &mut self.flows[usize::from(number)];
            if flow.credit <= 0 {
                flow.credit += self.quantum;
                list.pop_front();
                self.old.push_back(number);
                continue;
            }
            let (packets, bytes) = (flow.queue.len(), flow.queue.bytes());
            let taken = flow.codel.pop(now, &mut flow.queue, signal);
            self.packets -= packets - flow.queue.len();
            self.bytes -= bytes - flow.queue.bytes();
            match taken {
                Some(entry) => {
                    flow.credit -= i64::from(entry.len);
                    return Some(entry);
                }
                // A new flow that is empty goes to the old ones first, so that it
                // cannot be new again before all others had a turn.
                None => {
                    list.pop_front();
                    if from_new {
                        self.old.push_back(number);
                    } else {
                        flow.listed = false;
                    }
                }
            }
        }
    }

    /// Section 4.1: half of the packets, at most `most`, from the head of the queue
    /// with the most bytes. Several at once, so that it is seldom searched for.
    pub(crate) fn shed(&mut self, most: usize) -> Vec<Entry<P>> {
        let fattest = self
            .flows
            .iter_mut()
            .rev()
            .max_by_key(|flow| flow.queue.bytes());
        let Some(fattest) = fattest.filter(|flow| flow.queue.len() > 0) else {
            return Vec::new();
        };
        let half = (fattest.queue.len() / 2).clamp(1, most);
        let shed: Vec<_> = std::iter::from_fn(|| fattest.queue.pop())
            .take(half)
            .collect();
        self.packets -= shed.len();
        self.bytes -= shed.iter().map(|entry| u64::from(entry.len)).sum::<u64>();
        shed
    }
}
