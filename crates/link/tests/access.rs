//! Frames on the way: DVB-S2's and DVB-RCS2's capacity, and who gets it.

mod support;

use bentpipe_link::Cause;
use bentpipe_link::Departure;
use bentpipe_units::{Span, Time};
use support::{Arrival, Probe, forward, run};

const SECOND: u64 = 1_000_000_000;

fn every(gap_us: u64, count: usize) -> Vec<Arrival> {
    vec![(gap_us * 1000, 1500, 0); count]
}

fn seconds(count: u64) -> Span {
    Span::from_nanos(count * SECOND)
}

/// Rate at the IP level of what came out in packets of 1500 bytes, kbit/s.
fn rate(out: &[Departure<Probe>], from_ms: u64, to_ms: u64) -> f64 {
    let inside = out
        .iter()
        .filter(|d| (from_ms..to_ms).contains(&(d.at.as_nanos() / 1_000_000)))
        .count();
    inside as f64 * 12_000.0 / (to_ms - from_ms) as f64
}

/// A return link of 10 Mbaud with waveform 12 (536 symbols, 223 bytes): 494 bursts in
/// each superframe, 33.3 Mbit/s, of which 98.2 % are IP packets of 1500 bytes.
fn terminal(classes: &str) -> bentpipe_link::spec::DirectionSpec {
    forward(&format!(
        "delay = \"250 ms\"\nqueue = \"100000 packets\"\nrate.dvb-rcs2 = {{ bandwidth = \"12 MHz\", roll_off = 0.2, waveform = 12, grant_delay = \"500 ms\", {classes} }}"
    ))
}

#[test]
fn frames_take_all_their_packets_along() {
    let spec = |per: &str| {
        forward(&format!(
            "delay = \"0 ms\"\nqueue = \"100000 packets\"\nloss = \"1 %\"\nloss_per = \"{per}\"\nrate.dvb-s2 = {{ bandwidth = \"50 MHz\", roll_off = 0.25, modcod = 1, tick = \"10 ms\", link_header = 14 }}"
        ))
    };
    let lost = |per: &str| {
        let (link, out) = run(&spec(per), 5, false, &every(0, 50_000), seconds(100));
        let runs = out
            .windows(2)
            .filter(|p| p[1].packet.number > p[0].packet.number + 1)
            .count() as f64;
        let lost = link.counters().dropped.of(Cause::Loss) as f64;
        (lost / 50_000.0, lost / runs)
    };
    let (packet, alone) = lost("packet");
    assert!(
        (0.008..0.012).contains(&packet) && alone < 1.1,
        "{packet} {alone}"
    );
    // Each packet lies in 1.77 BBFRAMEs, and a lost one takes 1.77 packets or more.
    let (frame, together) = lost("bbframe");
    assert!(
        (0.0155..0.0200).contains(&frame) && (1.6..2.4).contains(&together),
        "{frame} {together}"
    );
}

/// A packet every other tick of 10 ms has a BBFRAME of its own, and the third is lost.
#[test]
fn what_comes_behind_a_missing_frame_waits_for_more_than_resequence_says() {
    let came = |resequence: &str, packets: usize| -> Vec<(usize, u64)> {
        let spec = forward(&format!(
            "delay = \"0 ms\"\nqueue = \"100 packets\"\nloss.trace = {{ fates = \"..x.\", at_end = \"hold\" }}\nloss_per = \"bbframe\"\n{resequence}\nrate.dvb-s2 = {{ bandwidth = \"50 MHz\", roll_off = 0.25, modcod = 1, tick = \"10 ms\" }}"
        ));
        let (link, out) = run(&spec, 1, false, &every(20_000, packets), seconds(1));
        assert_eq!(link.counters().dropped.of(Cause::Loss), 1);
        assert_eq!(link.held() + out.len() as u64 + 1, packets as u64);
        let moment = |at: Time| at.as_nanos() / 1_000_000;
        let row = |d: &Departure<Probe>| (d.packet.number, moment(d.at) / 20 - 1);
        out.iter().map(row).collect()
    };
    let at_once = [
        (0, 0),
        (1, 1),
        (3, 3),
        (4, 4),
        (5, 5),
        (6, 6),
        (7, 7),
        (8, 8),
    ];
    assert_eq!(came("", 9), at_once);
    // The sixth frame behind it is one too many, and all go on.
    let held = [
        (0, 0),
        (1, 1),
        (3, 8),
        (4, 8),
        (5, 8),
        (6, 8),
        (7, 8),
        (8, 8),
    ];
    assert_eq!(came("resequence = 5", 9), held);
    let then = came("resequence = 5", 11);
    assert_eq!(then[8..], [(9, 9), (10, 10)]);
    // Without a sixth one they are held for good.
    assert_eq!(came("resequence = 5", 8), [(0, 0), (1, 1)]);
}

#[test]
fn adaptive_coding_follows_the_sky_and_loses_while_it_is_behind() {
    let spec = forward(
        "delay = \"125 ms\"\nqueue = \"100000 packets\"\nrate.dvb-s2 = { bandwidth = \"12.5 MHz\", roll_off = 0.25, acm = { margin = \"0 dB\" }, radio = { fade = { points = [[\"0 s\", \"0 dB\"], [\"10 s\", \"0 dB\"], [\"12 s\", \"15 dB\"], [\"20 s\", \"15 dB\"], [\"22 s\", \"40 dB\"]], between = \"line\", at_end = \"hold\" } } }",
    );
    let (link, out) = run(&spec, 1, false, &every(200, 160_000), seconds(1));
    let rate = |from: u64| {
        out.iter()
            .filter(|d| (from * SECOND..(from + 1) * SECOND).contains(&d.at.as_nanos()))
            .count() as f64
            * 12_000.0
            / 1e6
    };
    // Clear sky: 32APSK 9/10 at 10 Mbaud; 5 dB are left at 15 dB of rain: QPSK 3/4 or so.
    let (clear, rain, storm) = (rate(5), rate(16), rate(25));
    assert!((42.0..44.6).contains(&clear), "{clear}");
    assert!((10.0..18.0).contains(&rain), "{rain}");
    assert_eq!(storm, 0.0, "below the most robust MODCOD nothing passes");
    assert!(link.counters().dropped.of(Cause::Fade) > 100);
}

#[test]
fn capacity_that_is_asked_for_comes_a_request_and_a_round_trip_later() {
    let spec = forward(
        "delay = \"250 ms\"\nqueue = \"100000 packets\"\nrate.dvb-rcs2 = { bandwidth = \"19.98 MHz\", roll_off = 0.35, waveform = 12, cra = \"100 kbit/s\", rbdc = \"5120 kbit/s\", grant_delay = \"500 ms\" }",
    );
    let (_, out) = run(&spec, 1, false, &every(3000, 2000), seconds(1));
    // CRA alone: two bursts of 223 bytes in each superframe (kbit/s = bits per ms).
    let (before, after) = (rate(&out, 300, 700), rate(&out, 3000, 6000));
    assert!((90.0..150.0).contains(&before), "{before} kbit/s");
    assert!((3700.0..5300.0).contains(&after), "{after} kbit/s");
}

#[test]
fn volume_is_granted_once() {
    // 20 packets of 1500 bytes wait at the first request; nothing comes after them.
    let spec = terminal("cra = \"0 bit/s\", vbdc = \"100 kB\", request_every = 10");
    let (_, out) = run(&spec, 1, false, &every(0, 20), seconds(5));
    assert_eq!(
        out.len(),
        20,
        "one grant covers them, headers come with the next"
    );
    // Ten superframes to the request, 500 ms to the grant, 250 ms of way; what the
    // headers need is asked for ten superframes later.
    let last = out.last().unwrap().at.as_nanos() / 1_000_000;
    assert!((750..750 + 2 * 265 + 530).contains(&last), "{last} ms");
}

#[test]
fn other_terminals_take_their_share_and_no_more() {
    let own = "cra = \"0 bit/s\", rbdc = \"20 Mbit/s\", request_every = 10";
    let alone = |others: &str, until_ms: u64| {
        let spec = terminal(&format!("{own}{others}"));
        let (_, out) = run(&spec, 1, false, &every(600, 20_000), seconds(20));
        rate(&out, 3_000, until_ms)
    };
    // Requests are capped at 16.32 Mbit/s: 243 bursts.
    let free = alone("", 12_000);
    assert!((15_700.0..16_320.0).contains(&free), "{free} kbit/s");
    // 10 Mbit/s beside it fit into the carrier's 33.
    let beside = alone(", others = [{ rate = \"10 Mbit/s\" }]", 12_000);
    assert!((beside / free - 1.0).abs() < 0.005, "{beside} kbit/s");
    // 40 Mbit/s (595 bursts) beside it: 243 of every 838 bursts of 494, that is 143.2.
    let crowded = alone(", others = [{ rate = \"40 Mbit/s\" }]", 12_000);
    assert!(
        (crowded / free - 143.2 / 243.0).abs() < 0.01,
        "{crowded} kbit/s"
    );
    // Half of the time: half of what is taken.
    let turns = alone(
        ", others = [{ rate = \"40 Mbit/s\", on = \"1 s\", off = \"1 s\" }]",
        13_000,
    );
    let half = (free + crowded) / 2.0;
    assert!(
        (turns / half - 1.0).abs() < 0.03,
        "{turns} of {half} kbit/s"
    );
}

#[test]
fn other_terminals_do_not_touch_the_assigned_rate_and_leave_nothing_over() {
    let spec = |classes: &str| {
        terminal(&format!(
            "{classes}, others = [{{ rate = \"100 Mbit/s\" }}]"
        ))
    };
    let (_, out) = run(
        &spec("cra = \"2 Mbit/s\""),
        1,
        false,
        &every(600, 10_000),
        seconds(5),
    );
    let assigned = rate(&out, 1_000, 6_000);
    assert!((1_900.0..2_050.0).contains(&assigned), "{assigned} kbit/s");
    // Free capacity is what nobody asked for: there is none.
    let with_free = spec("cra = \"2 Mbit/s\", fca = \"5 Mbit/s\"");
    let (_, out) = run(&with_free, 1, false, &every(600, 10_000), seconds(5));
    assert_eq!(rate(&out, 1_000, 6_000), assigned);
}
