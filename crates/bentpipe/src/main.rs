//! `bentpipe`: the one binary. Each subcommand has a module of its name.

mod failure;
mod link;
mod emulate;
mod control;
mod sim;
mod trace;
mod terminal;
mod gateway;
mod config;
mod registry;
mod path_file;
mod daemon;
mod doctor;

use clap::{Parser, Subcommand};

/// Encrypted and fast over satellite: a tunnel between a terminal beside the
/// dish and a gateway on the internet, and the laboratory to prove it.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What a link scenario amounts to
    #[command(subcommand)]
    Link(link::Command),
    Emulate(Box<emulate::Command>),
    Sim(sim::Command),
    Trace(trace::Command),
    Terminal(terminal::Command),
    Gateway(gateway::Command),
    Doctor(doctor::Command),
}

fn main() -> std::process::ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_env_var("BENTPIPE_LOG")
                .with_default_directive(tracing_subscriber::filter::LevelFilter::INFO.into())
                .from_env_lossy(),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .init();
    let result = match Cli::parse().command {
        Command::Link(command) => link::run(command),
        Command::Emulate(command) => emulate::run(&command),
        Command::Sim(command) => sim::run(command),
        Command::Trace(command) => trace::run(&command),
        Command::Terminal(command) => terminal::run(command),
        Command::Gateway(command) => gateway::run(command),
        Command::Doctor(command) => doctor::run(&command),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
