//! `bentpipe`: the one binary. Each subcommand has a module of its name.

mod failure;
mod scenario;
mod link;
mod emulate;
mod control;
mod link_set;
mod sim;
mod schema;
mod trace;
mod perf;
mod qlog;
mod terminal;
mod gateway;
mod quic_pep;
mod tcp_pep;
mod status;
mod check;
mod config;
#[cfg(test)]
mod configuration_doc;
mod files;
mod registry;
mod path_file;
mod daemon;
mod output;
mod key_log;
mod log;
mod doctor;
mod generate;

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
    Schema(schema::Command),
    Trace(trace::Command),
    #[command(subcommand)]
    Perf(perf::Command),
    Terminal(terminal::Command),
    Gateway(gateway::Command),
    #[command(name = "quic-pep")]
    QuicPep(quic_pep::Command),
    #[command(name = "tcp-pep")]
    TcpPep(tcp_pep::Command),
    Status(status::Command),
    Check(check::Command),
    Doctor(doctor::Command),
    /// Manual pages and shell completions
    #[command(subcommand, hide = true)]
    Generate(generate::Command),
}

fn main() -> std::process::ExitCode {
    log::start();
    let result = match Cli::parse().command {
        Command::Link(command) => link::run(command),
        Command::Emulate(command) => emulate::run(&command),
        Command::Sim(command) => sim::run(command),
        Command::Schema(command) => schema::run(&command),
        Command::Trace(command) => trace::run(&command),
        Command::Perf(command) => perf::run(command),
        Command::Terminal(command) => terminal::run(command),
        Command::Gateway(command) => gateway::run(command),
        Command::QuicPep(command) => quic_pep::run(command),
        Command::TcpPep(command) => tcp_pep::run(command),
        Command::Status(command) => status::run(&command),
        Command::Check(command) => check::run(&command),
        Command::Doctor(command) => doctor::run(&command),
        Command::Generate(command) => generate::run(command),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
