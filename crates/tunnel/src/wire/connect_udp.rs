//! CONNECT-UDP (RFC 9298): the request for UDP datagrams to and from one peer.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};

use super::connect;
use super::contexts::Contexts;
use super::proxy_status::{self, ErrorKind, Refusal};
use crate::target::{Host, Target};

/// Where a target's host and port stand in the path: the default template (section 3.4).
const PREFIX: &str = "/.well-known/masque/udp/";
/// Says that the stream carries capsules (RFC 9297, section 3.4).
const CAPSULE_PROTOCOL: HeaderName = HeaderName::from_static("capsule-protocol");

/// Asks `gateway` for datagrams to and from `target`, for the host with number `host`; 0
/// for nobody in particular.
pub fn request(gateway: &Target, target: &Target, host: u32) -> Request<()> {
    let name = match &target.host {
        Host::Address(address) => address.to_string().replace(':', "%3A"),
        Host::Name(name) => name.clone(),
    };
    let mut request = Request::new(());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::builder()
        .scheme("https")
        .authority(gateway.to_string())
        .path_and_query(format!("{PREFIX}{name}/{}/", target.port))
        .build()
        .expect("a checked gateway, host and port are a URI");
    let protocol = h3::ext::Protocol::CONNECT_UDP;
    request.extensions_mut().insert(protocol);
    let headers = request.headers_mut();
    set_capsule_protocol(headers);
    Contexts::offer(headers);
    connect::set_host(headers, host);
    request
}

/// Says that the stream carries capsules.
pub(super) fn set_capsule_protocol(headers: &mut HeaderMap) {
    headers.insert(CAPSULE_PROTOCOL, HeaderValue::from_static("?1"));
}

/// The answer that the request succeeds, with what the contexts of its datagrams mean.
pub fn accepted_with(contexts: &Contexts) -> Response<()> {
    let mut response = accepted();
    contexts.answer(response.headers_mut());
    response
}

/// The same of CONNECT-IP, whose datagrams have one context.
pub fn accepted() -> Response<()> {
    let mut response = proxy_status::accepted();
    set_capsule_protocol(response.headers_mut());
    response
}

/// The target of a CONNECT-UDP request. The error is the answer to one that makes no sense.
pub fn target(request: &Request<()>) -> Result<Target, Refusal> {
    let bad = |detail: &str| Refusal {
        kind: ErrorKind::HttpRequestError,
        detail: detail.into(),
    };
    let path = request.uri().path();
    let parts = path.strip_prefix(PREFIX).and_then(|rest| {
        let (host, port) = rest.strip_suffix('/').unwrap_or(rest).split_once('/')?;
        Some((host, port))
    });
    let Some((host, port)) = parts else {
        return Err(bad(
            "the path of CONNECT-UDP is /.well-known/masque/udp/HOST/PORT/",
        ));
    };
    let host = percent_decoded(host)
        .and_then(|host| Host::name(&host))
        .ok_or_else(|| bad("the host is not a name or address"))?;
    let port = match port.parse() {
        // A number may also be written with a sign.
        Ok(number) if number != 0 && !port.starts_with('+') => number,
        _ => return Err(bad("the port is not a number from 1 to 65535")),
    };
    Ok(Target { host, port })
}

/// Decodes percent-encoded ASCII (RFC 3986, section 2.1).
fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, encoded)) = rest.split_once('%') {
        decoded.push_str(plain);
        let digits = encoded.get(..2)?;
        let byte = u8::from_str_radix(digits, 16).ok()?;
        if !byte.is_ascii_graphic() || digits.starts_with('+') {
            return None;
        }
        decoded.push(byte.into());
        rest = &encoded[2..];
    }
    decoded.push_str(rest);
    Some(decoded)
}
