//! Bearer tokens (RFC 6750) in requests, by which clients without a key of their own authenticate
//! to the gateway.

use bentpipe_quic::fingerprint::Fingerprint;
use http::header::{AUTHORIZATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::{HeaderValue, Request, Response, StatusCode};

/// The hash of the token that `request` shows: to a proxy (RFC 9110, section 11.7.2), or, from
/// clients to which the gateway is an origin, to that.
pub fn token(request: &Request<()>) -> Option<Fingerprint> {
    let headers = request.headers();
    let value = headers
        .get(PROXY_AUTHORIZATION)
        .or_else(|| headers.get(AUTHORIZATION))?;
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("Bearer")
        .then(|| Fingerprint::of_token(token.trim().as_bytes()))
}

/// Makes `request` show a token, to a proxy.
pub fn show(request: &mut Request<()>, token: &HeaderValue) {
    let headers = request.headers_mut();
    headers.insert(PROXY_AUTHORIZATION, token.clone());
}

/// How `token` is shown. `None`: it has characters that none can have.
pub fn shown(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    // Never into a table that is shared with other requests (RFC 9204, section 7.1.3).
    value.set_sensitive(true);
    Some(value)
}

/// The answer to a request without a good token (RFC 9110, section 15.5.8).
pub fn required() -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
    let challenge = HeaderValue::from_static("Bearer realm=\"bentpipe\"");
    response.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_to_a_proxy_or_to_an_origin() {
        let expected = Some(Fingerprint::of_token(b"secret"));
        for (name, value, shown) in [
            ("proxy-authorization", "Bearer secret", expected),
            ("authorization", "bearer secret", expected),
            ("authorization", "Basic secret", None),
            ("authorization", "secret", None),
            ("cookie", "Bearer secret", None),
        ] {
            let request = Request::builder().header(name, value).body(()).unwrap();
            assert_eq!(token(&request), shown, "{name}: {value}");
        }
        assert_ne!(expected, Some(Fingerprint::of_token(b"other")));
    }
}
