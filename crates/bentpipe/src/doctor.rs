//! `bentpipe doctor`: what this machine can do, and how to get what it cannot.

mod download;
mod session;
mod silence;
mod network;

use std::path::PathBuf;
use std::time::Duration;

use bentpipe_os::doctor::{Check, State, check_all};
use clap::Args;

use crate::failure::Failure;
use crate::files::Files;
use crate::{config, daemon};

/// Check everything that bentpipe may need of this machine, in one go
///
/// Exit code 1 if something is missing, 0 if all is there or it goes without.
#[derive(Debug, Args)]
pub struct Command {
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
    /// The terminal's configuration, if there is one: says for which interfaces the
    /// firewall is looked at
    #[arg(long, default_value = "/etc/bentpipe/terminal.toml")]
    config: PathBuf,
    /// The terminal takes all traffic of this machine too, as `bentpipe terminal --tun` does
    #[arg(long)]
    tun: bool,
    /// Examine the network instead: between this terminal and GATEWAY, one that it is paired
    /// with (HOST:PORT)
    #[arg(long, value_name = "GATEWAY")]
    network: Option<String>,
    /// Something large, which is downloaded with this machine's own TCP and through the
    /// tunnel, like "http://example.net/10MB"
    #[arg(long, requires = "network")]
    url: Option<download::Download>,
    /// The longest silence after which it is looked whether an answer still comes, at most 40s:
    /// NATs forget
    #[arg(long, requires = "network", value_name = "TIME", default_value = "40s", value_parser = silence)]
    silence: Duration,
}

fn silence(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match (Duration::from_millis(100)..=Duration::from_secs(40)).contains(&time) {
        true => Ok(time),
        false => Err("give a time up to 40s, after which sessions end by themselves".into()),
    }
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let checks = match &command.network {
        Some(gateway) => {
            let files = Files::terminal(command.config.clone());
            let url = command.url.as_ref();
            daemon::runtime()?.block_on(network::check(&files, gateway, url, command.silence))?
        }
        None => of_machine(command)?,
    };
    tell(&checks, command.json)
}

fn of_machine(command: &Command) -> Result<Vec<Check>, Failure> {
    let capture = if command.config.exists() {
        let files = Files::terminal(command.config.clone()).with_tun(command.tun);
        let config = files.read_terminal()?;
        config.ingress.capture()
    } else {
        None
    };
    Ok(match &capture {
        Some(capture) => check_all(&capture.interfaces, capture.port, capture.tun.as_ref()),
        None => check_all(&[], config::transparent_port(), None),
    })
}

fn tell(checks: &[Check], json: bool) -> Result<(), Failure> {
    if json {
        println!(
            "{}",
            serde_json::to_string_pretty(&checks).map_err(anyhow::Error::from)?
        );
    } else {
        for check in checks {
            let state = match check.state {
                State::Ok => "ok",
                State::Worse => "worse",
                State::Missing => "MISSING",
            };
            println!("{state:<8} {:<20} {}", check.name, check.found);
            if let Some(remedy) = &check.remedy {
                println!("{:<9}needed for {}", "", check.needed_for);
                println!("{:<9}remedy: {remedy}", "");
            }
        }
    }
    let missing: Vec<_> = checks
        .iter()
        .filter(|check| check.state == State::Missing)
        .map(|check| check.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(anyhow::anyhow!("missing here: {}", missing.join(", ")).into())
}
