//! What a person reads who has written something that cannot be: one table for each
//! kind of mistake, the whole text of each error.

use bentpipe_link::Scenario;

/// A scenario with these lines in `[forward]`, the first of them on line 3. What they do
/// not say is said for them.
fn scenario(lines: &str) -> String {
    let rest = [
        ("rate", "rate = \"20 Mbit/s\""),
        ("delay", "delay = \"250 ms\""),
        ("queue", "queue = \"1 BDP\""),
    ]
    .into_iter()
    .filter(|(key, _)| {
        !lines.lines().any(|line| {
            line.starts_with(&format!("{key} ")) || line.starts_with(&format!("{key}."))
        })
    })
    .map(|(_, line)| line)
    .collect::<Vec<_>>()
    .join("\n");
    format!(
        "name = \"t\"\n[forward]\n{lines}\n{rest}\n[return]\nrate = \"5 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n"
    )
}

fn error(text: &str) -> String {
    let mut files = |name: &str| match name {
        "empty.csv" => Ok("# nothing\n".to_owned()),
        "words.csv" => Ok("0,20\n1,many\n".to_owned()),
        "three.csv" => Ok("0,20,30\n".to_owned()),
        "back.csv" => Ok("0,20\n5,30\n4,20\n".to_owned()),
        _ => Err(format!("{name}: No such file or directory")),
    };
    match Scenario::parse_with(text, &mut files) {
        Err(error) => without_drawing(&error.to_string()),
        Ok(_) => panic!("accepted:\n{text}"),
    }
}

/// The place and the sentence of a mistake of syntax, without the line that is drawn
/// between them with an arrow.
fn without_drawing(error: &str) -> String {
    match (error.split_once('\n'), error.rsplit_once('\n')) {
        (Some((place, _)), Some((drawing, sentence))) if drawing.contains("\n  |") => {
            format!("{place}: {sentence}")
        }
        _ => error.to_owned(),
    }
}

#[track_caller]
fn are_told(cases: &[(&str, &str)]) {
    for (lines, wanted) in cases {
        assert_eq!(error(&scenario(lines)), *wanted, "{lines}");
    }
}

#[test]
fn unknown_keys_and_models_are_named_with_those_that_there_are() {
    are_told(&[
        (
            "los = \"1 %\"",
            "TOML parse error at line 3, column 1: unknown field `los`, expected one of `rate`, `delay`, `jitter`, `loss`, `loss_per`, `resequence`, `corrupt`, `duplicate`, `reorder`, `queue`, `outages`, `reconfigure`, `cross`, `change`",
        ),
        (
            "rate.trace = { points = [[\"0 s\", \"1 Mbit/s\"]], at_end = \"hold\", betwen = \"step\" }",
            "TOML parse error at line 3, column 65: unknown field `betwen`, expected one of `points`, `file`, `columns`, `between`, `at_end`",
        ),
        (
            "rate.dvb-s3 = {}",
            "TOML parse error at line 3, column 6: unknown variant `dvb-s3`, expected one of `constant`, `trace`, `mahimahi`, `dvb-s2`, `dvb-rcs2`",
        ),
        (
            "queue.red = { limit = \"1 MB\" }",
            "TOML parse error at line 3, column 7: unknown variant `red`, expected one of `drop-tail`, `marking`, `codel`, `fq-codel`, `pie`",
        ),
        (
            "[[forward.chnge]]",
            "TOML parse error at line 3, column 11: unknown field `chnge`, expected one of `rate`, `delay`, `jitter`, `loss`, `loss_per`, `resequence`, `corrupt`, `duplicate`, `reorder`, `queue`, `outages`, `reconfigure`, `cross`, `change`",
        ),
        (
            "dealy = \"250 ms\"",
            "TOML parse error at line 3, column 1: unknown field `dealy`, expected one of `rate`, `delay`, `jitter`, `loss`, `loss_per`, `resequence`, `corrupt`, `duplicate`, `reorder`, `queue`, `outages`, `reconfigure`, `cross`, `change`",
        ),
    ]);
}

#[test]
fn wrong_units_are_told_how_to_be_written() {
    are_told(&[
        (
            "rate = \"20 Mbps\"",
            "TOML parse error at line 3, column 8: \"20 Mbps\" is not a rate: \"Mbps\" is not one of Gbit/s, Mbit/s, kbit/s, bit/s; write it like \"20 Mbit/s\"",
        ),
        (
            "rate = 20",
            "TOML parse error at line 3, column 8: invalid type: integer `20`, expected a rate in quotes with its unit, like \"20 Mbit/s\", or a table: trace, mahimahi, dvb-s2 or dvb-rcs2",
        ),
        (
            "rate = \"20\"",
            "TOML parse error at line 3, column 8: \"20\" is not a rate: it has no unit (one of Gbit/s, Mbit/s, kbit/s, bit/s); write it like \"20 Mbit/s\"",
        ),
        (
            "delay = \"250\"",
            "TOML parse error at line 3, column 9: \"250\" is not a one-way delay: it has no unit (one of h, min, s, ms, us, µs, ns); write it like \"250 ms\"",
        ),
        (
            "delay = \"250 meters\"",
            "TOML parse error at line 3, column 9: \"250 meters\" is not a one-way delay: \"meters\" is not one of h, min, s, ms, us, µs, ns; write it like \"250 ms\"",
        ),
        (
            "queue = \"1250\"",
            "TOML parse error at line 3, column 9: \"1250\" is not a queue size: it has no unit (one of GiB, GB, MiB, MB, KiB, kB, B); write it like \"25 packets, 1250 kB, 100 ms or 0.5 BDP\"",
        ),
        (
            "loss = \"0.1\"",
            "TOML parse error at line 3, column 8: \"0.1\" is not a probability: it has no % behind it; write it like \"0.01 %\"",
        ),
        (
            "loss = \"101 %\"",
            "TOML parse error at line 3, column 8: \"101 %\" is not a probability: it is not between 0 % and 100 %; write it like \"0.01 %\"",
        ),
        (
            "jitter = { up_to = 3 }",
            "TOML parse error at line 3, column 20: invalid type: integer `3`, expected a time in quotes with its unit, like \"250 ms\"",
        ),
        (
            "rate.trace = { points = [[\"0 s\", \"1 MB\"]], at_end = \"hold\" }",
            "TOML parse error at line 3, column 34: \"1 MB\" is not a rate: \"MB\" is not one of Gbit/s, Mbit/s, kbit/s, bit/s; write it like \"20 Mbit/s\"",
        ),
        (
            "rate.trace = { file = \"words.csv\", columns = [\"s\", \"Mbit/s\"], at_end = \"hold\" }",
            "line 3: forward.rate.trace.file = \"words.csv\": line 2: \"many Mbit/s\" is not a rate: it has no number in front; write it like \"20 Mbit/s\"",
        ),
        (
            "rate.trace = { file = \"three.csv\", columns = [\"s\", \"Mbit/s\"], at_end = \"hold\" }",
            "line 3: forward.rate.trace.file = \"three.csv\": line 1: \"0,20,30\" is not two columns",
        ),
        (
            "rate.trace = { file = \"words.csv\", at_end = \"hold\" }",
            "line 3: forward.rate.trace.file = \"words.csv\": the units of its two columns are not said; add columns = [\"s\", \"ms\"] or what they are",
        ),
        (
            "rate.trace = { file = \"none.csv\", columns = [\"s\", \"Mbit/s\"], at_end = \"hold\" }",
            "line 3: forward.rate.trace.file = \"none.csv\": none.csv: No such file or directory",
        ),
        (
            "rate.trace = { file = \"back.csv\", columns = [\"s\", \"Mbit/s\"], at_end = \"hold\" }",
            "line 3: forward.rate.trace.file = \"back.csv\": line 3: 4 s stands behind 5 s; the moments of a trace must increase",
        ),
        (
            "rate.dvb-s2 = { bandwidth = \"50\", roll_off = 0.25, modcod = 1 }",
            "TOML parse error at line 3, column 29: \"50\" is not a bandwidth: it has no unit (one of GHz, MHz, kHz, Hz); write it like \"50 MHz\"",
        ),
        (
            "queue = \"2.5 packets\"",
            "TOML parse error at line 3, column 9: \"2.5 packets\" is not a queue size: it is not a whole number of packets; write it like \"25 packets, 1250 kB, 100 ms or 0.5 BDP\"",
        ),
        (
            "loss.trace = { fates = \"..o\", at_end = \"loop\" }",
            "line 3: forward.loss.trace.fates = \"o\": a fate is '.' (passes) or 'x' (lost)",
        ),
        (
            "rate.trace = { points = [[\"1 s\", \"1 Mbit/s\"], [\"0 s\", \"1 Mbit/s\"]], at_end = \"hold\" }",
            "line 3: forward.rate.trace = \"0 ns\": it stands behind 1 s; the moments of a trace must increase",
        ),
    ]);
}

#[test]
fn delays_that_cannot_be() {
    are_told(&[
        (
            "delay = \"-250 ms\"",
            "TOML parse error at line 3, column 9: \"-250 ms\" is not a one-way delay: it is negative; write it like \"250 ms\"",
        ),
        (
            "delay = \"250 s\"",
            "line 3: forward.delay = \"250 s\": longer than 10 s one way; is the unit right?",
        ),
        (
            "delay.trace = { points = [[\"0 s\", \"-1 ms\"]], at_end = \"hold\" }",
            "TOML parse error at line 3, column 35: \"-1 ms\" is not a one-way delay: it is negative; write it like \"250 ms\"",
        ),
        (
            "jitter = { up_to = \"-1 ms\" }",
            "TOML parse error at line 3, column 20: \"-1 ms\" is not a time: it is negative; write it like \"250 ms\"",
        ),
        (
            "jitter = { up_to = \"3 ms\", every = \"3 us\" }",
            "line 3: forward.jitter.every = \"3 us\": less than 1 ms; leave it out for a draw of each packet's own",
        ),
        (
            "delay.relay = { up = \"125 ms\", down = \"12 s\" }",
            "line 3: forward.delay.relay.down = \"12 s\": longer than 10 s one way; is the unit right?",
        ),
        (
            "reorder = { chance = \"1 %\", by = \"-5 ms\" }",
            "TOML parse error at line 3, column 34: \"-5 ms\" is not a time: it is negative; write it like \"250 ms\"",
        ),
        (
            "delay.orbit = {}",
            "line 3: forward.delay = \"orbit\": there is no [orbit] to follow; add one, or give the delay",
        ),
    ]);
}

#[test]
fn empty_traces() {
    are_told(&[
        (
            "rate.trace = { points = [], at_end = \"hold\" }",
            "line 3: forward.rate.trace = \"[]\": an empty trace; give points = [[\"0 s\", ...], ...] or a file",
        ),
        (
            "delay.trace = { points = [], at_end = \"hold\" }",
            "line 3: forward.delay.trace = \"[]\": an empty trace; give points = [[\"0 s\", ...], ...] or a file",
        ),
        (
            "rate.mahimahi = { opportunities = [], at_end = \"loop\" }",
            "line 3: forward.rate.mahimahi = \"[]\": an empty trace; give opportunities = [...] or a file",
        ),
        (
            "loss.trace = { fates = \"\", at_end = \"loop\" }",
            "line 3: forward.loss.trace.fates = \"\": an empty trace; write one '.' or 'x' for each",
        ),
        (
            "delay.trace = { file = \"empty.csv\", columns = [\"s\", \"ms\"], at_end = \"hold\" }",
            "line 3: forward.delay.trace.file = \"empty.csv\": an empty trace; write a time in s and a value in ms on each line",
        ),
    ]);
}

#[test]
fn traces_that_run_out_without_saying_what_then() {
    are_told(&[
        (
            "rate.trace = { points = [[\"0 s\", \"1 Mbit/s\"]] }",
            "TOML parse error at line 3, column 14: missing field `at_end`; say what happens when the trace runs out: at_end = \"hold\", \"loop\" or \"end\"",
        ),
        (
            "delay.trace = { points = [[\"0 s\", \"20 ms\"]] }",
            "TOML parse error at line 3, column 15: missing field `at_end`; say what happens when the trace runs out: at_end = \"hold\", \"loop\" or \"end\"",
        ),
        (
            "rate.mahimahi = { opportunities = [1] }",
            "TOML parse error at line 3, column 17: missing field `at_end`; say what happens when the trace runs out: at_end = \"hold\", \"loop\" or \"end\"",
        ),
        (
            "loss.trace = { fates = \".x\" }",
            "TOML parse error at line 3, column 14: missing field `at_end`; say what happens when the trace runs out: at_end = \"hold\", \"loop\" or \"end\"",
        ),
        (
            "delay.trace = { points = [[\"0 s\", \"20 ms\"]], at_end = \"stop\" }",
            "TOML parse error at line 3, column 55: unknown variant `stop`, expected one of `hold`, `loop`, `end`",
        ),
        (
            "rate.mahimahi = { opportunities = [1], at_end = \"hold\" }",
            "line 3: forward.rate.mahimahi = \"hold\": an opportunity cannot be held; say at_end = \"loop\" (as mahimahi does) or \"end\"",
        ),
        (
            "delay.trace = { points = [[\"0 s\", \"20 ms\"]], at_end = \"loop\" }",
            "line 3: forward.delay.trace = \"loop\": a trace of no length cannot loop; add a last point that says how long it is, or at_end = \"hold\"",
        ),
    ]);
}

#[test]
fn rates_queues_and_units_that_contradict_each_other() {
    are_told(&[
        (
            "rate = \"0 bit/s\"",
            "line 3: forward.rate = \"0 bit/s\": a link that sends nothing; give at least \"1 bit/s\"",
        ),
        (
            "rate.trace = { points = [[\"0 s\", \"0 bit/s\"]], at_end = \"hold\" }",
            "line 3: forward.rate.trace = \"0 bit/s\": the last rate is zero, so what waits then never leaves; end with a rate or use at_end = \"loop\"",
        ),
        (
            "rate.trace = { points = [[\"0 s\", \"0 bit/s\"], [\"1 s\", \"0 bit/s\"]], at_end = \"loop\" }",
            "line 3: forward.rate.trace = \"0 bit/s\": every rate in the loop is zero, so nothing is ever sent",
        ),
        (
            "rate.dvb-s2 = { bandwidth = \"50 MHz\", roll_off = 0.25 }",
            "line 3: forward.rate.dvb-s2 = \"neither modcod nor acm\": say either modcod = 1 to 28 or acm = { ... }, one of the two",
        ),
        (
            "rate.dvb-s2 = { bandwidth = \"50 MHz\", roll_off = 0.25, modcod = 29 }",
            "line 3: forward.rate.dvb-s2.modcod = \"29\": DVB-S2 has MODCODs 1 (QPSK 1/4) to 28 (32APSK 9/10)",
        ),
        (
            "rate.dvb-s2 = { bandwidth = \"50 MHz\", roll_off = 0.25, modcod = 1, acm = {} }",
            "line 3: forward.rate.dvb-s2 = \"modcod and acm\": say either modcod = 1 to 28 or acm = { ... }, one of the two",
        ),
        (
            "rate.dvb-s2 = { bandwidth = \"1 MHz\", roll_off = 0.25, modcod = 1, tick = \"10 ms\" }",
            "line 3: forward.rate.dvb-s2.tick = \"10 ms\": shorter than one BBFRAME at this bandwidth; make it longer, or leave it out",
        ),
        (
            "rate.dvb-rcs2 = { bandwidth = \"20 kHz\", roll_off = 0.35, waveform = 12, cra = \"1 Mbit/s\" }",
            "line 3: forward.rate.dvb-rcs2.bandwidth = \"20 kHz\": not one burst fits into a superframe; give more bandwidth or a longer superframe",
        ),
        (
            "rate.dvb-rcs2 = { bandwidth = \"20 MHz\", roll_off = 0.35, waveform = 12, cra = \"0 bit/s\" }",
            "line 3: forward.rate.dvb-rcs2.cra = \"0 bit/s\": no capacity class has any capacity; give cra, rbdc, vbdc or fca",
        ),
        (
            "rate.dvb-rcs2 = { bandwidth = \"20 MHz\", roll_off = 0.35, waveform = 12, cra = \"0 bit/s\", fca = \"1 Mbit/s\", others = [{ rate = \"80 Mbit/s\" }] }",
            "line 3: forward.rate.dvb-rcs2.cra = \"0 bit/s\": the others may take the whole carrier, and what is left over would be nothing for ever; give cra or rbdc",
        ),
        (
            "loss = \"1 %\"\nloss_per = \"bbframe\"",
            "line 4: forward.loss_per = \"bbframe\": this link sends packets one by one; say \"packet\" or leave it out",
        ),
        (
            "resequence = 5",
            "line 3: forward.resequence = \"5\": only missing frames are waited for: say loss_per = \"bbframe\" or \"burst\", or leave it out",
        ),
        (
            "rate.dvb-s2 = { bandwidth = \"50 MHz\", roll_off = 0.25, modcod = 1 }\nloss_per = \"bbframe\"\nresequence = 0",
            "line 5: forward.resequence = \"0\": not between 1 and 255 frames",
        ),
        (
            "rate.dvb-s2 = { bandwidth = \"50 MHz\", roll_off = 0.25, modcod = 1 }\nloss = \"1 %\"",
            "line 2: forward.loss_per = \"\": this link sends frames, so say what the losses count: loss_per = \"packet\" or \"bbframe\"",
        ),
        (
            "queue = \"1 kB\"",
            "line 3: forward.queue = \"1 kB\": too small for one packet of 1280 bytes, which IPv6 requires of every link (RFC 8200, section 5)",
        ),
        (
            "queue.marking = { limit = \"10 packets\", above = \"10 packets\" }",
            "line 3: forward.queue.marking.above = \"10 packets\": not below limit = \"10 packets\": nothing would ever be marked",
        ),
        (
            "loss.bounded = { chance = \"1 %\", max_burst = 0 }",
            "line 3: forward.loss.bounded.max_burst = \"0\": none may come true at all; give at least 1, or leave the table out",
        ),
        (
            "cross = [{ rate = \"0 bit/s\" }]",
            "line 3: forward.cross.0.rate = \"0 bit/s\": it sends nothing; leave it out",
        ),
        (
            "cross = [{ rate = \"1 Mbit/s\", on = \"1 s\" }]",
            "line 3: forward.cross.0.on = \"1 s\": on and off come together: how long it sends, and how long it pauses",
        ),
        (
            "change = [{ at = \"1 s\", rate = \"0 bit/s\" }]",
            "line 3: forward.change.0.rate = \"0 bit/s\": a link that sends nothing; for a pause use outages = [{ from, for, packets = \"wait\" }]",
        ),
        (
            "change = [{ at = \"2 s\" }, { at = \"1 s\" }]",
            "line 3: forward.change.1.at = \"1 s\": before the change above it; they stand in the order in which they happen",
        ),
        (
            "loss.periodic = { every = 3, lose = 4 }",
            "line 3: forward.loss.periodic.lose = \"4\": more than every = 3",
        ),
        (
            "outages = [{ from = \"1 s\", for = \"2 s\", every = \"1 s\" }]",
            "line 3: forward.outages.0.every = \"1 s\": it comes again before it is over; nothing would ever pass",
        ),
    ]);
}

#[test]
fn what_stands_outside_of_a_direction() {
    let whole = scenario("loss = \"0 %\"");
    assert_eq!(
        error(&format!(
            "{whole}[ground]\ndelay = \"40 ms\"\nqueue = \"1 B\"\n"
        )),
        "line 13: ground.queue = \"1 B\": too small for one packet of 1280 bytes, which IPv6 requires of every link (RFC 8200, section 5)"
    );
    assert_eq!(
        error(&whole.replacen("name = \"t\"", "name = \"../t\"", 1)),
        "line 1: name = \"../t\": a name has letters, digits, '-', '_' and '.', at least one"
    );
}

#[test]
fn a_text_alone_has_no_files_beside_it() {
    let lines =
        "rate.trace = { file = \"x.csv\", columns = [\"s\", \"Mbit/s\"], at_end = \"hold\" }";
    assert_eq!(
        Scenario::parse(&scenario(lines)).unwrap_err().to_string(),
        "line 3: forward.rate.trace.file = \"x.csv\": x.csv cannot be read here: this scenario was given as text, without the directory it lies in"
    );
}

#[test]
fn what_is_missing_is_told_how_to_be_written() {
    let whole = scenario("loss = \"0 %\"");
    for (line, wanted) in [
        ("name = \"t\"", "like name = \"geo\""),
        ("rate = \"20 Mbit/s\"", "like rate = \"20 Mbit/s\""),
        ("delay = \"250 ms\"", "one way, like delay = \"250 ms\""),
        (
            "queue = \"1 BDP\"",
            "like queue = \"1 BDP\" or queue = \"25 packets\"",
        ),
    ] {
        let key = line.split_once(' ').unwrap().0;
        let said = error(&whole.replacen(line, "", 1));
        let sentence = format!("missing field `{key}`; {wanted}");
        assert!(said.ends_with(&sentence), "{said}");
    }
}

#[test]
fn a_satellite_that_is_never_seen_is_told_before_anything_starts() {
    let text = |gateway: &str, elements: &str| {
        format!(
            "name = \"o\"\n[forward]\nrate = \"1 Mbit/s\"\ndelay.orbit = {{}}\nqueue = \"20 packets\"\n[return]\nrate = \"1 Mbit/s\"\ndelay.orbit = {{}}\nqueue = \"20 packets\"\n[orbit]\nterminal = {{ latitude = 49.5, longitude = 11.0 }}\ngateway = {{ {gateway} }}\nduration = \"24 h\"\nstep = \"60 s\"\nat_end = \"loop\"\nsatellites.tle = \"\"\"\n{elements}\"\"\"\n"
        )
    };
    let iss = "ISS (ZARYA)\n1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927\n2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537\n";
    for (gateway, elements, wanted) in [
        (
            "latitude = 50.1, longitude = -170.0",
            iss,
            "line 10: orbit.minimum_elevation = \"10\": no satellite is seen by terminal and gateway at once in 24 h: lower it, bring the two closer, or take other satellites",
        ),
        (
            "latitude = 95.0, longitude = 8.0",
            iss,
            "line 12: orbit.gateway.latitude = \"95\": not between -90 and 90 degrees",
        ),
        (
            "latitude = 50.1, longitude = 8.7",
            "nothing\n",
            "line 16: orbit.satellites.tle = \"\": there are no two-line elements in it; each satellite has a line that begins with \"1 \" and one with \"2 \"",
        ),
    ] {
        assert_eq!(error(&text(gateway, elements)), wanted);
    }
}
