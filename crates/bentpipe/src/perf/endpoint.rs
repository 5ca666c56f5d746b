//! QUIC endpoints of a measurement on the machine's sockets.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bentpipe_os::quic_runtime::SystemRuntime;
use bentpipe_os::quic_socket;
use bentpipe_os::resolver::Resolver;
use bentpipe_perf::ecn::WithoutEcn;
use bentpipe_perf::parameters::Parameters;
use bentpipe_quic::layer::Layer as _;
use bentpipe_quic::version2::socket::Version2;
use noq::{Endpoint, EndpointConfig};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::failure::{self, Failure};

/// An endpoint at `address` for connections of these versions of QUIC; with `server` it accepts
/// them.
pub fn open(
    address: SocketAddr,
    parameters: &Parameters,
    versions: &[u32],
    server: Option<noq::ServerConfig>,
) -> std::io::Result<Endpoint> {
    let (mut socket, _) = quic_socket::bind(address, server.is_some())?;
    if !parameters.ecn {
        socket = WithoutEcn.over(socket);
    }
    let mut config = EndpointConfig::default();
    config.supported_versions(versions.to_vec());
    let socket = Version2.over(socket);
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(SystemRuntime))
}

/// Certificates in a PEM file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let text = failure::read(path)?;
    let read = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::file(path, format!("not certificates in PEM: {error}")))?;
    if read.is_empty() {
        return Err(Failure::file(path, "there is no certificate in it"));
    }
    Ok(read)
}

/// The authorities in `file`, or those that this machine trusts.
pub fn roots(file: Option<&Path>) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| Failure::file(path, error))?;
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
            if roots.is_empty() {
                return Err(Failure::Configuration(
                    "this machine has no certificate authorities; give the server's with --ca FILE, or its key's --fingerprint".into(),
                ));
            }
        }
    }
    Ok(roots)
}

/// The addresses of `host`, which may have a port, that are `wanted`, in the order in which the machine would try them;
/// at least one. And its name.
pub async fn resolve(
    host: &str,
    port: u16,
    wanted: impl Fn(&SocketAddr) -> bool,
) -> Result<(Vec<SocketAddr>, String), Failure> {
    let (name, port) = split(host, port)?;
    let addresses = match name.parse() {
        Ok(address) => vec![address],
        Err(_) => Resolver::default()
            .resolve(&name)
            .await
            .with_context(|| format!("{name} cannot be resolved"))?,
    };
    let mut addresses: Vec<_> = (addresses.into_iter())
        .map(|address| SocketAddr::new(address, port))
        .filter(wanted)
        .collect();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(anyhow::anyhow!("{name} has no address of that kind").into());
    }
    Ok((addresses, name))
}

/// `host` into its name and port: `example.net`, `example.net:443`, `192.0.2.1:443`,
/// `2001:db8::1`, `[2001:db8::1]:443`.
fn split(host: &str, port: u16) -> Result<(String, u16), Failure> {
    let wrong = || {
        Failure::Configuration(format!(
            "{host:?} is not a host; give a name or an address, like server.example:4433 or [2001:db8::1]:4433"
        ))
    };
    if let Ok(address) = host.parse::<SocketAddr>() {
        return Ok((address.ip().to_string(), address.port()));
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<std::net::IpAddr>() {
        return Ok((address.to_string(), port));
    }
    let (name, port) = match host.split_once(':') {
        Some((name, number)) => (name, number.parse().map_err(|_| wrong())?),
        None => (host, port),
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(wrong());
    }
    Ok((name.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_and_perhaps_a_port() {
        for (host, name, port) in [
            ("server.example", "server.example", 4433),
            ("server.example:443", "server.example", 443),
            ("192.0.2.1:443", "192.0.2.1", 443),
            ("2001:db8::1", "2001:db8::1", 4433),
            ("[2001:db8::1]", "2001:db8::1", 4433),
            ("[2001:db8::1]:443", "2001:db8::1", 443),
        ] {
            let (got, number) = split(host, 4433).expect(host);
            assert_eq!((got.as_str(), number), (name, port));
        }
        for wrong in ["", ":443", "a b", "server:port"] {
            assert!(split(wrong, 4433).is_err(), "{wrong:?}");
        }
    }
}
