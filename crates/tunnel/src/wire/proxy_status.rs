//! Proxy-Status (RFC 9209): why the gateway did not do what a request asks for.

use std::fmt;
use std::io;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// No descriptor is left to this process, or to the machine (errno(3), Linux).
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// The answer that a request succeeds.
pub fn accepted() -> Response<()> {
    Response::new(())
}

/// Why the gateway did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Refusal {
    /// What went wrong, for programs.
    pub kind: ErrorKind,
    /// What went wrong, for people.
    pub detail: String,
}

/// The proxy error types (RFC 9209, section 2.3) that the gateway uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The name did not resolve in time.
    DnsTimeout,
    /// The name does not resolve.
    DnsError,
    /// The origin is not there.
    DestinationNotFound,
    /// Egress policy forbids the address.
    DestinationIpProhibited,
    /// No route to the address.
    DestinationIpUnroutable,
    /// The origin answered with RST.
    ConnectionRefused,
    /// The origin ended the connection while it was being made.
    ConnectionTerminated,
    /// The origin did not answer.
    ConnectionTimeout,
    /// The gateway has no room.
    ConnectionLimitReached,
    /// The request makes no sense.
    HttpRequestError,
    /// The request asks for something that is not done here.
    Unsupported,
    /// The gateway itself failed.
    ProxyInternalError,
    /// An answer that names none of these.
    Other,
}

impl ErrorKind {
    const ALL: [(Self, &str, StatusCode); 12] = [
        (Self::DnsTimeout, "dns_timeout", StatusCode::GATEWAY_TIMEOUT),
        (Self::DnsError, "dns_error", StatusCode::BAD_GATEWAY),
        (
            Self::DestinationNotFound,
            "destination_not_found",
            StatusCode::BAD_GATEWAY,
        ),
        (
            Self::DestinationIpProhibited,
            "destination_ip_prohibited",
            StatusCode::FORBIDDEN,
        ),
        (
            Self::DestinationIpUnroutable,
            "destination_ip_unroutable",
            StatusCode::BAD_GATEWAY,
        ),
        (
            Self::ConnectionRefused,
            "connection_refused",
            StatusCode::BAD_GATEWAY,
        ),
        (
            Self::ConnectionTerminated,
            "connection_terminated",
            StatusCode::BAD_GATEWAY,
        ),
        (
            Self::ConnectionTimeout,
            "connection_timeout",
            StatusCode::GATEWAY_TIMEOUT,
        ),
        (
            Self::ConnectionLimitReached,
            "connection_limit_reached",
            StatusCode::SERVICE_UNAVAILABLE,
        ),
        (
            Self::HttpRequestError,
            "http_request_error",
            StatusCode::BAD_REQUEST,
        ),
        (
            Self::Unsupported,
            "http_request_denied",
            StatusCode::NOT_IMPLEMENTED,
        ),
        (
            Self::ProxyInternalError,
            "proxy_internal_error",
            StatusCode::INTERNAL_SERVER_ERROR,
        ),
    ];

    /// Its name in RFC 9209.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(kind, ..)| *kind == self)
            .map_or("other", |(_, name, _)| name)
    }

    fn status(self) -> StatusCode {
        let found = Self::ALL.iter().find(|(kind, ..)| *kind == self);
        found.map_or(StatusCode::BAD_GATEWAY, |(.., status)| *status)
    }

    /// What a failed attempt to connect amounts to.
    pub fn of_dial(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::ConnectionRefused,
            io::ErrorKind::TimedOut => Self::ConnectionTimeout,
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::NetworkDown => Self::DestinationIpUnroutable,
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
                Self::ConnectionLimitReached
            }
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
                Self::ConnectionTerminated
            }
            _ => Self::ProxyInternalError,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Refusal {
    /// The answer that tells it, with its Proxy-Status.
    pub fn response(&self) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = self.kind.status();
        *response.headers_mut() = self.trailers();
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        response
    }

    /// The trailers that tell it after an answer that promised success (RFC 9209, section 2).
    pub fn trailers(&self) -> HeaderMap {
        // A structured string holds printable ASCII, '"' and '\' escaped (RFC 9651, section 3.3.3).
        let mut detail = String::new();
        for c in self.detail.chars().take(200) {
            match c {
                '"' | '\\' => detail.extend(['\\', c]),
                ' '..='~' => detail.push(c),
                _ => detail.push('?'),
            }
        }
        let status = format!("bentpipe; error={}; details=\"{detail}\"", self.kind.name());
        let value = HeaderValue::from_str(&status).expect("only printable ASCII is left");
        HeaderMap::from_iter([(PROXY_STATUS, value)])
    }

    /// Reads what trailers tell, if it is a failure.
    pub fn read_trailers(trailers: &HeaderMap) -> Option<Self> {
        let said = String::from_utf8_lossy(trailers.get(PROXY_STATUS)?.as_bytes());
        let (kind, detail) = parse(&said);
        Some(Self {
            kind,
            detail: detail.to_owned(),
        })
    }

    /// Reads an answer: nothing when the flow is open, else why it is not.
    pub fn read(response: &Response<()>) -> Result<(), Self> {
        if response.status().is_success() {
            return Ok(());
        }
        let said = response
            .headers()
            .get(PROXY_STATUS)
            .map_or("no Proxy-Status".into(), |value| {
                String::from_utf8_lossy(value.as_bytes())
            });
        let (kind, detail) = parse(&said);
        Err(Self {
            kind,
            detail: format!("{} ({detail})", response.status()),
        })
    }
}

/// What a Proxy-Status says: the kind of failure, and its details.
fn parse(said: &str) -> (ErrorKind, &str) {
    let kind = ErrorKind::ALL
        .iter()
        .find(|(_, name, _)| said.contains(&format!("error={name}")))
        .map_or(ErrorKind::Other, |(kind, ..)| *kind);
    let detail = said
        .split_once("details=\"")
        .map_or(said, |(_, rest)| rest.trim_end_matches('"'));
    (kind, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_back_as_its_kind() {
        for (kind, ..) in ErrorKind::ALL {
            let refusal = Refusal {
                kind,
                detail: "on \"port\" 80\n".into(),
            };
            let read = Refusal::read(&refusal.response()).unwrap_err();
            assert_eq!(read.kind, kind);
            assert!(read.detail.contains("port"), "{read}");
        }
        assert_eq!(Refusal::read(&accepted()), Ok(()));
        let refusal = Refusal {
            kind: ErrorKind::ConnectionRefused,
            detail: "192.0.2.7:53".into(),
        };
        assert_eq!(Refusal::read_trailers(&refusal.trailers()), Some(refusal));
        assert_eq!(Refusal::read_trailers(&HeaderMap::new()), None);
    }
}
