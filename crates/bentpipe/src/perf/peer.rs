//! The options of a client about its server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_perf::parameters::Parameters;
use bentpipe_perf::protocol::{Application, PORT};
use bentpipe_perf::quic::{QuicDialler, Target};
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
    /// How long the server may take to answer the first packet
    #[arg(long, value_name = "TIME", default_value = "10 s")]
    pub timeout: Span,
    /// End when nothing has moved for so long: with a server that takes a request and never answers it, or a path
    /// that is dead. Pauses between requests do not count
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    pub stall: Span,
    /// Of a name's addresses take one of IPv4; otherwise it is the first of any
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

impl Peer {
    /// Whether any of it has no meaning without TLS.
    pub fn needs_tls(&self) -> bool {
        self.ca.is_some() || self.fingerprint.is_some() || self.name.is_some() || self.resume
    }

    /// The address of `host`, and its name.
    pub async fn resolve(&self, host: &str) -> Result<(SocketAddr, String), Failure> {
        let wanted = |address: &SocketAddr| match (self.ipv4, self.ipv6) {
            (true, _) => address.is_ipv4(),
            (_, true) => address.is_ipv6(),
            _ => true,
        };
        endpoint::resolve(host, PORT, wanted).await
    }

    /// Makes QUIC connections to `host`, in the application protocol that is asked for.
    pub async fn dialler(
        &self,
        host: &str,
        application: Application,
        parameters: &Parameters,
        path: &PathFile,
    ) -> Result<(QuicDialler, Endpoint), Failure> {
        let trust = match self.fingerprint {
            Some(key) => Trust::Key(key),
            None => Trust::Roots(Arc::new(endpoint::roots(self.ca.as_deref())?)),
        };
        let (address, name) = self.resolve(host).await?;
        let local: SocketAddr = match address {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let quic = endpoint::open(local, parameters, &[parameters.version.number()], None)
            .map_err(anyhow::Error::from)?;
        let target = Target {
            address,
            name: self.name.clone().unwrap_or(name),
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
