//! Bytes of a connection's streams, counted as they come and go, and its stretches of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bentpipe_units::Span;

use crate::clock::Clock;
use crate::report::{Carried, ConnectionReport, Interval, Record, nanos};
use crate::transport::Connection;

/// Intervals that are kept, times connections.
const MOST_SENDERS: usize = 100_001;

/// Counts of one connection.
#[derive(Debug)]
pub struct Meter {
    clock: Clock,
    received: AtomicU64,
    sent: AtomicU64,
    /// Of these, what was refused as early data and is to be sent again.
    refused: AtomicU64,
    /// Nanoseconds and one, so that zero is never.
    first: AtomicU64,
    last: AtomicU64,
}

impl Meter {
    /// Counts from zero, with moments on `clock`.
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// `bytes` have arrived.
    pub(crate) fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        let now = nanos(self.clock.now()).saturating_add(1);
        self.last.store(now, Ordering::Relaxed);
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(now, Ordering::Relaxed);
        }
    }

    /// `bytes` were handed to the transport.
    pub(crate) fn sent(&self, bytes: u64) {
        let take = |refused: u64| Some(refused.saturating_sub(bytes));
        let refused = match self
            .refused
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            Ok(before) | Err(before) => before,
        };
        self.sent
            .fetch_add(bytes.saturating_sub(refused), Ordering::Relaxed);
    }

    /// `bytes` of what was sent were refused as early data: they count once when they are sent again.
    pub(crate) fn refused(&self, bytes: u64) {
        self.refused.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What has come and gone.
    pub(crate) fn moved(&self) -> u64 {
        let (received, sent) = self.counts();
        received.wrapping_add(sent)
    }

    /// Bytes that have arrived.
    pub fn received_bytes(&self) -> u64 {
        self.counts().0
    }

    /// When the first of them had.
    pub fn first_byte(&self) -> Option<Span> {
        let first = self.first.load(Ordering::Relaxed);
        first.checked_sub(1).map(Span::from_nanos)
    }

    fn counts(&self) -> (u64, u64) {
        (
            self.received.load(Ordering::Relaxed),
            self.sent.load(Ordering::Relaxed),
        )
    }

    /// What became of connection `number`.
    pub(crate) fn report(&self, number: u32, connection: &impl Connection) -> ConnectionReport {
        let moment = |at: &AtomicU64| at.load(Ordering::Relaxed).checked_sub(1);
        let (received_bytes, sent_bytes) = self.counts();
        ConnectionReport {
            connection: number,
            establishment: connection.establishment(),
            first_byte_ns: moment(&self.first),
            last_byte_ns: moment(&self.last),
            received_bytes,
            sent_bytes,
            sender: connection.sender(),
        }
    }
}

/// What all connections together have received and sent.
pub(crate) fn totals<C>(connections: &[(Arc<Meter>, C)]) -> (u64, u64) {
    (connections.iter())
        .map(|(meter, _)| meter.counts())
        .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

/// Divides a measurement into intervals.
pub(crate) struct Intervals {
    every: Span,
    from: Span,
    /// What each connection had received and sent when it began.
    counted: Vec<(u64, u64)>,
    pub(crate) all: Vec<Interval>,
    pub(crate) omitted: u64,
}

impl Intervals {
    /// Intervals of `every`, from `from` on.
    pub(crate) fn new(every: Span, from: Span) -> Self {
        Self {
            every,
            from,
            counted: Vec::new(),
            all: Vec::new(),
            omitted: 0,
        }
    }

    /// When the one that is under way ends.
    pub(crate) fn next(&self) -> Span {
        self.from + self.every
    }

    /// Ends it at `now`, with what `connections` have counted and seen.
    pub(crate) fn end<C: Connection>(
        &mut self,
        clock: &Clock,
        connections: &[(Arc<Meter>, C)],
        record: &mut dyn FnMut(&Record),
    ) {
        let now = clock.now();
        if now <= self.from {
            return;
        }
        for (_, connection) in connections {
            let (changes, omitted) = connection.take_changes(clock);
            for change in changes {
                record(&Record::Change(change));
            }
            if omitted > 0 {
                record(&Record::ChangesOmitted { count: omitted });
            }
        }
        let counts: Vec<_> = connections
            .iter()
            .map(|(meter, _)| meter.counts())
            .collect();
        self.counted.resize(counts.len(), (0, 0));
        let carried: Vec<_> = ((0..).zip(&counts).zip(&self.counted))
            .map(|((connection, now), before)| Carried {
                connection,
                received_bytes: now.0 - before.0,
                sent_bytes: now.1 - before.1,
            })
            .collect();
        let interval = Interval {
            from_ns: nanos(self.from),
            to_ns: nanos(now),
            received_bytes: carried.iter().map(|one| one.received_bytes).sum(),
            sent_bytes: carried.iter().map(|one| one.sent_bytes).sum(),
            connections: carried,
            senders: (connections.iter())
                .map(|(_, connection)| connection.sender())
                .collect(),
        };
        (self.from, self.counted) = (now, counts);
        let line = Record::Interval(interval);
        record(&line);
        let most = MOST_SENDERS / connections.len().max(1);
        match line {
            Record::Interval(interval) if self.all.len() < most => self.all.push(interval),
            _ => self.omitted += 1,
        }
    }
}
