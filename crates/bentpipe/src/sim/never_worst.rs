//! `bentpipe sim never-worst`: a controller beside the others on links drawn at random.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use bentpipe_campaign::budget::{Kept, Links, draw, median, never_worst};
use bentpipe_campaign::write_json;
use bentpipe_cc::Choice;

use crate::failure::{self, Failure};

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Which set of links
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many of it
    #[arg(long, default_value_t = 200)]
    links: u64,
    /// Only this link of the set
    #[arg(long)]
    link: Option<u64>,
    /// How often each is run: seeds of its losses, its jitter and its hosts' stalls
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Most seconds that a run lasts; by itself a slow link's lasts 60, a fast one's 8 at least
    #[arg(long, default_value_t = draw::MOST_SECONDS)]
    seconds: u64,
    /// Which controllers, besides CUBIC, BBRv3 and NewReno
    #[arg(long, value_delimiter = ',', default_value = "satellite")]
    controller: Vec<Choice>,
    /// Figures of an earlier run with the same seed, to be taken instead of running CUBIC,
    /// BBRv3 and NewReno again
    #[arg(long)]
    known: Option<PathBuf>,
    /// How many of the worst cells are shown
    #[arg(long, default_value_t = 10)]
    worst: usize,
    /// The figures for programs; runs are kept beside it as they end, and who was interrupted goes on with them
    #[arg(long, default_value = "out/never-worst.json")]
    out: PathBuf,
}

pub fn run(command: &Command) -> Result<(), Failure> {
    if !(1..=100_000).contains(&command.links) {
        return Err(Failure::Configuration(format!(
            "--links {}: give 1 to 100000",
            command.links
        )));
    }
    if let Some(link) = command.link.filter(|link| *link >= command.links) {
        return Err(Failure::Configuration(format!(
            "--link {link}: the set has links 0 to {}",
            command.links - 1
        )));
    }
    if !(1..=1000).contains(&command.seeds) {
        return Err(Failure::Configuration(format!(
            "--seeds {}: give 1 to 1000",
            command.seeds
        )));
    }
    if !(1..=draw::MOST_SECONDS).contains(&command.seconds) {
        return Err(Failure::Configuration(format!(
            "--seconds {}: give 1 to {}",
            command.seconds,
            draw::MOST_SECONDS
        )));
    }
    let set = Links {
        seed: command.seed,
        seconds: command.seconds,
    };
    let mut known: Vec<never_worst::Run> = match &command.known {
        Some(path) => serde_json::from_str(&failure::read(path)?).map_err(|error| {
            Failure::Configuration(format!("--known {}: {error}", path.display()))
        })?,
        None => Vec::new(),
    };
    let links: Vec<_> = command
        .link
        .map_or_else(|| (0..command.links).collect(), |link| vec![link]);
    known.retain(|run| {
        links.contains(&run.link)
            && run.repetition < command.seeds
            && never_worst::OTHERS.contains(&run.controller)
    });
    if let Some(other) = (known.iter()).find(|run| run.lasted != set.link(run.link).seconds) {
        return Err(Failure::Configuration(format!(
            "--known: its run over link {} lasted {} s, one of this command lasts {} s",
            other.link,
            other.lasted,
            set.link(other.link).seconds
        )));
    }
    let mut controllers = never_worst::OTHERS.to_vec();
    controllers.extend(&command.controller);
    let kept = match std::fs::metadata(&command.out) {
        Ok(there) if there.is_dir() => {
            return Err(Failure::Configuration(format!(
                "--out {}: a directory; give a file",
                command.out.display()
            )));
        }
        // A pipe or a device has nothing beside it.
        Ok(there) if !there.is_file() => None,
        _ => Some(Kept::open(&command.out, set)?),
    };
    let (mut kept, before) = kept.unzip();
    let before = before.unwrap_or_default();
    if !before.is_empty() {
        eprintln!("{} runs were kept when it was interrupted", before.len());
    }
    let what = |run: &never_worst::Run| (run.link, run.controller, run.repetition);
    let mut there: BTreeSet<_> = known.iter().map(what).collect();
    known.extend((before.into_iter()).filter(|run| {
        let asked = links.contains(&run.link)
            && run.repetition < command.seeds
            && controllers.contains(&run.controller);
        asked && there.insert(what(run))
    }));
    let runs = never_worst::runs_kept(
        set,
        &links,
        &controllers,
        command.seeds,
        known,
        |run| kept.as_mut().map_or(Ok(()), |kept| kept.add(run)),
        Instant::now(),
    )?;
    write_json(&command.out, &runs)?;
    if let Some(kept) = kept {
        kept.done()?;
    }
    for controller in &command.controller {
        show(&runs, *controller, command);
    }
    println!("of the best of all of them, in how many of the cells at least 0.95, 0.80 and 0.50");
    for (controller, shares) in never_worst::shares_of_best(&runs) {
        let name = controller.name();
        let [close, near, half] = above(&shares);
        println!(
            "  {name:<9} {close:.3}, {near:.3}, {half:.3} of {}",
            shares.len()
        );
    }
    Ok(())
}

/// Which parts of `scores` are at least 0.95, 0.80 and 0.50.
fn above(scores: &[f64]) -> [f64; 3] {
    [0.95, 0.8, 0.5].map(|least| {
        let above = scores.iter().filter(|score| **score >= least).count();
        above as f64 / scores.len().max(1) as f64
    })
}

fn show(runs: &[never_worst::Run], controller: Choice, command: &Command) {
    let cells = never_worst::cells(runs, controller);
    let shares =
        |score: fn(&never_worst::Cell) -> f64| above(&cells.iter().map(score).collect::<Vec<_>>());
    let [close, near, half] = shares(|cell| cell.score);
    println!(
        "{controller}: {} cells; at least 0.95 of the best in {close:.3}, 0.80 in {near:.3}, 0.50 in {half:.3}",
        cells.len()
    );
    if command.seeds > 1 {
        let [close, near, half] = shares(|cell| cell.worst_seed);
        println!(
            "  the worst of {} seeds: {close:.3}, {near:.3}, {half:.3}",
            command.seeds
        );
    }
    for measure in never_worst::MEASURES {
        let of: Vec<_> = (cells.iter())
            .filter(|cell| cell.measure == measure)
            .map(|cell| cell.score)
            .collect();
        if of.is_empty() {
            println!("  {measure:<8} carried by no other controller in most of its runs");
            continue;
        }
        let at = |part: usize| of.get(of.len() * part / 100).copied().unwrap_or(f64::NAN);
        println!(
            "  {measure:<8} worst {:.3}  5 % {:.3}  25 % {:.3}  median {:.3}",
            at(0),
            at(5),
            at(25),
            at(50)
        );
    }
    let (kept, all) = never_worst::queues(runs, controller);
    println!("  queue p95 at most CUBIC's on {kept} of {all} links");
    println!("  the worst cells:");
    for cell in cells.iter().take(command.worst) {
        let run = |controller| told(runs, cell, controller);
        println!(
            "  {:.3} {:<8} #{} {}\n        {} | {} {}",
            cell.score,
            cell.measure,
            cell.link,
            draw::draw(command.seed, cell.link).title,
            run(controller),
            cell.best,
            run(cell.best)
        );
    }
}

/// What a controller came to in a cell: medians of its seeds.
fn told(runs: &[never_worst::Run], cell: &never_worst::Cell, controller: Choice) -> String {
    let of: Vec<_> = (runs.iter())
        .filter(|run| run.link == cell.link && run.controller == controller)
        .collect();
    let of_seeds = |figure: &dyn Fn(&never_worst::Run) -> f64| {
        median(of.iter().map(|run| figure(run))).unwrap_or(f64::NAN)
    };
    let milestone = never_worst::MEASURES
        .iter()
        .position(|name| *name == cell.measure)
        .filter(|place| *place < 3);
    let figure = match milestone {
        None => format!("{:.3} Mbit/s", of_seeds(&|run| run.goodput)),
        Some(place) => match of_seeds(&|run| run.seconds[place].unwrap_or(f64::INFINITY)) {
            seconds if seconds.is_finite() => format!("{seconds:.2} s"),
            _ => "never".into(),
        },
    };
    format!(
        "{figure}, queue {:.0} ms, lost {:.1} %",
        of_seeds(&|run| run.queue_p95_ms),
        100.0 * of_seeds(&|run| run.lost)
    )
}
