//! `bentpipe sim budgets`: the controllers against their goals.

use std::path::Path;
use std::time::Instant;

use bentpipe_campaign::{budget, write_json};
use bentpipe_cc::Choice;

use crate::failure::Failure;

pub fn budgets(seeds: u64, only: &str, out: &Path) -> Result<(), Failure> {
    const CONTROLLERS: [Choice; 4] = [
        Choice::Satellite,
        Choice::Bbr3,
        Choice::Cubic,
        Choice::NewReno,
    ];
    if !(1..=1000).contains(&seeds) {
        return Err(Failure::Configuration(format!(
            "--seeds {seeds}: give 1 to 1000"
        )));
    }
    let mut rows = Vec::new();
    for section in budget::Section::ALL {
        let found = budget::check(section, &CONTROLLERS, seeds, only, Instant::now());
        if found.is_empty() {
            continue;
        }
        if !rows.is_empty() {
            println!();
        }
        print(section, &found, &CONTROLLERS);
        rows.extend(found);
        // Sections take an hour: those that are done are kept when the next is stopped.
        write_json(out, &rows)?;
    }
    if rows.is_empty() {
        return Err(Failure::Configuration(format!(
            "--only {only:?}: no workload has this in its name"
        )));
    }
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

/// The table for people: a heading, and a line for each figure.
fn print(section: budget::Section, rows: &[budget::Row], controllers: &[Choice]) {
    let names: String = controllers
        .iter()
        .map(|name| format!("  {:>9}", name.name()))
        .collect();
    let (what, title) = ("workload and figure", section.title());
    println!(
        "{title}\n\n{what:<44}{:>9}{names}  {:>9}  {:<12} verdict",
        "bound", "worst", "limit"
    );
    let mut work = "";
    for row in rows {
        if row.work != work {
            work = row.work;
            println!("{work}");
        }
        let bound = row
            .bound_s
            .map_or(String::new(), |bound| format!("{bound:.3} s"));
        let figure = format!("  {}, {}", row.figure, row.unit);
        print!("{:<44}{bound:>9}", figure.trim_end_matches(", "));
        for (_, median) in &row.medians {
            let value = median.map_or("-".into(), |median| format!("{median:.3}"));
            print!("  {value:>9}");
        }
        let worst = (row.worst).map_or(String::new(), |worst| format!("{worst:.3}"));
        let verdict = if row.kept { "ok" } else { "SHORT" };
        println!("  {worst:>9}  {:<12} {verdict}", row.limit.to_string());
    }
}
