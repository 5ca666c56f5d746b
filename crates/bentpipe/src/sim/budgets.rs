//! `bentpipe sim budgets`: our controller against its goals.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

use bentpipe_campaign::{budget, write_json};
use bentpipe_cc::Choice;

use crate::failure::Failure;

pub fn budgets(seeds: u64, only: &str, out: &Path) -> Result<(), Failure> {
    let mut controllers = vec![Choice::Satellite];
    controllers.extend(Choice::REFERENCES);
    if !(1..=1000).contains(&seeds) {
        return Err(Failure::Configuration(format!(
            "--seeds {seeds}: give 1 to 1000"
        )));
    }
    let rows: Vec<_> = (budget::Section::ALL.into_iter())
        .flat_map(|section| {
            budget::check(section, &controllers, seeds, only, Instant::now(), progress)
        })
        .collect();
    if rows.is_empty() {
        return Err(Failure::Configuration(format!(
            "--only {only:?}: no workload has this in its name"
        )));
    }
    let mut work = "";
    let mut section = budget::Section::Goals;
    for row in &rows {
        if row.section != section {
            section = row.section;
            println!("\nOther paths, beside the other controllers\n");
        }
        if row.work != work {
            work = row.work;
            println!("{work}");
        }
        let bound = row
            .bound_s
            .map_or(String::new(), |bound| format!("{bound:.3} s"));
        print!(
            "  {:<36}{bound:>9}",
            format!("{}, {}", row.figure, row.unit).trim_end_matches(", ")
        );
        for (controller, median) in &row.medians {
            let value = median.map_or("-".into(), |median| format!("{median:.3}"));
            print!("  {controller} {value:>6}");
        }
        let verdict = if row.kept { "ok" } else { "SHORT" };
        println!("  limit {:<9} {verdict}", row.limit.to_string());
    }
    write_json(out, &rows)?;
    let short = rows.iter().filter(|row| !row.kept).count();
    println!(
        "{} of {} goals kept; {}",
        rows.len() - short,
        rows.len(),
        out.display()
    );
    if short > 0 {
        return Err(anyhow::anyhow!("{short} of {} goals are not kept", rows.len()).into());
    }
    Ok(())
}

/// Shows how far it is, for people only.
pub(super) fn progress(done: usize, all: usize) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let end = if done == all { "\n" } else { "" };
        // Progress that cannot be shown is no failure.
        let _ = write!(terminal, "\r{done} of {all} runs{end}");
    }
}
