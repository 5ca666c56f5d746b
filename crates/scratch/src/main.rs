//! Scratch: never-worst without the binary.
#[path = "../../campaign/src/budget/mod.rs"]
#[allow(dead_code, missing_docs)]
mod budget;
use bentpipe_cc::Choice;
use budget::{draw, never_worst};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args[1].as_str() {
        "nw" => {
            let seed = 1;
            let known = std::fs::read_to_string(&args[4]).map_or(Vec::new(), |t| {
                serde_json::from_str::<Vec<never_worst::Run>>(&t).unwrap()
            });
            let links: Vec<u64> = if args[2].contains("..") {
                let (a, b) = args[2].split_once("..").unwrap();
                (a.parse().unwrap()..b.parse().unwrap()).collect()
            } else {
                args[2].split(',').map(|x| x.parse().unwrap()).collect()
            };
            let most: f64 = args[3].parse().unwrap();
            let mut known: Vec<_> = known
                .into_iter()
                .filter(|r| r.controller != Choice::Satellite)
                .collect();
            let keep = known.clone();
            known.retain(|r| links.contains(&r.link));
            let mut all = never_worst::OTHERS.to_vec();
            all.push(Choice::Satellite);
            let runs = never_worst::runs(seed, &links, &all, known, Instant::now(), |_, _| {});
            let mut save: Vec<_> = runs
                .iter()
                .filter(|r| r.controller != Choice::Satellite)
                .cloned()
                .collect();
            save.extend(keep.into_iter().filter(|r| !links.contains(&r.link)));
            std::fs::write(&args[4], serde_json::to_string(&save).unwrap()).unwrap();
            for cc in [Choice::Satellite] {
                let cells = never_worst::cells(&runs, cc);
                if cells.is_empty() {
                    continue;
                }
                let n = cells.len() as f64;
                let share = |x: f64| cells.iter().filter(|c| c.score >= x).count() as f64 / n;
                println!(
                    "{cc}: {n} cells >=.95 {:.3} >=.8 {:.3} >=.5 {:.3} queue {:?}",
                    share(0.95),
                    share(0.8),
                    share(0.5),
                    never_worst::queues(&runs, cc)
                );
                if cc == Choice::Satellite {
                    for c in cells.iter().filter(|c| c.score < most) {
                        let f = |cc| {
                            let r = runs
                                .iter()
                                .find(|r| r.link == c.link && r.controller == cc)
                                .unwrap();
                            format!(
                                "{:?} {:.2} q{:.0} l{:.1}%",
                                r.seconds.map(|s| s.map(|s| (s * 100.0).round() / 100.0)),
                                r.goodput,
                                r.queue_p95_ms,
                                100.0 * r.lost
                            )
                        };
                        println!(
                            "{:.3} {} #{} {}\n     {} | {} {}",
                            c.score,
                            c.measure,
                            c.link,
                            draw::draw(seed, c.link).title,
                            f(cc),
                            c.best,
                            f(c.best)
                        );
                    }
                }
            }
        }
        "one" => {
            let link: u64 = args[2].parse().unwrap();
            let cc: Choice = args[3].parse().unwrap();
            let d = draw::draw(1, link);
            println!("{} {}s", d.title, d.seconds);
            let r = bentpipe_sim::run(&never_worst::plan(&d, cc, 1), Instant::now()).unwrap();
            let every: usize = args[4].parse().unwrap();
            let mut last = 0;
            for s in r.samples.iter().step_by(every) {
                println!(
                    "{:.3} win {:.1}p pace {:.3}M rtt {:.1} q {:?} rcv {:.3}M",
                    s.at_ns as f64 / 1e9,
                    s.window as f64 / 1472.0,
                    s.pacing_bit_s.unwrap_or(0) as f64 / 1e6,
                    s.rtt_ns as f64 / 1e6,
                    s.waited_ns.map(|w| w / 10000).map(|w| w as f64 / 100.0),
                    (s.received - last) as f64 * 8e-6 / (every as f64 * 0.005)
                );
                last = s.received;
            }
        }
        _ => {
            let mut cs = vec![Choice::Satellite];
            if args.len() > 4 {
                cs.push(args[4].parse().unwrap());
            }
            let seeds = args[2].parse().unwrap();
            for section in budget::Section::ALL {
                for row in budget::check(section, &cs, seeds, &args[3], Instant::now(), |_, _| {}) {
                    println!(
                        "{:<50} {:<30} {:?} {}",
                        row.work,
                        row.figure,
                        row.medians.iter().map(|m| m.1).collect::<Vec<_>>(),
                        row.limit
                    );
                }
            }
        }
    }
}
