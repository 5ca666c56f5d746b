//! The requests that a gateway understands.

use bentpipe_quic::connect_headers::CONNECT_IP;
use http::Method;

use super::contexts::Agreed;
use super::proxy_status::{ErrorKind, Refusal};
use super::{connect, connect_ip, connect_udp, dns, enrol, notices};
use crate::identity::Fingerprint;
use crate::target::Target;

/// What a terminal asks of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A TCP connection to an origin.
    Connect(Target),
    /// UDP datagrams to and from a peer, and what their contexts mean.
    ConnectUdp(Target, Option<Agreed>),
    /// IP packets to and from anywhere.
    ConnectIp,
    /// A question of DNS.
    Dns(dns::Question),
    /// To enrol a terminal.
    Enrol(Fingerprint),
    /// To know the terminal by another key.
    Renew(Fingerprint),
    /// Notices, as soon as there are some.
    Notices(notices::Ask),
}

impl Request {
    /// Reads a request. The error is the answer to one that is not understood.
    pub fn read(request: &http::Request<()>) -> Result<Self, Refusal> {
        let unsupported = |detail: &str| Refusal {
            kind: ErrorKind::Unsupported,
            detail: detail.into(),
        };
        match request.extensions().get::<h3::ext::Protocol>() {
            Some(&h3::ext::Protocol::CONNECT_UDP) if request.method() == Method::CONNECT => {
                let agreed = Agreed::of_request(request.headers());
                return connect_udp::target(request).map(|target| Self::ConnectUdp(target, agreed));
            }
            Some(&CONNECT_IP) if request.method() == Method::CONNECT => {
                return connect_ip::check(request).map(|()| Self::ConnectIp);
            }
            Some(_) => {
                return Err(unsupported(
                    "of extended CONNECT, connect-udp and connect-ip only",
                ));
            }
            None => {}
        }
        match *request.method() {
            Method::CONNECT => connect::target(request).map(Self::Connect),
            _ if request.uri().path() == dns::PATH => dns::question(request).map(Self::Dns),
            Method::POST if request.uri().path() == enrol::PATH => {
                enrol::terminal(request).map(Self::Enrol)
            }
            Method::POST if request.uri().path() == enrol::RENEWAL_PATH => {
                enrol::terminal(request).map(Self::Renew)
            }
            Method::GET if request.uri().path() == notices::PATH => {
                Ok(Self::Notices(notices::ask(request)))
            }
            _ => Err(unsupported("this is a proxy")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back_as_it_was_sent() {
        for text in ["example.net:443", "[2001:db8::1]:80", "192.0.2.7:8080"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(
                Request::read(&connect::request(&target, 0)),
                Ok(Request::Connect(target.clone()))
            );
            let gateway = "192.0.2.1:4433".parse().unwrap();
            let datagrams = connect_udp::request(&gateway, &target, 0);
            let agreed = Agreed::of_request(datagrams.headers());
            assert!(agreed.is_some());
            assert_eq!(
                Request::read(&datagrams),
                Ok(Request::ConnectUdp(target, agreed))
            );
            assert_eq!(
                Request::read(&connect_ip::request(&gateway, 0)),
                Ok(Request::ConnectIp)
            );
        }
    }
}
