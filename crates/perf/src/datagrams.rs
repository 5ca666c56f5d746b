//! Datagrams at a given rate (RFC 9221): loss, jitter and reordering, there and back.
//!
//! The draft of the `perf` protocol has none; this is ours. A datagram of the client's begins
//! with its number and the moment at which it was sent, eight bytes each. The server answers
//! each one with these, how many have come, how many of them were overtaken, and the moment of
//! arrival on its own clock. Only differences of one clock's moments are used.

use bentpipe_units::{Rate, Span};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::clock::Clock;
use crate::error::PerfError;
use crate::latency::Latencies;
use crate::report::{DatagramReport, nanos};
use crate::transport::Connection;

/// Bytes of a datagram that mean something.
pub const LEAST: u64 = 16;
/// Bytes of an answer.
const ANSWER: usize = 40;
/// Datagrams that are sent at once after a timer that was late: 20 ms of 100 Mbit/s.
const MOST_AT_ONCE: u64 = 200;

/// What a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagrams {
    /// How fast, counting what the datagrams carry.
    pub rate: Rate,
    /// How long each is, bytes.
    pub size: u64,
    /// For how long.
    pub time: Span,
}

impl Datagrams {
    /// From one to the next.
    pub(crate) fn gap(&self) -> Span {
        let gap = (self.rate.time_for(bentpipe_units::Bytes::new(self.size))).unwrap_or(self.time);
        gap.max(Span::from_nanos(1))
    }
}

/// Jitter as RTP's receivers estimate it (RFC 3550, section 6.4.1).
#[derive(Debug, Default)]
struct Jitter {
    last: Option<(u64, u64)>,
    estimate: f64,
}

impl Jitter {
    fn add(&mut self, sent: u64, arrived: u64) {
        if let Some((last_sent, last_arrived)) = self.last.replace((sent, arrived)) {
            let apart = (arrived as f64 - last_arrived as f64) - (sent as f64 - last_sent as f64);
            self.estimate += (apart.abs() - self.estimate) / 16.0;
        }
    }
}

/// Counts datagrams, and those that a later one has overtaken (RFC 4737, section 3).
#[derive(Debug, Default)]
struct Order {
    count: u64,
    overtaken: u64,
    next: u64,
}

impl Order {
    fn add(&mut self, number: u64) {
        self.count += 1;
        if number < self.next {
            self.overtaken += 1;
        } else {
            self.next = number.saturating_add(1);
        }
    }
}

/// The server's side of a connection's datagrams.
#[derive(Debug, Default)]
pub(crate) struct Answers(Order);

impl Answers {
    /// The answer to `datagram`, which arrived at `now`; none to one that says nothing.
    pub(crate) fn to(&mut self, mut datagram: Bytes, now: Span) -> Option<Bytes> {
        if (datagram.len() as u64) < LEAST {
            return None;
        }
        let (number, sent) = (datagram.get_u64(), datagram.get_u64());
        self.0.add(number);
        let mut answer = BytesMut::with_capacity(ANSWER);
        for field in [number, sent, self.0.count, self.0.overtaken, nanos(now)] {
            answer.put_u64(field);
        }
        Some(answer.freeze())
    }
}

/// Sends datagrams over `connection` and reads the answers.
pub(crate) async fn exchange(
    connection: &impl Connection,
    what: Datagrams,
    clock: &Clock,
    patience: Span,
) -> Result<DatagramReport, PerfError> {
    let gap = what.gap().as_nanos();
    let begun = clock.now();
    let total = (what.time.as_nanos() / gap).max(1);
    let mut sent = 0;
    let (mut there, mut back) = (Jitter::default(), Jitter::default());
    let (mut arrived, mut overtaken) = (0, 0);
    let mut answers = Order::default();
    let latencies = Latencies::new();
    let mut zeros = BytesMut::zeroed(usize::try_from(what.size).unwrap_or(0));
    let due = |number: u64| begun + Span::from_nanos(gap.saturating_mul(number));
    loop {
        let now = clock.now();
        if sent == total && (answers.count == total || now >= due(total) + patience) {
            break;
        }
        if sent < total && now >= due(sent) {
            let mut burst = 0;
            while sent < total && clock.now() >= due(sent) && burst < MOST_AT_ONCE {
                let mut head = &mut zeros[..];
                head.put_u64(sent);
                head.put_u64(nanos(clock.now()));
                connection.send_datagram(Bytes::copy_from_slice(&zeros))?;
                sent += 1;
                burst += 1;
            }
        }
        let next = if sent < total {
            due(sent)
        } else {
            due(total) + patience
        };
        tokio::select! {
            biased;
            answer = connection.read_datagram() => {
                let mut answer = answer?;
                if answer.len() < ANSWER {
                    continue;
                }
                let (number, sent_at) = (answer.get_u64(), answer.get_u64());
                arrived = answer.get_u64().max(arrived);
                overtaken = answer.get_u64().max(overtaken);
                let at_server = answer.get_u64();
                let now = clock.now();
                answers.add(number);
                there.add(sent_at, at_server);
                back.add(at_server, nanos(now));
                latencies.add(Span::from_nanos(sent_at), now);
            }
            () = clock.sleep_until(next) => {}
        }
    }
    Ok(DatagramReport {
        sent,
        arrived: (answers.count > 0).then_some(arrived),
        answered: answers.count,
        reordered_there: overtaken,
        reordered_back: answers.overtaken,
        jitter_there_ns: whole(there.estimate),
        jitter_back_ns: whole(back.estimate),
        round_trips: latencies.summary(),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nanoseconds, not negative and few"
)]
fn whole(value: f64) -> u64 {
    value as u64
}
