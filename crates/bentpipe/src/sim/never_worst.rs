//! `bentpipe sim never-worst`: a controller beside the others on links drawn at random.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use bentpipe_campaign::budget::{draw, never_worst};
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
    /// The figures for programs
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
    let mut known: Vec<never_worst::Run> = match &command.known {
        Some(path) => serde_json::from_str(&failure::read(path)?)
            .with_context(|| format!("reading {}", path.display()))?,
        None => Vec::new(),
    };
    let links: Vec<_> = command
        .link
        .map_or_else(|| (0..command.links).collect(), |link| vec![link]);
    known.retain(|run| links.contains(&run.link) && never_worst::OTHERS.contains(&run.controller));
    let mut controllers = never_worst::OTHERS.to_vec();
    controllers.extend(&command.controller);
    let runs = never_worst::runs(command.seed, &links, &controllers, known, Instant::now());
    write_json(&command.out, &runs)?;
    for controller in &command.controller {
        show(&runs, *controller, command);
    }
    Ok(())
}

fn show(runs: &[never_worst::Run], controller: Choice, command: &Command) {
    let cells = never_worst::cells(runs, controller);
    let share = |least: f64| {
        let above = cells.iter().filter(|cell| cell.score >= least).count();
        above as f64 / cells.len().max(1) as f64
    };
    println!(
        "{controller}: {} cells; at least 0.95 of the best in {:.3}, 0.80 in {:.3}, 0.50 in {:.3}",
        cells.len(),
        share(0.95),
        share(0.8),
        share(0.5)
    );
    for measure in never_worst::MEASURES {
        let of: Vec<_> = (cells.iter())
            .filter(|cell| cell.measure == measure)
            .map(|cell| cell.score)
            .collect();
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
        let run = |controller| {
            (runs.iter())
                .find(|run| run.link == cell.link && run.controller == controller)
                .map_or(String::new(), |run| {
                    let at = never_worst::MEASURES
                        .iter()
                        .position(|name| *name == cell.measure);
                    let figure = (at.and_then(|at| run.seconds.get(at).copied())).map_or_else(
                        || format!("{:.3} Mbit/s", run.goodput),
                        |seconds| seconds.map_or("never".into(), |s| format!("{s:.2} s")),
                    );
                    format!(
                        "{figure}, queue {:.0} ms, lost {:.1} %",
                        run.queue_p95_ms,
                        100.0 * run.lost
                    )
                })
        };
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
