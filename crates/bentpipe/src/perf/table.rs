//! The table that people see while a measurement runs, and its last lines.

use bentpipe_perf::report::{Interval, Report, Sender};

/// The heads of the columns.
pub const HEAD: &str = "      seconds   received    goodput       sent       rate     window  in flight   RTT ms  lost  retransmitted";

/// A row.
pub fn row(interval: &Interval) -> String {
    let seconds = interval.seconds().max(1e-9);
    let all = total(&interval.senders);
    let mbit = |bytes: u64| format!("{:.2} Mbit/s", bytes as f64 * 8e-6 / seconds);
    format!(
        "{:>6.1}-{:<6.1} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>5} {:>14}",
        interval.from_ns as f64 / 1e9,
        interval.to_ns as f64 / 1e9,
        bytes(interval.received_bytes),
        mbit(interval.received_bytes),
        bytes(interval.sent_bytes),
        mbit(interval.sent_bytes),
        all.window_bytes.map_or_else(dash, bytes),
        all.in_flight_bytes.map_or_else(dash, bytes),
        all.smoothed_rtt_ns
            .map_or_else(dash, |rtt| format!("{:.1}", rtt as f64 / 1e6)),
        all.lost_packets.map_or_else(dash, |lost| lost.to_string()),
        all.retransmitted_bytes.map_or_else(dash, bytes),
    )
}

fn dash() -> String {
    "-".to_owned()
}

/// All senders as one: sums, and the longest round trip.
fn total(senders: &[Sender]) -> Sender {
    let sum = |field: fn(&Sender) -> Option<u64>| {
        senders
            .iter()
            .filter_map(field)
            .reduce(|all, one| all + one)
    };
    Sender {
        window_bytes: sum(|sender| sender.window_bytes),
        in_flight_bytes: sum(|sender| sender.in_flight_bytes),
        smoothed_rtt_ns: senders
            .iter()
            .filter_map(|sender| sender.smoothed_rtt_ns)
            .max(),
        lost_packets: sum(|sender| sender.lost_packets),
        retransmitted_bytes: sum(|sender| sender.retransmitted_bytes),
        ..Sender::default()
    }
}

fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        0.0..1e3 => format!("{count:.0} B"),
        1e3..1e6 => format!("{:.1} kB", count / 1e3),
        1e6..1e9 => format!("{:.2} MB", count / 1e6),
        _ => format!("{:.2} GB", count / 1e9),
    }
}

/// What stands below the table.
pub fn summary(report: &Report) -> Vec<String> {
    let ms = |nanos: u64| format!("{:.1} ms", nanos as f64 / 1e6);
    let mut lines = Vec::new();
    for one in &report.connections {
        let establishment = &one.establishment;
        let since = |at: u64| ms(at.saturating_sub(establishment.begun_ns));
        let mut line = format!("connection {}:", one.connection);
        if let Some(done) = establishment.done_ns {
            line += &format!(" established after {}", since(done));
        }
        if let Some(confirmed) = establishment.confirmed_ns {
            line += &format!(", confirmed after {}", since(confirmed));
        }
        if let Some(taken) = establishment.early_data {
            line += if taken { ", 0-RTT" } else { ", 0-RTT refused" };
        }
        if let Some(first) = one.first_byte_ns {
            line += &format!(", first byte after {}", since(first));
        }
        if let Some(least) = one.sender.least_rtt_ns {
            line += &format!(", least RTT {}", ms(least));
        }
        lines.push(line);
    }
    if let Some(latency) = &report.requests {
        lines.push(format!(
            "{} requests: least {}, median {}, 90 % {}, 99 % {}, most {}",
            latency.count,
            ms(latency.least_ns),
            ms(latency.p50_ns),
            ms(latency.p90_ns),
            ms(latency.p99_ns),
            ms(latency.most_ns),
        ));
    }
    if let Some(datagrams) = &report.datagrams {
        let lost = |of: u64, came: u64| 100.0 * of.saturating_sub(came) as f64 / of.max(1) as f64;
        lines.push(match datagrams.arrived {
            None => format!("{} datagrams sent, none answered", datagrams.sent),
            Some(arrived) => format!(
                "{} datagrams: there {:.2} % lost, {} overtaken, jitter {}; back {:.2} % lost, {} overtaken, jitter {}; median round trip {}",
                datagrams.sent,
                lost(datagrams.sent, arrived),
                datagrams.reordered_there,
                ms(datagrams.jitter_there_ns),
                lost(arrived, datagrams.answered),
                datagrams.reordered_back,
                ms(datagrams.jitter_back_ns),
                datagrams.round_trips.as_ref().map_or_else(dash, |times| ms(times.p50_ns)),
            ),
        });
    }
    lines.push(format!(
        "{} received ({:.3} Mbit/s from first packet to last byte), {} sent, in {:.3} s",
        bytes(report.received_bytes),
        report.goodput_bit_s() / 1e6,
        bytes(report.sent_bytes),
        report.duration_ns as f64 / 1e9,
    ));
    lines
}
