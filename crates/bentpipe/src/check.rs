//! `bentpipe check`: whether a configuration file of either end is right.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::daemon;
use crate::failure::{self, Failure};
use crate::files::Files;

/// Check a configuration file without starting anything
///
/// Exit code 2 if it is wrong; what is wrong, and what would be right, is told.
#[derive(Debug, Args)]
pub struct Command {
    /// terminal.toml or gateway.toml
    file: PathBuf,
    /// Whose it is; without, the file's name and its tables tell
    #[arg(long, value_enum)]
    role: Option<Role>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Terminal,
    Gateway,
}

/// What it checks, and where that comes from.
const WANTED: &str = "check takes terminal.toml or gateway.toml, of which `bentpipe terminal join` and `bentpipe gateway init` write first ones in /etc/bentpipe";

pub fn run(command: &Command) -> Result<(), Failure> {
    let role = match command.role {
        Some(role) => role,
        None => guess(command)?,
    };
    match role {
        Role::Terminal => Files::terminal(command.file.clone())
            .read_terminal()
            .map(|_| ()),
        Role::Gateway => Files::gateway(command.file.clone())
            .read_gateway()
            .map(|_| ()),
    }?;
    daemon::say(format_args!(
        "{}: right, for a {}",
        command.file.display(),
        match role {
            Role::Terminal => "terminal",
            Role::Gateway => "gateway",
        }
    ));
    Ok(())
}

fn guess(command: &Command) -> Result<Role, Failure> {
    let file = &command.file;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    if stem.starts_with("terminal") {
        return Ok(Role::Terminal);
    }
    if stem.starts_with("gateway") {
        return Ok(Role::Gateway);
    }
    let table: toml::Table = toml::from_str(&failure::read_or(file, WANTED)?)
        .map_err(|error| Failure::file(file, error))?;
    let has = |names: &[&str]| names.iter().any(|name| table.contains_key(*name));
    match (has(&["ingress"]), has(&["listen", "egress"])) {
        (true, false) => Ok(Role::Terminal),
        (false, true) => Ok(Role::Gateway),
        _ => Err(Failure::file(
            file,
            "neither its name nor its tables tell whose configuration it is; say `--role terminal` or `--role gateway`",
        )),
    }
}
