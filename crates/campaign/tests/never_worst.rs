//! The short form of `bentpipe sim never-worst`: slow links of one set, which take little time.

use std::time::Instant;

use bentpipe_campaign::budget::{draw, never_worst};
use bentpipe_cc::Choice;

/// On slow links nobody crawls, and nobody floods what has no room.
#[test]
fn slow_links_of_a_drawn_set_keep_most_of_the_best_goodput() {
    const SEED: u64 = 1;
    let links: Vec<_> = (0..40)
        .filter(|link| draw::draw(SEED, *link).bits < 700_000)
        .collect();
    assert!(links.len() >= 5, "{links:?}");
    let controllers = [Choice::Satellite, Choice::Cubic];
    let runs = never_worst::runs(SEED, &links, &controllers, Vec::new(), Instant::now());
    for cell in never_worst::cells(&runs, Choice::Satellite) {
        let title = draw::draw(SEED, cell.link).title;
        if cell.measure == "goodput" {
            assert!(
                cell.score >= 0.8,
                "{:.3} of {} on {title}",
                cell.score,
                cell.best
            );
        }
    }
}

/// Twenty packets back to back overflow a short queue; what follows them is what came through, not
/// twice the first window.
#[test]
fn a_first_hundred_kilobytes_through_a_short_queue_do_not_flood_it() {
    for (seed, link) in [(303, 14), (303, 10), (101, 9)] {
        let controllers = [Choice::Satellite, Choice::Cubic, Choice::NewReno];
        let runs = never_worst::runs(seed, &[link], &controllers, Vec::new(), Instant::now());
        let cells = never_worst::cells(&runs, Choice::Satellite);
        let first = (cells.iter().find(|cell| cell.measure == "100 kB")).expect("it arrives");
        let title = draw::draw(seed, link).title;
        assert!(first.score >= 0.9, "{:.3} on {title}", first.score);
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let figures = || never_worst::runs(1, &[0], &[Choice::Satellite], Vec::new(), Instant::now());
    assert_eq!(figures(), figures());
}
