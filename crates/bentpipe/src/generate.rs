//! `bentpipe generate`: manual pages and shell completions, made from the command line's
//! own description. For packagers, hence hidden.

use std::path::PathBuf;

use clap::{CommandFactory as _, Subcommand};
use clap_complete::Shell;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the manual pages, one for each command, into DIRECTORY
    Man {
        /// It has to exist
        directory: PathBuf,
    },
    /// Print the completions for SHELL
    Completions {
        /// Which
        shell: Shell,
    },
}

pub fn run(command: Command) -> Result<(), Failure> {
    let mut cli = crate::Cli::command();
    match command {
        Command::Man { directory } => clap_mangen::generate_to(cli, &directory)
            .map_err(|error| Failure::file(&directory, error)),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut cli, "bentpipe", &mut text);
            use std::io::Write as _;
            std::io::stdout()
                .write_all(&text)
                .map_err(anyhow::Error::from)?;
            Ok(())
        }
    }
}
