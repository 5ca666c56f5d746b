//! Any text is refused with an error or becomes a link that runs.
#![no_main]

use bentpipe_link::{Direction, Scenario};
use bentpipe_units::Time;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(scenario) = Scenario::parse(text) else {
        return;
    };
    for spec in [&scenario.forward, &scenario.r#return] {
        let mut link: Direction<Vec<u8>> = Direction::new(spec, scenario.seed);
        for at in 0..20 {
            let now = Time::from_nanos(at * 1_000_000);
            let _ = link.handle_arrival(now, vec![0x45; 1200]);
            while link.poll_departure(now).is_some() {}
        }
    }
});
