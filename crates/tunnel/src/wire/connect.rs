//! CONNECT (RFC 9114, section 4.4): the request for a TCP connection to an origin.

use http::{HeaderMap, HeaderValue, Method, Request, Uri};

use super::proxy_status::{ErrorKind, Refusal};
use crate::target::Target;

/// The header with the number of the host whose connection it is, for shares. A gateway may
/// ignore it.
const HOST: &str = "bentpipe-host";

/// Asks the gateway to connect to `target` for the host with number `host`; 0 for nobody in
/// particular.
pub fn request(target: &Target, host: u32) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::builder()
        .authority(target.to_string())
        .build()
        .expect("a checked host and a port are an authority");
    set_host(request.headers_mut(), host);
    request
}

/// Says that a request is for the host with number `host`, unless that is 0.
pub(super) fn set_host(headers: &mut HeaderMap, host: u32) {
    if host != 0 {
        headers.insert(HOST, HeaderValue::from(host));
    }
}

/// The number of the host whose connection is asked for; 0 if that is not said.
pub fn host(request: &Request<()>) -> u32 {
    let number = request.headers().get(HOST);
    number
        .and_then(|number| number.to_str().ok()?.parse().ok())
        .unwrap_or(0)
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
