//! Bad input names the controller, the parameter, the value and the range.

use bentpipe_cc::{Choice, Settings};
use bentpipe_units::{Bytes, Rate, Span};

#[test]
fn an_unknown_controller_is_told_the_known_ones() {
    let error = "vegas"
        .parse::<Choice>()
        .expect_err("there is none")
        .to_string();
    assert!(error.contains("\"vegas\""), "{error}");
    for choice in Choice::ALL {
        assert!(error.contains(choice.name()), "{error} lacks {choice}");
    }
}

#[test]
fn every_controller_is_found_by_its_name() {
    for choice in Choice::ALL {
        assert_eq!(choice.name().parse(), Ok(choice));
    }
}

#[test]
fn a_parameter_out_of_range_is_named_with_its_range() {
    type Spoil = fn(&mut Settings);
    let cases: [(Choice, Spoil, &str); 8] = [
        (
            Choice::Cubic,
            |settings| settings.initial_window = 1,
            "controller cubic: initial_window = 1 packets is out of its range, 2 to 1000 packets",
        ),
        (
            Choice::Satellite,
            |settings| settings.initial_window = 1001,
            "controller satellite: initial_window = 1001 packets is out of its range, 2 to 1000 packets",
        ),
        (
            Choice::Bbr3,
            |settings| settings.initial_rtt = Span::ZERO,
            "controller bbr3: initial_rtt = 0 ns is out of its range, 1 ms to 10 s",
        ),
        (
            Choice::NewReno,
            |settings| settings.max_window = Bytes::new(3000),
            "controller newreno: max_window = 3 kB is out of its range, 16 KiB to 4 GiB",
        ),
        (
            Choice::Hybla,
            |settings| settings.max_window = Bytes::new(5 << 30),
            "controller hybla: max_window = 5 GiB is out of its range, 16 KiB to 4 GiB",
        ),
        (
            Choice::Hybla,
            |settings| settings.contracted_rate = Some(Rate::from_bits_per_second(1)),
            "controller hybla: contracted_rate = 1 bit/s is out of its range, 8 kbit/s to 100 Gbit/s",
        ),
        (
            Choice::Cubic,
            |settings| settings.contracted_rate = Some(Rate::from_bits_per_second(20_000_000)),
            "controller cubic: contracted_rate = 20 Mbit/s has no effect on it; leave it out",
        ),
        (
            Choice::Fixed,
            |_| {},
            "controller fixed: contracted_rate = nothing is out of its range, 8 kbit/s to 100 Gbit/s; \
             this controller is that rate",
        ),
    ];
    for (choice, spoil, expected) in cases {
        let mut settings = Settings::new(choice);
        spoil(&mut settings);
        let error = settings.check().expect_err(expected).to_string();
        assert_eq!(error, expected);
    }
}
