//! `bentpipe perf`: measure a transport from end to end.

mod path;
mod options;
mod output;
mod table;
pub mod endpoint;
mod peer;
mod results;
mod files;
mod client;
mod get;
mod server;

use clap::Subcommand;

use crate::failure::Failure;

/// Measure a transport: QUIC with any controller and any parameters at each end, or TCP
///
/// Speaks the `perf` protocol of draft-banks-quic-performance, so that the perf tools of other
/// QUIC stacks can be the other end; `get` and `server --www` speak HTTP/3 and HTTP/0.9.
#[derive(Debug, Subcommand)]
pub enum Command {
    Client(Box<client::Command>),
    Get(Box<get::Command>),
    Server(Box<server::Command>),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Client(command) => client::run(&command),
        Command::Get(command) => get::run(&command),
        Command::Server(command) => server::run(&command),
    }
}
