//! Nothing that a person or a machine writes makes the parser panic, and what it
//! accepts can be run. Presets are the seeds; `fuzz/corpus/scenario` is replayed.

use std::path::{Path, PathBuf};

use bentpipe_link::Change;
use bentpipe_link::{Direction, Scenario};
use bentpipe_units::Time;
use proptest::prelude::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn texts(directory: &str) -> Vec<(PathBuf, String)> {
    let mut all: Vec<_> = std::fs::read_dir(root().join(directory))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            (path, String::from_utf8_lossy(&bytes).into_owned())
        })
        .collect();
    all.sort();
    all
}

/// What the fuzz target does, too.
fn parse_and_run(text: &str) -> Option<Scenario> {
    let scenario = Scenario::parse(text).ok()?;
    for spec in [&scenario.forward, &scenario.r#return] {
        let mut link: Direction<Vec<u8>> = Direction::new(spec, scenario.seed);
        for at in 0..20 {
            let now = Time::from_nanos(at * 1_000_000);
            let _ = link.handle_arrival(now, vec![0x45; 1200]);
            while link.poll_departure(now).is_some() {}
        }
    }
    Some(scenario)
}

#[test]
fn the_corpus_is_replayed() {
    let corpus = texts("fuzz/corpus/scenario");
    assert!(corpus.len() >= 20, "the corpus is there");
    for (_, text) in corpus {
        parse_and_run(&text);
    }
}

#[test]
fn the_corpus_of_changes_is_replayed() {
    let corpus = texts("fuzz/corpus/change");
    assert!(corpus.len() >= 19, "the corpus is there");
    let (mut taken, mut refused) = (0, 0);
    for (path, text) in corpus {
        let change = match Change::parse(&text) {
            Ok(change) => change,
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty(), "{}", path.display());
                continue;
            }
        };
        taken += 1;
        for preset in ["geo", "kosek-leo"] {
            let text = std::fs::read_to_string(root().join(format!("scenarios/{preset}.toml")));
            let scenario = Scenario::parse(&text.unwrap()).unwrap();
            for spec in [&scenario.forward, &scenario.r#return] {
                let mut link: Direction<Vec<u8>> = Direction::new(spec, 1);
                for at in 0..20 {
                    let now = Time::from_nanos(at * 1_000_000);
                    let _ = link.handle_arrival(now, vec![0x45; 1200]);
                    if at == 10 {
                        link.apply(now, &change);
                    }
                    while link.poll_departure(now).is_some() {}
                }
            }
        }
    }
    assert!(taken > 5 && refused > 5, "{taken} taken, {refused} refused");
}

#[test]
fn every_preset_is_right_and_survives_its_echo() {
    for (path, text) in texts("scenarios") {
        let scenario = Scenario::parse_with(&text, &mut |name| {
            std::fs::read_to_string(root().join("scenarios").join(name)).map_err(|e| e.to_string())
        })
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(
            Some(scenario.name.as_str()),
            path.file_stem().and_then(|s| s.to_str())
        );
        assert!(
            !scenario.source.is_empty() && !scenario.title.is_empty(),
            "{}",
            path.display()
        );
        let echo = toml::to_string(&scenario).unwrap();
        let again = Scenario::parse(&echo)
            .unwrap_or_else(|error| panic!("{}: {error}\n{echo}", path.display()));
        assert_eq!(again, scenario, "{}", path.display());
        parse_and_run(&echo).unwrap();
    }
}

#[test]
fn one_fixture_sets_every_field_and_survives_its_echo() {
    let text = include_str!("fixtures/every-field.toml");
    let scenario = parse_and_run(text).unwrap_or_else(|| panic!("{:?}", Scenario::parse(text)));
    let echo = toml::to_string(&scenario).unwrap();
    assert_eq!(Scenario::parse(&echo).unwrap(), scenario, "{echo}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_preset_with_typing_errors_is_refused_or_runs(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"0123456789.-\"'[]{}=,# \nabcdeghkmnoprstuMGB%"[..]), 0u8..3), 1..4),
    ) {
        let presets = texts("scenarios");
        let mut text = which.get(&presets).1.clone().into_bytes();
        for (place, byte, kind) in edits {
            let place = place.index(text.len());
            match kind {
                0 => text[place] = byte,
                1 => text.insert(place, byte),
                _ => { text.remove(place); }
            }
        }
        parse_and_run(&String::from_utf8_lossy(&text));
    }
}

#[test]
fn satellites_that_are_never_seen_are_an_error_and_gaps_are_outages() {
    let text = |gateway: f64, satellites: &str| {
        format!(
            "name = \"o\"\n[forward]\nrate = \"1 Mbit/s\"\ndelay.orbit = {{}}\nqueue = \"20 packets\"\n[return]\nrate = \"1 Mbit/s\"\ndelay.orbit = {{ extra = \"5 ms\" }}\nqueue = \"20 packets\"\n[orbit]\nterminal = {{ latitude = 49.5, longitude = 11.0 }}\ngateway = {{ latitude = 50.1, longitude = {gateway} }}\nduration = \"24 h\"\nstep = \"20 s\"\nat_end = \"loop\"\n{satellites}\n"
        )
    };
    // The space station's elements of 20 September 2008, the example of the format.
    let tle = "satellites.tle = \"\"\"\nISS (ZARYA)\n1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927\n2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537\n\"\"\"";
    let error = Scenario::parse(&text(-170.0, tle)).unwrap_err().to_string();
    assert!(
        error.contains(
            "orbit.minimum_elevation = \"10\": no satellite is seen by terminal and gateway"
        ),
        "{error}"
    );
    let one = Scenario::parse(&text(8.7, tle)).unwrap();
    assert!(
        !one.forward.outages.is_empty(),
        "one satellite is not always there"
    );
    let shell = "satellites.walker = { altitude = 1200.0, inclination = 87.9, satellites = 720, planes = 18, phasing = 1 }";
    let many = Scenario::parse(&text(8.7, shell)).unwrap();
    assert!(
        many.forward.outages.is_empty(),
        "{:?}",
        many.forward.outages
    );
    // Straight up and down at 1200 km is 8.0 ms; at 10 degrees 2 x 3,100 km, 21 ms.
    let delay = many.forward.delay.typical().span().as_nanos() as f64 / 1e6;
    assert!((8.0..21.0).contains(&delay), "{delay}");
    let shift = many.r#return.delay.typical().span().as_nanos()
        - many.forward.delay.typical().span().as_nanos();
    assert!(shift.abs_diff(5_000_000) <= 1, "{shift}");
    let error = Scenario::parse(&text(8.7, "satellites.tle = \"nothing\""))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there are no two-line elements in it"),
        "{error}"
    );
}
