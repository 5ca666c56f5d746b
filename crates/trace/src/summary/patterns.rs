//! Shapes of a transfer that Endres' thesis (2022, section 5.6) names, each with the evidence for it.
//!
//! They are read off the new bytes of each second and the counts of a [`DirectionSummary`]; the
//! thesis reads them off plots and gives no limits, so the limits here are ours.

use schemars::JsonSchema;
use serde::Serialize;

use super::DirectionSummary;

/// A shape, and why it is said to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Pattern {
    /// Which.
    pub name: &'static str,
    /// What was seen.
    pub evidence: String,
}

/// Transfers of fewer whole seconds have no shape at one second's resolution.
const LEAST_SECONDS: usize = 4;
/// Longer ones have none that is looked for.
const MOST_SECONDS: usize = 1 << 17;
/// An exponential start lasts at least so many seconds ...
const START_SECONDS: usize = 3;
/// ... until this share of the highest rate is reached.
const STARTED: f64 = 0.8;
/// A rate drop: a second below this share of the mean of the three before it.
const DROPPED: f64 = 0.25;
/// A bend: the mean rates of two parts differ by this factor ...
const BENT: f64 = 2.0;
/// ... and each part has this share of the time.
const BENT_PART: f64 = 0.25;
/// Out of order: this share of the bytes came after later ones.
const OUT_OF_ORDER: f64 = 0.01;
/// Early retransmission: this share of the bytes was repeated although the first copy arrived.
const EARLY: f64 = 0.05;
/// At the end: in its last second a transfer repeated this share of that second's bytes.
const AT_THE_END: f64 = 0.5;
/// A long tail: the last 5 % of the bytes took this share of the time.
const TAIL: f64 = 0.2;

/// The shapes of a transfer that lasted from `first_s` to `last_s` of its connection, seconds.
#[must_use]
pub fn patterns(sent: &DirectionSummary, first_s: f64, last_s: f64) -> Vec<Pattern> {
    let mut found = Vec::new();
    let mut add = |name, evidence| found.push(Pattern { name, evidence });
    let bytes = sent.stream_bytes as f64;
    let time = last_s - first_s;
    if bytes <= 0.0 || time <= 0.0 {
        return found;
    }
    let begun = whole_second(first_s);
    let rates = rates(&sent.new_at, begun);
    if rates.len() >= LEAST_SECONDS {
        let at = |second: usize| begun + second;
        if let Some((after, peak)) = exponential_start(&rates) {
            add(
                "exponential start",
                format!(
                    "grew for {after} s, from {:.2} to {:.2} Mbit/s",
                    rates[0], peak
                ),
            );
        }
        if let Some((second, before)) = rate_drop(&rates) {
            add(
                "rate drop",
                format!(
                    "in second {} {:.2} Mbit/s after {before:.2}",
                    at(second),
                    rates[second]
                ),
            );
        }
        if let Some((second, before, after)) = bend(&rates) {
            add(
                "bend",
                format!(
                    "at second {} from {before:.2} to {after:.2} Mbit/s in the mean",
                    at(second)
                ),
            );
        }
    }
    let late = sent.late_bytes as f64 / bytes;
    if late >= OUT_OF_ORDER {
        let percent = 100.0 * late;
        add(
            "out-of-order transmission",
            format!("{percent:.1} % of the bytes came after later ones of their stream"),
        );
    }
    let early = sent.spurious_bytes as f64 / bytes;
    if early >= EARLY {
        let percent = 100.0 * early;
        add(
            "early retransmission",
            format!("{percent:.1} % of the bytes were repeated although they had arrived"),
        );
    }
    if let Some(repeated) = repeated_in(sent, whole_second(last_s)) {
        let new = sent.new_at.last().map_or(0, |(_, bytes)| *bytes);
        if repeated as f64 >= AT_THE_END * (new + repeated) as f64 {
            add(
                "repeated retransmission at the end",
                format!("in its last second {repeated} bytes repeated beside {new} new ones"),
            );
        }
    }
    if let Some(tail) = sent.last_five_percent_s.filter(|tail| *tail >= TAIL * time) {
        add(
            "tail",
            format!("the last 5 % took {tail:.2} s of {time:.2}"),
        );
    }
    found
}

fn whole_second(s: f64) -> usize {
    // Seconds of a connection are few and not negative.
    std::time::Duration::try_from_secs_f64(s)
        .ok()
        .and_then(|whole| usize::try_from(whole.as_secs()).ok())
        .unwrap_or(0)
}

/// Mbit/s of each second from `begun` on, to the last in which there was something; of too many none.
fn rates(new_at: &[(u32, u64)], begun: usize) -> Vec<f64> {
    let since = |second: u32| usize::try_from(second).ok()?.checked_sub(begun);
    let seconds = new_at.last().and_then(|(last, _)| since(*last));
    let Some(last) = seconds.filter(|last| *last < MOST_SECONDS) else {
        return Vec::new();
    };
    let mut rates = vec![0.0; last + 1];
    for &(second, bytes) in new_at {
        if let Some(second) = since(second) {
            rates[second] = bytes as f64 * 8e-6;
        }
    }
    rates
}

/// After how many seconds of growth the rate was near its highest, and that.
fn exponential_start(rates: &[f64]) -> Option<(usize, f64)> {
    let peak = rates.iter().copied().fold(0.0, f64::max);
    let after = rates.iter().position(|rate| *rate >= STARTED * peak)?;
    let grows = rates[..=after].windows(2).all(|two| two[1] > two[0]);
    (after >= START_SECONDS && grows).then_some((after, rates[after]))
}

/// The first second that is far below the three before it, and their mean. Not the last one,
/// which is rarely whole.
fn rate_drop(rates: &[f64]) -> Option<(usize, f64)> {
    (3..rates.len() - 1).find_map(|second| {
        let before = rates[second - 3..second].iter().sum::<f64>() / 3.0;
        (rates[second] < DROPPED * before).then_some((second, before))
    })
}

/// Where two parts of different mean rates meet that differ most, and the rates.
fn bend(rates: &[f64]) -> Option<(usize, f64, f64)> {
    let whole = &rates[..rates.len() - 1];
    let least = (whole.len() as f64 * BENT_PART).ceil().max(2.0);
    let all: f64 = whole.iter().sum();
    let mut sum = 0.0;
    (1..whole.len())
        .map(|at| {
            sum += whole[at - 1];
            let (before, after) = (sum / at as f64, (all - sum) / (whole.len() - at) as f64);
            (at, before, after)
        })
        .filter(|(at, ..)| (*at).min(whole.len() - at) as f64 >= least)
        .filter(|(_, before, after)| before.max(*after) >= BENT * before.min(*after))
        .max_by(|one, other| (one.1 - one.2).abs().total_cmp(&(other.1 - other.2).abs()))
}

fn repeated_in(sent: &DirectionSummary, second: usize) -> Option<u64> {
    let (at, bytes) = *sent.repeated_at.last()?;
    (usize::try_from(at).ok()? >= second).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transfer by its rate in each second, kbit/s.
    fn sent(kbit_s: &[u64]) -> DirectionSummary {
        let new_at: Vec<_> = (0..).zip(kbit_s.iter().map(|rate| rate * 125)).collect();
        DirectionSummary {
            stream_bytes: new_at.iter().map(|(_, bytes)| bytes).sum(),
            new_at,
            ..DirectionSummary::default()
        }
    }

    fn names(sent: &DirectionSummary) -> Vec<&'static str> {
        let last_s = sent.new_at.len() as f64 - 0.5;
        let found = patterns(sent, 0.6, last_s);
        found.iter().map(|each| each.name).collect()
    }

    #[test]
    fn an_even_transfer_has_no_pattern() {
        assert_eq!(
            names(&sent(&[15000, 18000, 18100, 18000, 17900, 18000, 9000])),
            Vec::<&str>::new()
        );
        assert_eq!(names(&DirectionSummary::default()), Vec::<&str>::new());
    }

    #[test]
    fn each_shape_is_told_with_its_evidence() {
        let doubling = sent(&[200, 400, 800, 1600, 3200, 6400, 6500, 6400, 6300]);
        let found = patterns(&doubling, 0.6, 8.5);
        assert_eq!(found[0].name, "exponential start");
        assert_eq!(found[0].evidence, "grew for 5 s, from 0.20 to 6.40 Mbit/s");
        assert!(
            names(&sent(&[18000, 18000, 18000, 2000, 17000, 18000, 18000])).contains(&"rate drop")
        );
        let bent = sent(&[18000, 18000, 18000, 18000, 8000, 8000, 8000, 8000, 4000]);
        assert_eq!(names(&bent), ["bend"]);
        assert!(
            patterns(&bent, 0.6, 8.5)[0]
                .evidence
                .starts_with("at second 4 from 18.00 to 8.00")
        );
    }

    #[test]
    fn what_is_repeated_late_or_at_the_end_is_told() {
        let even = sent(&[18000; 6]);
        let share = even.stream_bytes / 10;
        let late = DirectionSummary {
            late_bytes: share,
            ..even.clone()
        };
        assert_eq!(names(&late), ["out-of-order transmission"]);
        let early = DirectionSummary {
            spurious_bytes: share,
            ..even.clone()
        };
        assert_eq!(names(&early), ["early retransmission"]);
        let end = DirectionSummary {
            repeated_at: vec![(2, 9), (5, 9_000_000)],
            ..even.clone()
        };
        assert_eq!(names(&end), ["repeated retransmission at the end"]);
        let tail = DirectionSummary {
            last_five_percent_s: Some(2.0),
            ..even
        };
        assert_eq!(names(&tail), ["tail"]);
    }
}
