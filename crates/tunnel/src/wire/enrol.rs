//! The request of a one-time key to enrol a terminal.

use http::{HeaderValue, Method, Request, Uri};

use super::proxy_status::{ErrorKind, Refusal};
use crate::identity::Fingerprint;
use crate::target::Target;

/// Where a one-time key asks to enrol a terminal.
pub const PATH: &str = "/.well-known/bentpipe/enrol";
/// The header with the terminal's key.
const TERMINAL: &str = "bentpipe-terminal";

/// Asks the gateway to enrol the terminal with key `terminal`.
pub fn request(gateway: &Target, terminal: &Fingerprint) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::builder()
        .scheme("https")
        .authority(gateway.to_string())
        .path_and_query(PATH)
        .build()
        .expect("a checked target and a constant path are a URI");
    request.headers_mut().insert(
        TERMINAL,
        HeaderValue::from_str(&terminal.to_string()).expect("a fingerprint is plain ASCII"),
    );
    request
}

/// The terminal that is to be enrolled. The error is the answer to a request without one.
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
