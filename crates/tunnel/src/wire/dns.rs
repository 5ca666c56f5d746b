//! DNS questions over HTTPS (RFC 8484): the message in the request's body or path, the answer in
//! the response's body.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderValue, Method, Request, Response, Uri, header};

use super::proxy_status::{ErrorKind, Refusal};

/// Where questions are asked.
pub const PATH: &str = "/dns-query";
/// The media type of questions and answers.
const MEDIA_TYPE: &str = "application/dns-message";
/// The longest message (RFC 1035, section 4.2.2), bytes.
pub const MAX_MESSAGE: usize = 65_535;
/// The longest question that a gateway reads, bytes: a name, and options.
pub const MAX_QUESTION: usize = 4_096;

/// Questions that a session may have under way at the same time: what a gateway grants.
pub const MAX_UNDER_WAY: usize = 256;
/// Those that a gateway has beside them, while it has not heard that they were given up for others.
pub const MAX_GIVEN_UP: usize = 256;

/// Where a request has its question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// In the body.
    Body,
    /// In the path; this is it.
    Path(Vec<u8>),
}

/// A request to `authority` whose body will be a question of `length` bytes.
pub fn request(authority: &str, length: usize) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    let uri = Uri::builder().scheme("https").path_and_query(PATH);
    *request.uri_mut() = uri
        .authority(authority)
        .build()
        .expect("an address and a constant path are a URI");
    let headers = request.headers_mut();
    let media_type = HeaderValue::from_static(MEDIA_TYPE);
    headers.insert(header::CONTENT_TYPE, media_type.clone());
    headers.insert(header::ACCEPT, media_type);
    headers.insert(header::CONTENT_LENGTH, length.into());
    request
}

/// Where `request`, one to [`PATH`], has its question. The error is the answer to one that has none.
pub fn question(request: &Request<()>) -> Result<Question, Refusal> {
    let bad = |detail: &str| Refusal {
        kind: ErrorKind::HttpRequestError,
        detail: detail.into(),
    };
    match *request.method() {
        Method::POST => {
            let media_type = request.headers().get(header::CONTENT_TYPE);
            match media_type.is_some_and(|value| value == MEDIA_TYPE) {
                true => Ok(Question::Body),
                false => Err(bad("the body is not application/dns-message")),
            }
        }
        Method::GET => {
            let query = request.uri().query().unwrap_or_default();
            let text = query.split('&').find_map(|pair| pair.strip_prefix("dns="));
            let text = text.ok_or_else(|| bad("the path has no parameter dns"))?;
            let message = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
            message
                .map(Question::Path)
                .map_err(|_| bad("the parameter dns is not base64url"))
        }
        _ => Err(bad("questions are asked with POST or GET")),
    }
}

/// The head of an answer of `length` bytes that may be kept for `fresh` seconds (RFC 8484,
/// section 5.1).
pub fn response(length: usize, fresh: u32) -> Response<()> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(header::CONTENT_LENGTH, length.into());
    let cache_control = HeaderValue::from_str(&format!("max-age={fresh}"));
    headers.insert(
        header::CACHE_CONTROL,
        cache_control.expect("digits are plain ASCII"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: Method, uri: &str, media_type: &str) -> Result<Question, Refusal> {
        let request = Request::builder().method(method).uri(uri);
        question(&request.header("content-type", media_type).body(()).unwrap())
    }

    #[test]
    fn questions_are_found_in_body_and_path() {
        assert_eq!(question(&request("192.0.2.1:4433", 12)), Ok(Question::Body));
        // RFC 8484, section 4.1.1.
        let path = "https://a/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB";
        let Ok(Question::Path(message)) = ask(Method::GET, path, "") else {
            panic!("a question in the path");
        };
        assert_eq!(message.len(), 33);
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for (method, uri, media_type) in [
            (Method::POST, "https://a/dns-query", "text/plain"),
            (Method::GET, "https://a/dns-query?name=a", ""),
            (Method::GET, "https://a/dns-query?dns=%%", ""),
            (Method::PUT, "https://a/dns-query", MEDIA_TYPE),
        ] {
            let refusal = ask(method, uri, media_type).unwrap_err();
            assert_eq!(refusal.kind, ErrorKind::HttpRequestError, "{uri}");
        }
    }
}
