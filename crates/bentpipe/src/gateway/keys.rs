//! `bentpipe gateway key`: the change of the gateway's key without an outage.

use bentpipe_tunnel::identity::Fingerprint;
use clap::Subcommand;

use super::Config;
use crate::daemon::say;
use crate::failure::Failure;
use crate::files::Files;
use crate::registry::{FileRegistry, Terminal};

const RELOAD: &str = "a running gateway takes note at SIGHUP (`systemctl reload bentpipe-gateway`)";

#[derive(Debug, Subcommand)]
pub enum Key {
    /// Print the present key, the next one if there is one, and which terminals know that
    Show {
        #[command(flatten)]
        config: Config,
    },
    /// Make the next key, which the gateway announces to its terminals
    ///
    /// They accept it beside the present one from then on.
    Next {
        #[command(flatten)]
        config: Config,
    },
    /// Make the next key the present one
    ///
    /// Sessions that are open go on. Enrolment lines that have not been used are worthless then.
    Use {
        #[command(flatten)]
        config: Config,
        /// Also while there are terminals that do not know it: these have to be paired anew
        #[arg(long)]
        force: bool,
    },
    /// Remove the next key: the present one stays
    Drop {
        #[command(flatten)]
        config: Config,
    },
}

pub fn run(command: Key) -> Result<(), Failure> {
    match command {
        Key::Show { config } => show(&Files::gateway(config.config)),
        Key::Next { config } => {
            let files = Files::gateway(config.config);
            present(&files)?;
            let next = files.make_next_identity()?.fingerprint();
            say(format_args!("next key: {next}"));
            eprintln!(
                "{RELOAD}; `bentpipe gateway key show` says which terminals know it, `bentpipe gateway key use` makes it the present one"
            );
            Ok(())
        }
        Key::Use { config, force } => change(&Files::gateway(config.config), force),
        Key::Drop { config } => {
            let files = Files::gateway(config.config);
            next(&files)?;
            let path = files.next_key();
            std::fs::remove_file(&path).map_err(|error| Failure::file(&path, error))?;
            say(format_args!("dropped; {RELOAD}"));
            Ok(())
        }
    }
}

fn show(files: &Files) -> Result<(), Failure> {
    say(format_args!("present key: {}", present(files)?));
    let Some(next) = files.next_identity()? else {
        say(format_args!("next key:    none"));
        return Ok(());
    };
    let next = next.fingerprint();
    say(format_args!("next key:    {next}"));
    for terminal in terminals(files)? {
        let knows = match terminal.knows_key == Some(next) {
            true => "knows it",
            false => "does not know it",
        };
        say(format_args!("{:<20} {knows}", terminal.label()));
    }
    Ok(())
}

fn change(files: &Files, force: bool) -> Result<(), Failure> {
    let next = next(files)?;
    let ignorant: Vec<_> = (terminals(files)?.iter())
        .filter(|terminal| terminal.knows_key != Some(next))
        .map(Terminal::label)
        .collect();
    if !ignorant.is_empty() && !force {
        return Err(anyhow::anyhow!(
            "{} of the terminals do not know the next key yet: {}. They would have to be paired anew; wait until they have had a session, revoke them, or give --force",
            ignorant.len(),
            ignorant.join(", ")
        )
        .into());
    }
    files.use_next_identity()?;
    say(format_args!("present key: {next}; {RELOAD}"));
    Ok(())
}

fn present(files: &Files) -> Result<Fingerprint, Failure> {
    if !files.key().exists() {
        return Err(Failure::Configuration(format!(
            "{} is not there: the gateway has no identity yet; run `bentpipe gateway init`",
            files.key().display()
        )));
    }
    Ok(files.identity()?.fingerprint())
}

fn next(files: &Files) -> Result<Fingerprint, Failure> {
    let next = files.next_identity()?;
    let none = || {
        Failure::Configuration(format!(
            "{} is not there: there is no next key; `bentpipe gateway key next` makes one",
            files.next_key().display()
        ))
    };
    Ok(next.ok_or_else(none)?.fingerprint())
}

fn terminals(files: &Files) -> Result<Vec<Terminal>, Failure> {
    let registry = FileRegistry::open(files.registry())
        .map_err(|error| Failure::Configuration(format!("{error:#}")))?;
    Ok(registry.current().terminal)
}
