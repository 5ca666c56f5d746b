//! Scenarios as text, made of everything that the grammar has.

use proptest::prelude::*;

/// What a generated scenario may name as a file.
pub fn file(name: &str) -> Result<String, String> {
    Ok(match name {
        "rates.csv" => "# s, Mbit/s\n0, 2\n0.05, 0\n0.08 0.5\n0.2, 1\n".into(),
        "delays.csv" => "0,20\n0.1,3\n0.3,45\n".into(),
        "fades.csv" => "0 0\n1 14\n2 0\n".into(),
        "opportunities.txt" => "3\n3\n\n9\n40\n".into(),
        "fates.txt" => "..x..\nxx...\n".into(),
        "iss.tle" => ISS.into(),
        _ => return Err(format!("{name}: no such file")),
    })
}

/// The space station's elements of 20 September 2008, the example of the format.
const ISS: &str = "ISS (ZARYA)\n1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927\n2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537\n";

fn one_of(options: &'static [&'static str]) -> impl Strategy<Value = String> + use<> {
    prop::sample::select(options).prop_map(str::to_owned)
}

/// `strategy` or nothing, one time out of three.
fn maybe(strategy: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop_oneof![2 => Just(String::new()), 1 => strategy]
}

const AT_END: &[&str] = &["hold", "loop", "end"];

fn at_end() -> impl Strategy<Value = String> + use<> {
    one_of(AT_END)
}

/// Rates, each with the name of its frames.
fn rates() -> impl Strategy<Value = (String, &'static str)> {
    prop_oneof![
        (1_000u64..100_000_000).prop_map(|rate| (format!("rate = \"{rate} bit/s\""), "packet")),
        traced_rates().prop_map(|rate| (rate, "packet")),
        opportunities().prop_map(|rate| (rate, "packet")),
        dvb_s2().prop_map(|rate| (rate, "bbframe")),
        dvb_rcs2().prop_map(|rate| (rate, "burst")),
    ]
}

fn traced_rates() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (0u64..20_000, 1u64..20_000, at_end()).prop_map(|(first, last, at_end)| format!(
            "rate.trace = {{ points = [[\"0 s\", \"{last} kbit/s\"], [\"40 ms\", \"{first} kbit/s\"], [\"90 ms\", \"{last} kbit/s\"]], at_end = \"{at_end}\" }}"
        )),
        1 => at_end().prop_map(|at_end| format!(
            "rate.trace = {{ file = \"rates.csv\", columns = [\"s\", \"Mbit/s\"], between = \"step\", at_end = \"{at_end}\" }}"
        )),
    ]
}

fn opportunities() -> impl Strategy<Value = String> {
    let at_end = || one_of(&["loop", "end"]);
    prop_oneof![
        3 => (prop::collection::vec(1u64..100, 1..20), at_end()).prop_map(|(mut moments, at_end)| {
            moments.sort_unstable();
            format!("rate.mahimahi = {{ opportunities = {moments:?}, at_end = \"{at_end}\" }}")
        }),
        1 => at_end().prop_map(|at_end| format!(
            "rate.mahimahi = {{ file = \"opportunities.txt\", at_end = \"{at_end}\" }}"
        )),
    ]
}

fn radio() -> impl Strategy<Value = String> {
    maybe(prop_oneof![
        Just(", radio = { up = \"20 dB\", down = \"9 dB\" }".to_owned()),
        (at_end(), one_of(&["step", "line"])).prop_map(|(at_end, between)| format!(
            ", radio = {{ fade = {{ points = [[\"0 s\", \"0 dB\"], [\"200 ms\", \"25 dB\"], [\"300 ms\", \"0 dB\"]], between = \"{between}\", at_end = \"{at_end}\" }} }}"
        )),
        Just(", radio = { fade = { file = \"fades.csv\", columns = [\"s\", \"dB\"], at_end = \"loop\" } }".to_owned()),
    ])
}

fn dvb_s2() -> impl Strategy<Value = String> {
    let coding = prop_oneof![
        (1u8..=28).prop_map(|id| format!("modcod = {id}")),
        (0u8..5, 0u8..3, 0u32..400, one_of(&["efficiency", "threshold"])).prop_map(
            |(margin, hysteresis, delay, prefer)| format!(
                "acm = {{ margin = \"{margin} dB\", hysteresis = \"{hysteresis} dB\", report_every = \"30 ms\", report_delay = \"{delay} ms\", prefer = \"{prefer}\" }}"
            )
        ),
        Just("acm = {}".to_owned()),
    ];
    let tick = maybe(one_of(&[", tick = \"10 ms\"", ", tick = \"25 ms\""]));
    (5u32..60, coding, radio(), tick, 0u8..20).prop_map(|(mhz, coding, radio, tick, header)| {
        format!(
            "rate.dvb-s2 = {{ bandwidth = \"{mhz} MHz\", roll_off = 0.25, {coding}{radio}{tick}, link_header = {header} }}"
        )
    })
}

fn dvb_rcs2() -> impl Strategy<Value = String> {
    let others = maybe(prop_oneof![
        (1u32..20_000).prop_map(|kbit| format!(", others = [{{ rate = \"{kbit} kbit/s\" }}]")),
        (1u32..20_000, 1u32..80, 1u32..80, any::<bool>()).prop_map(|(kbit, on, off, exponential)| format!(
            ", others = [{{ rate = \"{kbit} kbit/s\", from = \"15 ms\", on = \"{on} ms\", off = \"{off} ms\", exponential = {exponential} }}, {{ rate = \"90 kbit/s\", until = \"2 s\" }}]"
        )),
    ]);
    let classes = (0u64..500, 0u64..5_000, 0u64..20_000, 1u64..300);
    let timing = maybe(one_of(&[
        ", request_every = 3, backlog_over = 2, grant_delay = \"40 ms\"",
        ", superframe = \"10 ms\", request_every = 1",
    ]));
    (3u8..=22, classes, radio(), others, timing, 0u8..20).prop_map(
        |(waveform, (cra, rbdc, vbdc, fca), radio, others, timing, header)| {
            // Beside others something must be the terminal's own.
            let cra = if others.is_empty() { cra } else { cra + 1 };
            format!(
                "rate.dvb-rcs2 = {{ bandwidth = \"2 MHz\", roll_off = 0.2, waveform = {waveform}, cra = \"{cra} kbit/s\", rbdc = \"{rbdc} kbit/s\", vbdc = \"{vbdc} B\", fca = \"{fca} bit/s\"{radio}{others}{timing}, link_header = {header} }}"
            )
        },
    )
}

/// Never so short that a queue in BDP, as [`limits`] has it, could not hold a packet at 1 kbit/s.
fn delays(orbit: bool) -> impl Strategy<Value = String> {
    let plain = prop_oneof![
        (200u32..300_000).prop_map(|us| format!("delay = \"{us} us\"")),
        (1u32..300, 1u32..300, at_end(), one_of(&["step", "line"])).prop_map(
            |(first, last, at_end, between)| format!("delay.trace = {{ points = [[\"0 s\", \"{first} ms\"], [\"70 ms\", \"{last} ms\"], [\"200 ms\", \"{first} ms\"]], at_end = \"{at_end}\", between = \"{between}\" }}")
        ),
        at_end().prop_map(|at_end| format!("delay.trace = {{ file = \"delays.csv\", columns = [\"s\", \"ms\"], at_end = \"{at_end}\" }}")),
        (1u32..150, 0u32..20, 0u32..20).prop_map(|(leg, poll, satellite)| format!("delay.relay = {{ up = \"{leg} ms\", down = \"{leg} ms\", poll = \"{poll} ms\", satellite_poll = \"{satellite} ms\" }}")),
    ]
    .boxed();
    let orbits = (0u32..20)
        .prop_map(|extra| format!("delay.orbit = {{ extra = \"{extra} ms\" }}"))
        .boxed();
    if orbit { orbits } else { plain }
}

fn orbits() -> impl Strategy<Value = String> {
    let satellites = prop_oneof![
        // A ring of geostationary ones, a polar shell, and one that comes and goes.
        Just("step = \"10 s\"\nduration = \"60 s\"\nsatellites.walker = { altitude = 35786.0, inclination = 0.0, satellites = 8, planes = 1 }".to_owned()),
        Just("step = \"10 s\"\nduration = \"60 s\"\nsatellites.walker = { altitude = 1200.0, inclination = 87.9, satellites = 720, planes = 18, phasing = 1 }".to_owned()),
        Just(format!("step = \"2 min\"\nduration = \"24 h\"\nsatellites.tle = \"\"\"\n{ISS}\"\"\"")),
        Just("step = \"2 min\"\nduration = \"24 h\"\nsatellites.tle-file = \"iss.tle\"".to_owned()),
    ];
    (5u32..15, at_end(), satellites).prop_map(|(elevation, at_end, satellites)| {
        format!(
            "[orbit]\nterminal = {{ latitude = 49.5, longitude = 11.0, altitude = 300.0 }}\ngateway = {{ latitude = 50.1, longitude = 8.7, altitude = 100.0 }}\nminimum_elevation = {elevation}.0\nat_end = \"{at_end}\"\n{satellites}\n"
        )
    })
}

fn limits() -> impl Strategy<Value = String> + use<> {
    prop_oneof![
        (1u32..60).prop_map(|count| format!("{count} packets")),
        (1500u64..100_000).prop_map(|bytes| format!("{bytes} B")),
        // Enough for 1280 bytes at any rate here.
        (12_000u64..20_000).prop_map(|ms| format!("{ms} ms")),
        (100_000u32..200_000).prop_map(|times| format!("{times} BDP")),
    ]
}

fn queues() -> impl Strategy<Value = String> {
    let ecn = any::<bool>;
    prop_oneof![
        limits().prop_map(|limit| format!("queue = \"{limit}\"")),
        (3u32..60, 0u32..2).prop_map(|(limit, less)| format!("queue.marking = {{ limit = \"{limit} packets\", above = \"{} packets\" }}", limit - 1 - less)),
        (9_000u64..100_000, 1500u64..9_000).prop_map(|(limit, above)| format!("queue.marking = {{ limit = \"{limit} B\", above = \"{above} B\" }}")),
        (limits(), 1u32..20, ecn()).prop_map(|(limit, target, ecn)| format!("queue.codel = {{ limit = \"{limit}\", target = \"{target} ms\", interval = \"{} ms\", ecn = {ecn} }}", target * 5)),
        (limits(), 1u32..20, 1u16..8, ecn()).prop_map(|(limit, target, flows, ecn)| format!("queue.fq-codel = {{ limit = \"{limit}\", target = \"{target} ms\", interval = \"{} ms\", flows = {flows}, quantum = \"300 B\", ecn = {ecn} }}", target * 5)),
        (limits(), 1u32..20, ecn()).prop_map(|(limit, target, ecn)| format!("queue.pie = {{ limit = \"{limit}\", target = \"{target} ms\", update = \"{target} ms\", burst = \"10 ms\", ecn = {ecn} }}")),
    ]
}

fn losses() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("loss = \"3 %\"".to_owned()),
        (1u32..5).prop_map(|most| format!(
            "loss.bounded = {{ chance = \"60 %\", max_burst = {most} }}"
        )),
        (1u32..4).prop_map(|fragments| format!("loss.fragmented = {{ chance = \"8 %\", fragments = {fragments} }}")),
        Just("loss.gilbert-elliott = { to_bad = \"2 %\", to_good = \"30 %\", loss_good = \"0.1 %\", loss_bad = \"90 %\" }".to_owned()),
        (0u32..30).prop_map(|first| format!("loss.periodic = {{ every = 9, lose = 2, first = {first} }}")),
        at_end().prop_map(|at_end| format!("loss.trace = {{ fates = \"..x....xx.\", at_end = \"{at_end}\" }}")),
        at_end().prop_map(|at_end| format!("loss.trace = {{ file = \"fates.txt\", at_end = \"{at_end}\" }}")),
    ]
}

fn extras() -> impl Strategy<Value = Vec<String>> {
    (
        maybe(one_of(&["jitter = { up_to = \"7 ms\" }", "jitter = { up_to = \"30 ms\", every = \"20 ms\" }"])),
        maybe(one_of(&["duplicate = \"5 %\""])),
        maybe(one_of(&["corrupt = \"5 %\"", "corrupt.bounded = { chance = \"30 %\", max_burst = 2 }"])),
        maybe(one_of(&["reorder = { chance = \"5 %\", by = \"3 ms\" }"])),
        maybe(one_of(&[
            "outages = [{ from = \"30 ms\", for = \"40 ms\" }]",
            "outages = [{ from = \"30 ms\", for = \"40 ms\", every = \"150 ms\", packets = \"wait\" }, { from = \"10 ms\", for = \"5 ms\", every = \"90 ms\", packets = \"lost\" }]",
        ])),
        maybe(one_of(&["reconfigure = { every = \"100 ms\", first = \"20 ms\", step = \"9 ms\", gap = \"11 ms\", burst = \"20 ms\", loss = \"40 %\" }"])),
        maybe(one_of(&[
            "cross = [{ rate = \"300 kbit/s\" }]",
            "cross = [{ rate = \"1 Mbit/s\", packet = \"200 B\", from = \"5 ms\", on = \"20 ms\", off = \"30 ms\", exponential = true }, { rate = \"90 kbit/s\", until = \"100 ms\" }]",
        ])),
        maybe(one_of(&[
            "change = [{ at = \"50 ms\", rate = \"2 Mbit/s\" }, { at = \"80 ms\", loss = \"10 %\", outage = true }, { at = \"90 ms\", outage = false, loss.periodic = { every = 4, lose = 1, first = 2 } }]",
            "change = [{ at = \"10 ms\", queue = \"20 ms\", jitter = { up_to = \"3 ms\", every = \"10 ms\" } }, { at = \"40 ms\", rate = \"3 Mbit/s\", duplicate = \"9 %\", corrupt = \"4 %\" }, { at = \"60 ms\", queue.codel = { limit = \"9 packets\", target = \"5 ms\", interval = \"30 ms\", ecn = true }, loss.fragmented = { chance = \"5 %\", fragments = 2 }, reorder = { chance = \"20 %\", by = \"8 ms\" } }]",
            "change = [{ at = \"20 ms\", delay = \"1 ms\" }, { at = \"60 ms\", loss.bounded = { chance = \"20 %\", max_burst = 1 }, delay = \"70 ms\" }]",
        ])),
    )
        .prop_map(|(a, b, c, d, e, f, g, h)| vec![a, b, c, d, e, f, g, h])
}

prop_compose! {
    /// One direction, without its header.
    fn directions(orbit: bool)(
        (rate, frame) in rates().boxed(),
        delay in delays(orbit),
        queue in queues().boxed(),
        loss in maybe(losses()).boxed(),
        per_frame in any::<bool>(),
        resequence in maybe(one_of(&["resequence = 1", "resequence = 5"])),
        extras in extras().boxed(),
    ) -> String {
        let unit = if per_frame { frame } else { "packet" };
        let resequence = if unit == "packet" { String::new() } else { resequence };
        format!("{rate}\n{delay}\n{queue}\n{loss}\nloss_per = \"{unit}\"\n{resequence}\n{}\n", extras.join("\n"))
    }
}

prop_compose! {
    fn switches()(at in 5u32..200, new_address in any::<bool>(), forward in directions(false).boxed(), back in directions(false).boxed()) -> String {
        format!("[[switch]]\nat = \"{at} ms\"\nnew_address = {new_address}\n[switch.forward]\n{forward}[switch.return]\n{back}")
    }
}

prop_compose! {
    fn plain()(
        forward in directions(false).boxed(),
        back in directions(false).boxed(),
        ground in maybe(one_of(&["[ground]\ndelay = \"40 ms\"\n", "[ground]\ndelay = \"4 ms\"\nrate = \"100 Mbit/s\"\nqueue = \"0.5 BDP\"\n"])),
        switch in maybe(switches()).boxed(),
    ) -> String {
        format!("[forward]\n{forward}[return]\n{back}{ground}{switch}")
    }
}

prop_compose! {
    fn in_orbit()(orbit in orbits(), forward in directions(true).boxed(), back in directions(true).boxed()) -> String {
        format!("[forward]\n{forward}[return]\n{back}{orbit}")
    }
}

/// Whole scenarios.
pub fn scenarios() -> impl Strategy<Value = String> {
    let header =
        "name = \"generated\"\ntitle = \"made by a test\"\nsource = \"chance\"\nseed = 3\n";
    prop_oneof![20 => plain().boxed(), 1 => in_orbit().boxed()]
        .prop_map(move |text| format!("{header}{text}"))
}
