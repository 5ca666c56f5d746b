//! Where applications ask for names: the sockets that the terminal's resolver answers on.

use bentpipe_os::dns::{self, https, tls};
use bentpipe_tunnel::terminal::dns::Resolver;
use tokio::task::JoinSet;

use crate::config::{Dns, DnsTls};
use crate::daemon;
use crate::failure::Failure;
use crate::files;

/// The certificate that DNS over TLS and HTTPS show, and where it is read from.
pub struct Certificate {
    files: DnsTls,
    shown: tls::Certificate,
}

impl Certificate {
    fn read(files: &DnsTls) -> Result<Self, Failure> {
        files::check_tls_key(&files.key)?;
        Ok(Self {
            shown: tls::Certificate::read(&files.certificate, &files.key)
                .map_err(|error| refused(files, &error))?,
            files: files.clone(),
        })
    }

    /// Reads it again; where it cannot be used, the one before stays.
    pub fn read_again(&self) {
        let files = &self.files;
        let read = files::check_tls_key(&files.key).and_then(|()| {
            (self.shown.read_again(&files.certificate, &files.key))
                .map_err(|error| refused(files, &error))
        });
        if let Err(failure) = read {
            tracing::error!("{failure}; the resolver keeps the certificate that it has");
        }
    }
}

fn refused(files: &DnsTls, error: &tls::CertificateError) -> Failure {
    let file = match error {
        tls::CertificateError::Key(_) => &files.key,
        _ => &files.certificate,
    };
    Failure::file(file, error)
}

/// Answers at all addresses of `names`. Also what is to be told of them, and the certificate, if
/// there is one.
pub async fn listen(
    names: &Dns,
    resolver: &Resolver,
    tasks: &mut JoinSet<()>,
) -> Result<(Vec<String>, Option<Certificate>), Failure> {
    let mut taken = Vec::new();
    for address in &names.listen {
        let sockets = dns::listen(*address).await.map_err(|error| {
            daemon::cannot_listen("dns.listen", "UDP and TCP", *address, &error)
        })?;
        tasks.spawn(dns::serve(sockets, names.clients.clone(), resolver.clone()));
        taken.push(format!("DNS on {address}"));
    }
    let Some(files) = &names.tls else {
        return Ok((taken, None));
    };
    let certificate = Certificate::read(files)?;
    for address in &files.listen {
        let listener = daemon::listen("dns.tls.listen", *address).await?;
        let (clients, shown) = (names.clients.clone(), certificate.shown.clone());
        tasks.spawn(tls::serve(listener, clients, shown, resolver.clone()));
        taken.push(format!("DNS over TLS on {address}"));
    }
    for address in &files.https {
        let listener = daemon::listen("dns.tls.https", *address).await?;
        let (clients, shown) = (names.clients.clone(), certificate.shown.clone());
        tasks.spawn(https::serve(listener, clients, shown, resolver.clone()));
        taken.push(format!("DNS over HTTPS on {address}"));
    }
    Ok((taken, Some(certificate)))
}
