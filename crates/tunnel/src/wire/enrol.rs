//! The requests of a one-time key to enrol a terminal, and of a terminal to change its key.

use http::{HeaderValue, Method, Request, Uri};

use super::proxy_status::{ErrorKind, Refusal};
use crate::identity::Fingerprint;
use crate::target::Target;

/// Where a one-time key asks to enrol a terminal.
pub const PATH: &str = "/.well-known/bentpipe/enrol";
/// Where a terminal asks to be known by another key.
pub const RENEWAL_PATH: &str = "/.well-known/bentpipe/renew";
/// The header with the terminal's key.
const TERMINAL: &str = "bentpipe-terminal";

/// Asks the gateway to enrol the terminal with key `terminal`.
pub fn request(gateway: &Target, terminal: &Fingerprint) -> Request<()> {
    post(gateway, PATH, terminal)
}

/// Asks the gateway to know the terminal that asks by its new key `terminal`.
pub fn renewal(gateway: &Target, terminal: &Fingerprint) -> Request<()> {
    post(gateway, RENEWAL_PATH, terminal)
}

fn post(gateway: &Target, path: &'static str, terminal: &Fingerprint) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::builder()
        .scheme("https")
        .authority(gateway.to_string())
        .path_and_query(path)
        .build()
        .expect("a checked target and a constant path are a URI");
    request.headers_mut().insert(
        TERMINAL,
        HeaderValue::from_str(&terminal.to_string()).expect("a fingerprint is plain ASCII"),
    );
    request
}

/// The key of the terminal that is to be enrolled, or the new one. The error is the answer to a request without one.
pub fn terminal(request: &Request<()>) -> Result<Fingerprint, Refusal> {
    request
        .headers()
        .get(TERMINAL)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .ok_or_else(|| Refusal {
            kind: ErrorKind::HttpRequestError,
            detail: "no terminal's key".into(),
        })
}
