//! CONNECT (RFC 9114, section 4.4): the request for a TCP connection to an origin.

use http::{Method, Request, Uri};

use super::proxy_status::{ErrorKind, Refusal};
use crate::target::Target;

/// Asks the gateway to connect to `target`.
pub fn request(target: &Target) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::builder()
        .authority(target.to_string())
        .build()
        .expect("a checked host and a port are an authority");
    request
}

/// The target of a CONNECT request. The error is the answer to one that makes no sense.
pub fn target(request: &Request<()>) -> Result<Target, Refusal> {
    let bad = |detail: String| Refusal {
        kind: ErrorKind::HttpRequestError,
        detail,
    };
    request
        .uri()
        .authority()
        .ok_or_else(|| bad("no authority".into()))?
        .as_str()
        .parse()
        .map_err(|error| bad(format!("{error}")))
}
