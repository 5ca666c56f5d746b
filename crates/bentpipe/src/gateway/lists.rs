//! `bentpipe gateway terminals` and `bentpipe gateway lines`: who may use the gateway.

use clap::Subcommand;

use super::Config;
use crate::daemon::say;
use crate::failure::Failure;
use crate::files::Files;
use crate::registry::{Date, FileRegistry};

#[derive(Debug, Subcommand)]
pub enum Terminals {
    /// Print the enrolled terminals: name, date of enrolment, key
    List {
        #[command(flatten)]
        config: Config,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Call a terminal NAME
    Name {
        #[command(flatten)]
        config: Config,
        /// Its key, the beginning of it, or its present name
        terminal: String,
        /// Letters, digits, '-', '_' and '.'
        name: String,
    },
    /// Shut a terminal out; its open session ends within seconds
    Revoke {
        #[command(flatten)]
        config: Config,
        /// Its key, the beginning of it, or its name
        terminal: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Lines {
    /// Print the enrolment lines: whether they are good, until when, who has used them
    List {
        #[command(flatten)]
        config: Config,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Make an enrolment line worthless
    Withdraw {
        #[command(flatten)]
        config: Config,
        /// Its key, the beginning of it, or its terminal's name
        line: String,
    },
}

pub fn open(config: Config) -> Result<FileRegistry, Failure> {
    let files = Files::gateway(config.config);
    FileRegistry::open(files.registry())
        .map_err(|error| Failure::Configuration(format!("{error:#}")))
}

pub fn terminals(command: Terminals) -> Result<(), Failure> {
    match command {
        Terminals::List { config, json } => {
            let terminals = open(config)?.current().terminal;
            if json {
                let text = serde_json::to_string_pretty(&terminals).map_err(anyhow::Error::from)?;
                say(format_args!("{text}"));
                return Ok(());
            }
            for terminal in terminals {
                say(format_args!(
                    "{:<20} {:<20} {}",
                    terminal.name.as_deref().unwrap_or("-"),
                    date(terminal.enrolled),
                    terminal.key
                ));
            }
        }
        Terminals::Name {
            config,
            terminal,
            name,
        } => {
            let named = open(config)?.name(&terminal, &name)?;
            say(format_args!("{} is called {name}", named.key));
        }
        Terminals::Revoke { config, terminal } => {
            let revoked = open(config)?.revoke(&terminal)?;
            say(format_args!("revoked: {}", revoked.key));
        }
    }
    Ok(())
}

pub fn lines(command: Lines) -> Result<(), Failure> {
    match command {
        Lines::List { config, json } => {
            let lines = open(config)?.current().enrolment;
            if json {
                let text = serde_json::to_string_pretty(&lines).map_err(anyhow::Error::from)?;
                say(format_args!("{text}"));
                return Ok(());
            }
            let now = Date::now();
            for line in lines {
                let state = match (line.used_by, line.expires) {
                    (Some(terminal), _) => format!("used by {terminal}"),
                    (None, Some(expires)) if expires <= now => format!("expired at {expires}"),
                    (None, Some(expires)) => format!("good until {expires}"),
                    (None, None) => "good".to_owned(),
                };
                say(format_args!(
                    "{:<20} {:<20} {}  {state}",
                    line.name.as_deref().unwrap_or("-"),
                    date(line.made),
                    line.key
                ));
            }
        }
        Lines::Withdraw { config, line } => {
            let withdrawn = open(config)?.withdraw(&line)?;
            say(format_args!("withdrawn: {}", withdrawn.key));
        }
    }
    Ok(())
}

pub fn date(date: Option<Date>) -> String {
    date.map_or_else(|| "-".to_owned(), |date| date.to_string())
}
