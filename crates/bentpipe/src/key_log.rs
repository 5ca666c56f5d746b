//! The file that takes the secrets of TLS sessions, for who captures their packets
//! (SSLKEYLOGFILE, as other programs have it).

use std::sync::Arc;

const VARIABLE: &str = "SSLKEYLOGFILE";

/// The file that the environment names, if it names one.
pub fn of_environment() -> Option<Arc<dyn rustls::KeyLog>> {
    std::env::var_os(VARIABLE)?;
    Some(Arc::new(rustls::KeyLogFile::new()))
}

/// Tells that the sessions of a daemon can be read by others, if that is so.
pub fn warn() {
    if let Some(file) = std::env::var_os(VARIABLE) {
        tracing::warn!(
            "the secrets of all sessions are written to {} ({VARIABLE}): whoever reads that file and captures packets reads what they carry",
            file.display()
        );
    }
}
