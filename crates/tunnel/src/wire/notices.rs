//! Notices of a gateway to a terminal: the gateway's next key, and other machines that have a
//! session with the same key.
//!
//! The terminal asks when its session is up, and again after each answer. The gateway answers
//! as soon as there is something that the terminal has not seen; until then the request waits.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};

use crate::identity::Fingerprint;
use crate::target::Target;

/// Where notices are asked for.
pub const PATH: &str = "/.well-known/bentpipe/notices";

const INSTANCE: HeaderName = HeaderName::from_static("bentpipe-instance");
const AFTER: HeaderName = HeaderName::from_static("bentpipe-after");
const KNOWN_KEY: HeaderName = HeaderName::from_static("bentpipe-known-key");
const REVISION: HeaderName = HeaderName::from_static("bentpipe-revision");
const NEXT_KEY: HeaderName = HeaderName::from_static("bentpipe-next-key");
const SAME_KEY: HeaderName = HeaderName::from_static("bentpipe-same-key");

/// A terminal's question for notices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ask {
    /// A random number of the terminal's process: two machines with one key differ in it. Without,
    /// a command that runs beside a terminal.
    pub instance: Option<u64>,
    /// The revision of the last answer.
    pub seen: Option<u64>,
    /// The answer is wanted after this time and not before, in whole milliseconds; until then the
    /// gateway is silent, if nothing else is asked of it.
    pub after: Option<Duration>,
    /// The gateway's next key, once the terminal has written it down.
    pub known_key: Option<Fingerprint>,
}

/// What a gateway has to tell a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notices {
    /// Grows with every change.
    pub revision: u64,
    /// The key that the gateway will have.
    pub next_key: Option<Fingerprint>,
    /// Where other machines with the terminal's key have sessions from.
    pub same_key: Vec<SocketAddr>,
}

/// Asks `gateway` for notices.
pub fn request(gateway: &Target, ask: &Ask) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::GET;
    let uri = Uri::builder().scheme("https").path_and_query(PATH);
    *request.uri_mut() = uri
        .authority(gateway.to_string())
        .build()
        .expect("a checked target and a constant path are a URI");
    let headers = request.headers_mut();
    if let Some(instance) = ask.instance {
        set(headers, INSTANCE, instance.to_string());
    }
    if let Some(after) = ask.after {
        set(headers, AFTER, after.as_millis().to_string());
    }
    if let Some(seen) = ask.seen {
        set(headers, REVISION, seen.to_string());
    }
    if let Some(key) = ask.known_key {
        set(headers, KNOWN_KEY, key.to_string());
    }
    request
}

/// What a request to [`PATH`] asks; what cannot be read is not there.
pub fn ask(request: &Request<()>) -> Ask {
    let headers = request.headers();
    Ask {
        instance: get(headers, &INSTANCE),
        seen: get(headers, &REVISION),
        after: get(headers, &AFTER).map(Duration::from_millis),
        known_key: get(headers, &KNOWN_KEY),
    }
}

impl Notices {
    /// The answer that tells them.
    pub fn response(&self) -> Response<()> {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        set(headers, REVISION, self.revision.to_string());
        if let Some(key) = self.next_key {
            set(headers, NEXT_KEY, key.to_string());
        }
        let addresses: Vec<_> = self.same_key.iter().map(SocketAddr::to_string).collect();
        if !addresses.is_empty() {
            set(headers, SAME_KEY, addresses.join(", "));
        }
        response
    }

    /// Reads an answer; `None` if it has no notices.
    pub fn read(response: &Response<()>) -> Option<Self> {
        let headers = response.headers();
        let addresses = headers.get(SAME_KEY).and_then(|value| value.to_str().ok());
        let addresses = addresses.unwrap_or_default().split(", ");
        Some(Self {
            revision: get(headers, &REVISION)?,
            next_key: get(headers, &NEXT_KEY),
            same_key: addresses.filter_map(|text| text.parse().ok()).collect(),
        })
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: String) {
    let value = HeaderValue::from_str(&text).expect("numbers, keys and addresses are plain ASCII");
    headers.insert(name, value);
}

fn get<T: std::str::FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    #[test]
    fn both_read_back_as_they_were_sent() {
        let key = Some(Identity::from_seed(&[7; 32]).fingerprint());
        let gateway = "192.0.2.1:4433".parse().unwrap();
        let full = Ask {
            instance: Some(u64::MAX),
            seen: Some(3),
            after: Some(Duration::from_secs(30)),
            known_key: key,
        };
        for asked in [full, Ask::default()] {
            assert_eq!(ask(&request(&gateway, &asked)), asked);
        }
        let full = Notices {
            revision: 4,
            next_key: key,
            same_key: vec![
                "192.0.2.7:1".parse().unwrap(),
                "[2001:db8::1]:2".parse().unwrap(),
            ],
        };
        for told in [full, Notices::default()] {
            assert_eq!(Notices::read(&told.response()), Some(told));
        }
        assert_eq!(Notices::read(&Response::new(())), None);
    }
}
