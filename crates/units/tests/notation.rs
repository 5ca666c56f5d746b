//! What people write is read exactly, printed the same way, or refused.

use bentpipe_units::{Bytes, OneWayDelay, Probability, Rate, Span};
use proptest::prelude::*;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

#[test]
fn people_write_quantities_like_this() {
    assert_eq!(rate("20 Mbit/s").bits_per_second(), 20_000_000);
    assert_eq!(rate("0.5Mbit/s"), rate("500 kbit/s"));
    assert_eq!("10 MiB".parse::<Bytes>().unwrap().as_u64(), 10 << 20);
    assert_eq!("1250 kB".parse::<Bytes>().unwrap().to_string(), "1.25 MB");
    assert_eq!("26.5 ms".parse::<Span>().unwrap().as_nanos(), 26_500_000);
    assert_eq!(
        "250 ms".parse::<OneWayDelay>().unwrap().to_string(),
        "250 ms"
    );
    assert_eq!("0.1 %".parse::<Probability>().unwrap().as_f64(), 0.001);
    assert_eq!(
        "0.01 %".parse::<Probability>().unwrap().to_string(),
        "0.01 %"
    );
}

#[test]
fn a_wrong_quantity_says_what_would_be_right() {
    let message = |result: Result<Rate, _>| -> String {
        let error: bentpipe_units::ParseError = result.unwrap_err();
        error.to_string()
    };
    for (text, why) in [
        ("20", "no unit"),
        ("20 Mbps", "\"Mbps\" is not one of"),
        ("-1 Mbit/s", "negative"),
        ("fast", "no number"),
        ("0.5 bit/s", "whole number of bits per second"),
        ("99999999999999 Gbit/s", "too large"),
        ("1.2.3 Mbit/s", "no number"),
        ("", "no number"),
    ] {
        let said = message(text.parse());
        assert!(
            said.contains(why) && said.contains("20 Mbit/s"),
            "{text:?}: {said}"
        );
    }
    for (p, text) in [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.5, "50 %"),
        (1e-7, "0.00001 %"),
        (0.125, "12.5 %"),
    ] {
        assert_eq!(Probability::new(p).unwrap().to_string(), text);
    }
    assert!(
        "101 %"
            .parse::<Probability>()
            .unwrap_err()
            .to_string()
            .contains("between 0 % and 100 %")
    );
    assert!("NaN %".parse::<Probability>().is_err());
    assert!(
        "0.01"
            .parse::<Probability>()
            .unwrap_err()
            .to_string()
            .contains("no %")
    );
}

#[test]
fn a_number_without_quotes_is_told_how_to_write_it() {
    #[derive(Debug, serde::Deserialize)]
    struct Config {
        #[expect(dead_code, reason = "only its reading matters")]
        rate: Rate,
    }
    let said = toml::from_str::<Config>("rate = 20")
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("a rate in quotes with its unit, like \"20 Mbit/s\""),
        "{said}"
    );
}

#[test]
fn the_bandwidth_delay_product_of_the_geo_link() {
    assert_eq!(
        rate("20 Mbit/s").bytes_in(Span::from_millis(600)).as_u64(),
        1_500_000
    );
    assert_eq!(
        rate("20 Mbit/s").time_for(Bytes::new(1500)),
        Some(Span::from_nanos(600_000))
    );
    assert_eq!(rate("0 bit/s").time_for(Bytes::new(1)), None);
}

proptest! {
    #[test]
    fn every_rate_reads_back_as_printed(bits in any::<u64>()) {
        let rate = Rate::from_bits_per_second(bits);
        prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
    }

    #[test]
    fn every_amount_reads_back_as_printed(count in any::<u64>()) {
        let bytes = Bytes::new(count);
        prop_assert_eq!(bytes.to_string().parse::<Bytes>().unwrap(), bytes);
    }

    #[test]
    fn every_span_reads_back_as_printed(nanos in any::<u64>()) {
        let span = Span::from_nanos(nanos);
        prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
    }

    #[test]
    fn every_probability_reads_back_as_printed(p in 0.0..=1.0f64) {
        let probability = Probability::new(p).unwrap();
        prop_assert_eq!(probability.to_string().parse::<Probability>().unwrap(), probability);
    }

    #[test]
    fn nothing_that_people_type_panics(text in "\\PC{0,24}") {
        let _ = text.parse::<Rate>();
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<Span>();
        let _ = text.parse::<Probability>();
    }
}

#[test]
fn bandwidths_and_ratios_print_as_they_are_written() {
    use bentpipe_units::{Decibel, Frequency};
    for text in ["50 MHz", "19.98 MHz", "36 kHz", "1 Hz"] {
        assert_eq!(text.parse::<Frequency>().unwrap().to_string(), text);
    }
    for text in ["17.5 dB", "-2.35 dB", "0 dB"] {
        assert_eq!(text.parse::<Decibel>().unwrap().to_string(), text);
    }
    for wrong in ["17.5", "NaN dB", "inf dB", "dB"] {
        assert!(wrong.parse::<Decibel>().is_err(), "{wrong}");
    }
}
