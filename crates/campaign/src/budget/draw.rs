//! Links drawn at random: what a controller may meet anywhere, from a seed.

use bentpipe_link::Scenario;
use bentpipe_vnet::host::HostSpec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// A link with a host at either end.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// Its place in the set.
    pub number: u64,
    /// What it is, for people.
    pub title: String,
    /// Bit/s of the forward direction at best.
    pub bits: u64,
    /// The link.
    pub scenario: Scenario,
    /// Both machines.
    pub host: HostSpec,
    /// Seconds that a run lasts: 60, fewer where these were too many packets.
    pub seconds: u64,
}

/// Links that are drawn from a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Links {
    /// Which set.
    pub seed: u64,
    /// Most seconds that a run over one lasts.
    pub seconds: u64,
}

impl Links {
    /// The set `seed`, each link run for as long as it is drawn for.
    pub const fn whole(seed: u64) -> Self {
        Self {
            seed,
            seconds: MOST_SECONDS,
        }
    }

    /// Link `number` of it.
    pub fn link(self, number: u64) -> Drawn {
        let mut drawn = draw(self.seed, number);
        drawn.seconds = drawn.seconds.min(self.seconds);
        drawn
    }
}

/// Bits that a run carries at most, and seconds that it lasts at least, unless fewer are asked for.
const MOST_BITS: f64 = 3e9;
const LEAST_SECONDS: f64 = 8.0;
/// Most seconds that a run lasts.
pub const MOST_SECONDS: u64 = 60;

struct Draw(ChaCha8Rng);

impl Draw {
    fn log(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.0.random())
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.random_range(0..of.len())]
    }

    fn chance(&mut self, share: f64) -> bool {
        self.0.random_bool(share)
    }
}

/// Link `number` of the set `seed`: rates of 64 kbit/s to 1 Gbit/s, round trips of 10 to
/// 700 ms, queues of 3 packets to 4 bandwidth-delay products, each log-uniform.
pub fn draw(seed: u64, number: u64) -> Drawn {
    let stream = seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = Draw(ChaCha8Rng::seed_from_u64(stream));
    let bits = draw.log(64e3, 1e9).round();
    let rtt = draw.log(10.0, 700.0).round();
    let back = (bits * draw.log(0.05, 1.0)).max(64e3).round();
    let product = bits * rtt / 8e3;
    let limit = draw.log(4_500.0, (4.0 * product).max(4_501.0));
    let delay = rtt / 2.0;
    let (queue, queue_title) = queue(&mut draw, limit, product);
    let (loss, loss_title) = loss(&mut draw);
    let (event, back_event, event_title) = event(&mut draw, bits);
    let rate = if event.contains("rate.trace") {
        String::new()
    } else {
        format!("rate = \"{bits} bit/s\"\n")
    };
    let back_queue = (back * rtt / 8e3).max(15_000.0).round();
    let text = format!(
        "name = \"drawn\"\n[forward]\n{rate}delay = \"{delay} ms\"\n{queue}\n{loss}\n{event}\n\
         [return]\nrate = \"{back} bit/s\"\ndelay = \"{delay} ms\"\nqueue = \"{back_queue} B\"\n{back_event}\n"
    );
    let scenario = Scenario::parse(&text)
        .unwrap_or_else(|error| panic!("a drawn link is a scenario: {error}\n{text}"));
    let (host, host_title) = match draw.0.random_range(0..10) {
        0..5 => (HostSpec::IDEAL, "ideal"),
        5..7 => (HostSpec::QUIET, "quiet"),
        7..9 => (HostSpec::BUSY, "busy"),
        _ => (HostSpec::SLOW, "slow"),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 8 and 60, and a rate of bits"
    )]
    let (seconds, bits) = (
        (MOST_BITS / bits).clamp(LEAST_SECONDS, MOST_SECONDS as f64) as u64,
        bits as u64,
    );
    let title = format!(
        "{:.3} Mbit/s, {rtt} ms, {queue_title}{loss_title}{event_title}, {host_title} host",
        bits as f64 / 1e6
    );
    Drawn {
        number,
        title,
        bits,
        scenario,
        host,
        seconds,
    }
}

fn queue(draw: &mut Draw, limit: f64, product: f64) -> (String, String) {
    let bytes = limit.round();
    let size = format!("{:.2} BDP", limit / product);
    let kind = draw.one(&[
        "", "", "", "", "", "", "codel", "fq-codel", "pie", "marking",
    ]);
    let ecn = draw.chance(0.5);
    let marks = if ecn { " ECN" } else { "" };
    match kind {
        "" => (format!("queue = \"{bytes} B\""), size),
        "marking" => {
            let above = (0.2 * bytes).max(3_000.0).round();
            let text =
                format!("queue.marking = {{ limit = \"{bytes} B\", above = \"{above} B\" }}");
            (text, format!("{size} marking"))
        }
        kind => (
            format!("queue.{kind} = {{ limit = \"{bytes} B\", ecn = {ecn} }}"),
            format!("{size} {kind}{marks}"),
        ),
    }
}

fn loss(draw: &mut Draw) -> (String, String) {
    if draw.chance(0.5) {
        return (String::new(), String::new());
    }
    let share = draw.log(1e-4, 0.05);
    if draw.chance(1.0 / 3.0) {
        let length = draw.log(2.0, 20.0);
        let good = 1.0 / length;
        let bad = share * good / (1.0 - share);
        let text = format!(
            "loss.gilbert-elliott = {{ to_bad = \"{:.5} %\", to_good = \"{:.3} %\", loss_good = \"0 %\", loss_bad = \"100 %\" }}",
            100.0 * bad,
            100.0 * good
        );
        (
            text,
            format!(", loss {:.2} % in bursts of {length:.0}", 100.0 * share),
        )
    } else {
        (
            format!("loss = \"{:.3} %\"", 100.0 * share),
            format!(", loss {:.2} %", 100.0 * share),
        )
    }
}

/// What happens on the way: lines for either direction, and a title.
fn event(draw: &mut Draw, bits: f64) -> (String, String, String) {
    match draw.0.random_range(0..100) {
        0..35 => Default::default(),
        35..53 => {
            let up_to = draw.log(1.0, 15.0);
            let every = draw.one(&["", ", every = \"20 ms\"", ", every = \"5 ms\""]);
            let line = format!("jitter = {{ up_to = \"{up_to:.2} ms\"{every} }}");
            let title = format!(
                ", jitter {up_to:.1} ms{}",
                every.replace(", every =", " every")
            );
            match draw.0.random_range(0..3) {
                0 => (line, String::new(), title + " forward"),
                1 => (String::new(), line, title + " return"),
                _ => (line.clone(), line, title),
            }
        }
        53..65 => {
            let (length, every) = (draw.log(80.0, 400.0), draw.log(1.0, 6.0));
            let line = format!(
                "outages = [{{ from = \"1500 ms\", for = \"{length:.0} ms\", every = \"{:.0} ms\", packets = \"wait\" }}]",
                1e3 * every
            );
            let title = format!(", held {length:.0} ms every {every:.1} s");
            if draw.chance(0.5) {
                (line, String::new(), title)
            } else {
                (String::new(), line, title + " on return")
            }
        }
        65..80 => {
            let step = draw.log(1.0, 8.0);
            let count = draw.0.random_range(3..7);
            let mut points = String::new();
            for index in 0..count {
                let level = if index == 0 {
                    bits
                } else {
                    bits * draw.log(0.2, 1.0)
                };
                points += &format!(
                    "[\"{:.0} ms\", \"{level:.0} bit/s\"], ",
                    1e3 * step * f64::from(index)
                );
            }
            points += &format!(
                "[\"{:.0} ms\", \"{bits} bit/s\"]",
                1e3 * step * f64::from(count)
            );
            (
                format!("rate.trace = {{ points = [{points}], at_end = \"loop\" }}"),
                String::new(),
                format!(", {count} rates every {step:.1} s"),
            )
        }
        80..90 => {
            let length = draw.log(100.0, 3_000.0);
            let line = format!(
                "outages = [{{ from = \"6 s\", for = \"{length:.0} ms\", every = \"20 s\" }}]"
            );
            (
                line.clone(),
                line,
                format!(", dark {length:.0} ms every 20 s"),
            )
        }
        _ => {
            let step = draw.log(2.0, 20.0);
            let line = format!(
                "reconfigure = {{ every = \"15 s\", first = \"5 s\", step = \"{step:.0} ms\", gap = \"40 ms\", burst = \"60 ms\", loss = \"25 %\" }}"
            );
            (
                line.clone(),
                line,
                format!(", satellite steps of {step:.0} ms"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_of_many_sets_is_a_scenario_and_a_seed_says_which() {
        for seed in 0..20 {
            for number in 0..100 {
                let drawn = draw(seed, number);
                assert!((8..=60).contains(&drawn.seconds), "{}", drawn.title);
                assert!(drawn.host.check().is_ok());
                assert_eq!(drawn.title, draw(seed, number).title);
            }
        }
    }
}
