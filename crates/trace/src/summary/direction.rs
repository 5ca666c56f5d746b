//! What one side of a connection has sent so far, and what the other acknowledged of it.

use std::collections::{BTreeMap, HashMap};

use super::patterns::patterns;
use super::records::{DirectionSummary, Pause};
use super::samples::Samples;
use super::seconds;
use super::seen::{Piece, Seen};
use crate::quic::frames::Ack;

/// Pieces of streams of all connections that wait for their acknowledgement; beyond, the oldest of the direction
/// that sends are forgotten.
const MOST_UNACKNOWLEDGED: usize = 1 << 18;
/// The kind of a stream in the last two bits of its ID (RFC 9000, section 2.1); TCP's one
/// stream is 0.
const CLIENT_BIDIRECTIONAL: u64 = 0;

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
    rtt: Samples,
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

impl Unacknowledged {
    /// What it takes, in pieces.
    fn size(&self) -> usize {
        self.pieces.len().max(1)
    }
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

    /// A packet has these pieces, which `wait` with those of all connections for their acknowledgement.
    pub(super) fn pieces(&mut self, begun: u64, seen: &Seen, pieces: &[Piece], wait: &mut usize) {
        let second = seen.time_ns.saturating_sub(begun) / 1_000_000_000;
        let second = u32::try_from(second).unwrap_or(u32::MAX);
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
                add_at(&mut self.summary.new_at, second, new);
            }
            if piece.repeated > 0 {
                add_at(&mut self.summary.repeated_at, second, piece.repeated);
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
        *wait += packet.size();
        if let Some(same) = self.unacknowledged.insert(number, packet) {
            *wait -= same.size();
        }
        while *wait > MOST_UNACKNOWLEDGED
            && let Some((number, packet)) = self.unacknowledged.pop_first()
        {
            self.forget(number, &packet, wait);
        }
    }

    fn forget(&mut self, number: u64, packet: &Unacknowledged, wait: &mut usize) {
        *wait -= packet.size();
        for piece in &packet.pieces {
            let place = (piece.stream, piece.offset);
            if self.carriers.get(&place) == Some(&number) {
                self.carriers.remove(&place);
            }
        }
    }

    pub(super) fn acknowledged(&mut self, now: u64, ack: &Ack<'_>, wait: &mut usize) {
        if let Some(packet) = self.unacknowledged.get(&ack.largest) {
            self.rtt.add(now.saturating_sub(packet.sent));
        }
        for (first, last) in ack.acknowledged() {
            while let Some((&number, _)) = self.unacknowledged.range(first..=last).next() {
                let packet = self.unacknowledged.remove(&number).expect("it was found");
                self.summary.spurious_bytes += packet.repeated;
                self.forget(number, &packet, wait);
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

    pub(super) fn acknowledged_before(&mut self, now: u64, ack: u64, wait: &mut usize) {
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
            self.forget(number, &packet, wait);
        }
        if let Some(sent) = latest {
            self.rtt.add(now.saturating_sub(sent));
        }
    }

    pub(super) fn finish(
        mut self,
        begun: u64,
        peer_packets: u64,
    ) -> (DirectionSummary, Option<u64>, Option<u64>) {
        let summary = &mut self.summary;
        summary.rtt_ms = self.rtt.spread();
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

/// More bytes in a second, in the order of seconds whatever the order of the packets.
fn add_at(seconds: &mut Vec<(u32, u64)>, second: u32, bytes: u64) {
    match seconds.binary_search_by_key(&second, |(at, _)| *at) {
        Ok(place) => seconds[place].1 += bytes,
        Err(place) => seconds.insert(place, (second, bytes)),
    }
}
