//! What one side of a connection has sent so far, and what the other acknowledged of it.

use std::collections::{BTreeMap, HashMap};

use super::patterns::patterns;
use super::records::{DirectionSummary, Pause, Spread};
use super::seconds;
use super::seen::{Piece, Seen};
use crate::quic::frames::Ack;

/// Sent packets that wait for their acknowledgement; older ones are forgotten.
const MOST_UNACKNOWLEDGED: usize = 1 << 17;
/// The kind of a stream in the last two bits of its ID (RFC 9000, section 2.1); TCP's one
/// stream is 0.
const CLIENT_BIDIRECTIONAL: u64 = 0;
/// Seconds of a connection for which rates are kept.
const MOST_SECONDS: u64 = 1 << 17;

#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Where it was seen first.
    pub(super) interface: Option<u32>,
    pub(super) summary: DirectionSummary,
    largest: Option<u64>,
    pub(super) first_one_rtt: Option<u64>,
    pub(super) last_one_rtt: Option<u64>,
    first_byte: Option<u64>,
    last_byte: Option<u64>,
    latest_packet: Option<u64>,
    key_phase: bool,
    rtt_us: Vec<u32>,
    /// Packets of the application's space, and the pieces of streams in them.
    unacknowledged: BTreeMap<u64, Unacknowledged>,
    /// Which packet had the bytes of a stream that begin here.
    carriers: HashMap<(u64, u64), u64>,
    /// Every time at which new bytes were sent, thinned out: total bytes and moment.
    progress: Progress,
}

#[derive(Debug)]
struct Unacknowledged {
    sent: u64,
    pieces: Vec<Piece>,
    repeated: u64,
}

/// Totals over time, as many as are needed to find when 95 % had been sent.
#[derive(Debug, Default)]
struct Progress {
    points: Vec<(u64, u64)>,
    every: u64,
}

impl Progress {
    const MOST: usize = 4096;

    fn add(&mut self, at: u64, total: u64) {
        if self
            .points
            .last()
            .is_some_and(|(_, last)| total < last + self.every)
        {
            return;
        }
        self.points.push((at, total));
        if self.points.len() == Self::MOST {
            self.every = (total / (Self::MOST as u64 / 2)).max(1);
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
    }

    /// When `total` had been sent.
    fn reached(&self, total: u64) -> Option<u64> {
        let at = self.points.partition_point(|(_, sent)| *sent < total);
        self.points.get(at).map(|(at, _)| *at)
    }
}

impl Direction {
    pub(super) fn packet(&mut self, begun: u64, seen: &Seen) {
        let summary = &mut self.summary;
        summary.packets += 1;
        summary.bytes += u64::from(seen.bytes);
        summary.ce_marked += u64::from(seen.ecn == 3);
        if seen.one_rtt {
            self.first_one_rtt.get_or_insert(seen.time_ns);
            self.last_one_rtt = Some(seen.time_ns);
        }
        if let Some(phase) = seen.key_phase.filter(|_| seen.number.is_some()) {
            summary.key_updates += u64::from(phase != self.key_phase);
            self.key_phase = phase;
        }
        if let (Some(number), true) = (seen.number, seen.application) {
            summary.reordered_packets += u64::from(self.largest > Some(number));
            self.largest = self.largest.max(Some(number));
        }
        if let (Some(latest), true) = (self.latest_packet, self.first_byte.is_some()) {
            let pause = Pause {
                at_s: seconds(begun, latest),
                for_s: seconds(latest, seen.time_ns),
            };
            if summary
                .longest_pause
                .is_none_or(|longest| pause.for_s > longest.for_s)
            {
                summary.longest_pause = Some(pause);
            }
        }
        self.latest_packet = Some(seen.time_ns);
    }

    pub(super) fn pieces(&mut self, begun: u64, seen: &Seen, pieces: &[Piece]) {
        let second = seen.time_ns.saturating_sub(begun) / 1_000_000_000;
        for piece in pieces {
            let new = piece.length - piece.repeated;
            self.summary.stream_bytes += new;
            self.summary.repeated_bytes += piece.repeated;
            if new > 0 {
                // Requests and their answers; HTTP/3's control streams are others.
                if piece.stream % 4 == CLIENT_BIDIRECTIONAL {
                    self.first_byte.get_or_insert(seen.time_ns);
                    self.last_byte = Some(seen.time_ns);
                }
                self.summary.late_bytes += if piece.late { new } else { 0 };
                self.progress.add(seen.time_ns, self.summary.stream_bytes);
                if second < MOST_SECONDS {
                    let second = usize::try_from(second).expect("few");
                    let rates = &mut self.summary.bytes_per_second;
                    if rates.len() <= second {
                        rates.resize(second + 1, 0);
                    }
                    rates[second] += new;
                }
            }
            if piece.repeated > 0 {
                let second = u32::try_from(second).unwrap_or(u32::MAX);
                match self.summary.repeated_at.last_mut() {
                    Some((last, bytes)) if *last == second => *bytes += piece.repeated,
                    _ => self.summary.repeated_at.push((second, piece.repeated)),
                }
                let carrier = self.carriers.get(&(piece.stream, piece.offset)).copied();
                if let Some(packet) = carrier.and_then(|n| self.unacknowledged.get_mut(&n)) {
                    packet.repeated += piece.repeated;
                }
            }
        }
        let Some(number) = seen.number else { return };
        let packet = Unacknowledged {
            sent: seen.time_ns,
            pieces: pieces.to_vec(),
            repeated: 0,
        };
        for piece in pieces {
            self.carriers.insert((piece.stream, piece.offset), number);
        }
        self.unacknowledged.insert(number, packet);
        if self.unacknowledged.len() > MOST_UNACKNOWLEDGED
            && let Some((number, packet)) = self.unacknowledged.pop_first()
        {
            self.forget(number, &packet);
        }
    }

    fn forget(&mut self, number: u64, packet: &Unacknowledged) {
        for piece in &packet.pieces {
            let place = (piece.stream, piece.offset);
            if self.carriers.get(&place) == Some(&number) {
                self.carriers.remove(&place);
            }
        }
    }

    fn arrived(&mut self, number: u64, packet: &Unacknowledged) {
        self.summary.spurious_bytes += packet.repeated;
        self.forget(number, packet);
    }

    pub(super) fn acknowledged(&mut self, now: u64, ack: &Ack<'_>) {
        if let Some(packet) = self.unacknowledged.get(&ack.largest) {
            let micros = now.saturating_sub(packet.sent) / 1000;
            self.rtt_us.push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
        for (first, last) in ack.acknowledged() {
            while let Some((&number, _)) = self.unacknowledged.range(first..=last).next() {
                let packet = self.unacknowledged.remove(&number).expect("it was found");
                self.arrived(number, &packet);
            }
            if self
                .unacknowledged
                .first_key_value()
                .is_none_or(|(oldest, _)| *oldest > last)
            {
                break;
            }
        }
    }

    pub(super) fn acknowledged_before(&mut self, now: u64, ack: u64) {
        let mut latest = None;
        while let Some(entry) = self.unacknowledged.first_entry() {
            let (number, packet) = (*entry.key(), entry.get());
            let end = packet
                .pieces
                .iter()
                .map(|piece| piece.offset + piece.length)
                .max();
            if end.unwrap_or(number) > ack {
                break;
            }
            let packet = entry.remove();
            // Karn's rule: what was repeated says nothing about the round trip.
            let repeated = packet.repeated > 0 || packet.pieces.iter().any(|p| p.repeated > 0);
            latest = (!repeated).then_some(packet.sent);
            self.forget(number, &packet);
        }
        if let Some(sent) = latest {
            let micros = now.saturating_sub(sent) / 1000;
            self.rtt_us.push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
    }

    pub(super) fn finish(
        mut self,
        begun: u64,
        peer_packets: u64,
    ) -> (DirectionSummary, Option<u64>, Option<u64>) {
        let summary = &mut self.summary;
        summary.rtt_ms = spread(&mut self.rtt_us);
        if summary.acks > 0 {
            summary.packets_per_ack = Some(peer_packets as f64 / summary.acks as f64);
        }
        let ninety_five = summary.stream_bytes - summary.stream_bytes / 20;
        if let (Some(from), Some(last)) = (self.progress.reached(ninety_five), self.last_byte) {
            summary.last_five_percent_s = Some(seconds(from, last));
        }
        if let (Some(first), Some(last)) = (self.first_byte, self.last_byte) {
            summary.patterns = patterns(summary, seconds(begun, first), seconds(begun, last));
        }
        (self.summary, self.first_byte, self.last_byte)
    }
}

fn spread(micros: &mut [u32]) -> Option<Spread> {
    micros.sort_unstable();
    let at = |percent: usize| {
        let place = ((micros.len() - 1) * percent + 50) / 100;
        f64::from(micros[place]) / 1000.0
    };
    (!micros.is_empty()).then(|| Spread {
        least: at(0),
        median: at(50),
        p95: at(95),
        largest: at(100),
        count: micros.len() as u64,
    })
}
