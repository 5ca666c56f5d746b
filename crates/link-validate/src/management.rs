//! Claims of queue management, traced by hand.

use bentpipe_units::{Span, Time};

use super::Claim;
use super::probe::{Probe, burst, drain, forward};
use bentpipe_link::{Cause, Direction};

pub(super) fn claims() -> Vec<Claim> {
    vec![
        codel(),
        pie(),
        fq_codel_order(),
        fq_codel_emptied(),
        fq_codel_overflow(),
    ]
}

/// A link of one packet of 1500 bytes per millisecond.
fn link(queue: &str) -> Direction<Probe> {
    let text = format!("rate = \"12 Mbit/s\"\ndelay = \"0 ms\"\n{queue}");
    Direction::new(&forward(&text), 1)
}

/// CoDel's drops where they can be counted on fingers.
///
/// 2,000 packets come at once on a link that takes 1 ms for each, so the packet
/// taken out at n ms has waited n ms. At 5 ms the target is passed and
/// `first_above_time` becomes 105 ms: the first drop. Then `drop_next` becomes
/// 105 plus 100 = 205, plus 100 / sqrt(2) = 275.7, plus 100 / sqrt(3) = 333.4, and
/// so on. A drop happens when the next packet is taken out, at a whole millisecond.
fn codel() -> Claim {
    let by_hand = [105, 205, 276, 334, 384, 429, 469, 507, 543, 576];
    let mut link = link("queue.codel = { limit = \"10000 packets\" }");
    link.keep_drops();
    burst(&mut link, 2000, 1500);
    let _ = drain(&mut link, Time::from_nanos(600_000_000));
    let mut drops = Vec::new();
    while let Some(drop) = link.poll_drop() {
        if drop.cause == Cause::Management {
            drops.push(drop.at.as_nanos() / 1_000_000);
        }
    }
    let list = |times: &[u64]| {
        let times: Vec<_> = times.iter().map(u64::to_string).collect();
        format!("{} ms", times.join(", "))
    };
    Claim {
        claim: "CoDel's first ten drops, 2,000 packets at once on a link of one packet per ms",
        source: "RFC 8289, section 5, its pseudo-code traced by hand",
        theirs: list(&by_hand),
        ours: list(&drops),
        holds: drops == by_hand,
    }
}

/// PIE's chance of a drop where it can be computed by hand.
///
/// 400 packets at once as above: the packet taken out at n ms has waited n ms. The
/// update at 15 k ms sees the delay of the packet before, 15 k - 1 ms, so
/// p += (0.125 (delay - 15 ms) + 1.25 (delay - delay before)) / scale, where the scale
/// is 2048, 512, 128, 32, 8 and 2 while p is below 1e-6, 1e-5, 1e-4, 1e-3, 1e-2 and
/// 1e-1. From there on a step is 2 % at most (section 5.5).
fn pie() -> Claim {
    const BY_HAND: [&str; 15] = [
        "0.0008", "0.0049", "0.0223", "0.0981", "0.1798", "0.5298", "0.9032", "1.3001", "2.9813",
        "4.7563", "6.6251", "8.5876", "10.6438", "12.6438", "14.6438",
    ];
    let mut link = link("queue.pie = { limit = \"10000 packets\" }");
    burst(&mut link, 400, 1500);
    let chances: Vec<_> = (1..=15)
        .map(|update| {
            let _ = drain(&mut link, Time::ZERO + Span::from_millis(15 * update));
            let chance = link.queue().drop_chance().unwrap_or(f64::NAN);
            format!("{:.4}", chance * 100.0)
        })
        .collect();
    Claim {
        claim: "PIE's chance of a drop at its first 15 updates, 400 packets at once on a link of one packet per ms",
        source: "RFC 8033, sections 4.2 and 5.5, their pseudo-code traced by hand",
        theirs: format!("{} %", BY_HAND.join(", ")),
        ours: format!("{} %", chances.join(", ")),
        holds: chances == BY_HAND,
    }
}

/// The order in which FQ-CoDel serves flows.
///
/// One packet is on the transmitter. Behind it wait A1 to A3 and B1 to B3 of 1500 bytes
/// and C1 to C6 of 500; D1 of 100 bytes comes at 3.5 ms. Each flow begins with a credit
/// of 1514 among the new ones: A sends two (14, then -1486 left) and goes to the old ones
/// with 28, B likewise, C sends four (-486) and goes with 1028, D, which came meanwhile,
/// is still new. Then the old ones in turn: A3, B3, and C5 and C6.
fn fq_codel_order() -> Claim {
    let by_hand = "X A A B B C C C C D A B C C";
    let mut link = link("queue.fq-codel = { limit = \"1000 packets\", quantum = \"1514 B\" }");
    let mut enter = |at: Time, flow: u8, len: u16, count: usize| {
        for _ in 0..count {
            let _ = link.handle_arrival(at, Probe { len, flow });
        }
    };
    enter(Time::ZERO, b'X', 1500, 1);
    enter(Time::ZERO, b'A', 1500, 3);
    enter(Time::ZERO, b'B', 1500, 3);
    enter(Time::ZERO, b'C', 500, 6);
    enter(Time::from_nanos(3_500_000), b'D', 100, 1);
    let out = drain(&mut link, Time::from_nanos(1_000_000_000));
    // What had come out when D came is given now: the order is the same.
    let ours = order(&out);
    Claim {
        claim: "FQ-CoDel: the order in which four flows of different packets are served",
        source: "RFC 8290, sections 4.1 and 4.2, traced by hand",
        theirs: by_hand.into(),
        holds: ours == by_hand,
        ours,
    }
}

/// The flows of what has come out, in its order.
fn order(out: &[(Time, Probe)]) -> String {
    let flows: Vec<_> = out
        .iter()
        .map(|(_, probe)| char::from(probe.flow).to_string())
        .collect();
    flows.join(" ")
}

/// What becomes of a flow that has run empty among the new ones.
///
/// One packet is on the transmitter. Behind it wait A1 and B1 to B3, of 1500 bytes. After A1
/// the scheduler finds A empty, puts it behind the old ones, of which there are none, and
/// sends B1. A2 comes at 2.5 ms, while B1 is sent: A is still an old one, and the new flow of
/// D1, which comes a moment later, goes before it. So after B2, which uses up B's credit, D1
/// is sent, and then the old ones in turn: A2, B3.
fn fq_codel_emptied() -> Claim {
    let by_hand = "X A B B D A B";
    let mut link = link("queue.fq-codel = { limit = \"1000 packets\", quantum = \"1514 B\" }");
    let mut out = Vec::new();
    for (at, flows) in [(0, "XABBB"), (2_500_000, "A"), (2_600_000, "D")] {
        let at = Time::from_nanos(at);
        out.extend(drain(&mut link, at));
        for flow in flows.bytes() {
            let _ = link.handle_arrival(at, Probe { len: 1500, flow });
        }
    }
    out.extend(drain(&mut link, Time::from_nanos(1_000_000_000)));
    let ours = order(&out);
    Claim {
        claim: "FQ-CoDel: a flow that has run empty among the new ones goes behind the old ones",
        source: "RFC 8290, section 4.2, traced by hand",
        theirs: by_hand.into(),
        holds: ours == by_hand,
        ours,
    }
}

/// What a full FQ-CoDel drops when one more packet comes.
fn fq_codel_overflow() -> Claim {
    let by_hand = "10, 50, 64 packets";
    let drops = [20, 100, 1000].map(|limit: u32| {
        let mut link = link(&format!(
            "queue.fq-codel = {{ limit = \"{limit} packets\" }}"
        ));
        burst(&mut link, limit + 2, 1500);
        link.counters().dropped.of(Cause::Queue).to_string()
    });
    let ours = format!("{} packets", drops.join(", "));
    Claim {
        claim: "FQ-CoDel: dropped at once when one flow overfills a queue of 20, 100 and 1000 packets",
        source: "RFC 8290, section 4.1: half of the longest queue, at most 64",
        theirs: by_hand.into(),
        holds: ours == by_hand,
        ours,
    }
}
