//! Any text is refused with an error or becomes a change that every kind of link takes.
#![no_main]

use bentpipe_link::Change;
use bentpipe_link::{Direction, Scenario};
use bentpipe_units::Time;

/// Packets one by one, BBFRAMEs and bursts.
const LINKS: [&str; 2] = [
    include_str!("../../scenarios/geo.toml"),
    include_str!("../../scenarios/kosek-leo.toml"),
];

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(change) = Change::parse(text) else {
        return;
    };
    for scenario in LINKS {
        let scenario = Scenario::parse(scenario).expect("a preset is right");
        for spec in [&scenario.forward, &scenario.r#return] {
            let mut link: Direction<Vec<u8>> = Direction::new(spec, scenario.seed);
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
});
