//! The options of a client about its server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_perf::parameters::Parameters;
use bentpipe_perf::protocol::{Application, PORT};
use bentpipe_perf::quic::{QuicDialler, Target};
use bentpipe_perf::report::Report;
use bentpipe_perf::tls::Trust;
use bentpipe_quic::fingerprint::Fingerprint;
use bentpipe_units::Span;
use clap::Args;
use noq::Endpoint;

use super::endpoint;
use super::path::PathFile;
use crate::failure::Failure;

/// Whom a client trusts, and how it connects.
#[derive(Debug, Args)]
pub struct Peer {
    /// How long the server may take to answer the first packet; of a name with several addresses the next is tried then
    #[arg(long, value_name = "TIME", default_value = "10 s")]
    pub timeout: Span,
    /// End when nothing has moved for so long: with a server that takes a request and never answers it, or a path
    /// that is dead. Pauses between requests do not count
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    pub stall: Span,
    /// Of a name's addresses take one of IPv4; otherwise it is the first of any that answers
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Take one of IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Make a connection first that is not measured, and resume from it with 0-RTT
    #[arg(long)]
    pub resume: bool,
    /// Certificate authority of the server, or its own certificate (PEM); without, those that
    /// this machine trusts
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    ca: Option<PathBuf>,
    /// Fingerprint of the server's key, as `bentpipe perf server` prints it
    #[arg(long)]
    fingerprint: Option<Fingerprint>,
    /// The name that the server's certificate is for, if it is not the host's
    #[arg(long)]
    name: Option<String>,
}

/// How a measurement towards one address went.
#[derive(Debug)]
pub struct Tried {
    /// What is told of it.
    pub report: Report,
    /// Nobody has answered there.
    pub unanswered: bool,
}

/// Measures towards the first of `addresses` that answers. One is tried after the other (RFC 8305 would race them): a
/// second handshake on the way would be measured with the first.
pub async fn first_that_answers(
    addresses: &[SocketAddr],
    mut measure: impl AsyncFnMut(SocketAddr) -> Result<Tried, Failure>,
) -> Result<Report, Failure> {
    let (last, others) = addresses.split_last().expect("a host that was resolved");
    for address in others {
        let tried = measure(*address).await?;
        if !tried.unanswered {
            return Ok(tried.report);
        }
        let why = tried.report.error.unwrap_or_default();
        tracing::warn!("{why}; the next address of that name is tried");
    }
    Ok(measure(*last).await?.report)
}

impl Peer {
    /// Whether any of it has no meaning without TLS.
    pub fn needs_tls(&self) -> bool {
        self.ca.is_some() || self.fingerprint.is_some() || self.name.is_some() || self.resume
    }

    /// The addresses of `host`, at least one, and its name.
    pub async fn resolve(&self, host: &str) -> Result<(Vec<SocketAddr>, String), Failure> {
        let wanted = |address: &SocketAddr| match (self.ipv4, self.ipv6) {
            (true, _) => address.is_ipv4(),
            (_, true) => address.is_ipv6(),
            _ => true,
        };
        endpoint::resolve(host, PORT, wanted).await
    }

    /// Makes QUIC connections to `address` of the server with that name, in the application protocol that is asked
    /// for.
    pub fn dialler(
        &self,
        (address, name): (SocketAddr, &str),
        application: Application,
        parameters: &Parameters,
        path: &PathFile,
    ) -> Result<(QuicDialler, Endpoint), Failure> {
        let trust = match self.fingerprint {
            Some(key) => Trust::Key(key),
            None => Trust::Roots(Arc::new(endpoint::roots(self.ca.as_deref())?)),
        };
        let local: SocketAddr = match address {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let quic = endpoint::open(local, parameters, &[parameters.version.number()], None)
            .map_err(anyhow::Error::from)?;
        let target = Target {
            address,
            name: self.name.clone().unwrap_or_else(|| name.to_owned()),
            trust,
            application,
            resume: self.resume,
            patience: self.timeout,
        };
        let key_log = crate::key_log::of_environment();
        let dialler = QuicDialler::new(quic.clone(), target, parameters, path.memory(), key_log);
        Ok((dialler, quic))
    }
}
