//! An HTTP proxy for applications that speak CONNECT (RFC 9110, section 9.3.6), over HTTP/1.1.
//!
//! Names travel as names: the gateway resolves them. Beside CONNECT it serves a PAC file, which
//! tells browsers to use it, and carries nothing else.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_tunnel::wire::proxy_status::Refusal;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use super::users::Users;
use super::{Proxy, serve_clients};
use crate::kernel_memory::KernelMemory;
use crate::tcp::TcpFlow;

/// A request's head has to be complete by then.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// And may be so long, bytes.
const LONGEST_HEAD: usize = 16 * 1024;
/// Connections whose request is not complete yet; more are not accepted.
const MAX_ASKING: usize = 512;
/// Where the PAC file is: its usual name, and that of proxy discovery.
const PAC: [&str; 2] = ["/proxy.pac", "/wpad.dat"];

/// Serves CONNECT at `listener`, for ever. The PAC file tells of a SOCKS5 proxy at `socks5`, for what
/// CONNECT is not made for.
pub async fn serve(
    listener: TcpListener,
    proxy: Proxy,
    socks5: Option<SocketAddr>,
    memory: KernelMemory,
    terminal: Terminal,
) {
    let places = Arc::new(Semaphore::new(MAX_ASKING));
    serve_clients(listener, "ingress.http", proxy, move |stream, proxy| {
        let (memory, terminal, places) = (memory.clone(), terminal.clone(), places.clone());
        async move {
            let Ok(_place) = places.try_acquire() else {
                return Err(io::Error::other("too many connections without a request"));
            };
            let offered = Offered {
                proxy: &proxy,
                socks5,
            };
            converse(stream, offered, &memory, &terminal).await
        }
    })
    .await;
}

/// What a client may use here.
#[derive(Debug, Clone, Copy)]
struct Offered<'a> {
    proxy: &'a Proxy,
    socks5: Option<SocketAddr>,
}

/// Answers the requests of one connection, until it is closed or becomes a tunnel.
async fn converse(
    stream: TcpStream,
    offered: Offered<'_>,
    memory: &KernelMemory,
    terminal: &Terminal,
) -> io::Result<()> {
    let here = stream.local_addr()?;
    let client = stream.peer_addr()?.ip().to_canonical();
    let service = service_fn(async |mut request: Request<Incoming>| {
        let target = match answer(&request, offered, here) {
            Ok(target) => target,
            Err(response) => return Ok::<_, Infallible>(*response),
        };
        let (memory, terminal) = (memory.clone(), terminal.clone());
        let upgrade = hyper::upgrade::on(&mut request);
        let upgraded = async move { socket(upgrade.await.map_err(io::Error::other)?, &memory) };
        if !offered.proxy.after_origin {
            tokio::spawn(async move {
                match upgraded.await {
                    Ok(socket) => drop(terminal.carry_for(client, socket, target).await),
                    Err(error) => tracing::debug!(%client, %target, "no tunnel: {error}"),
                }
            });
            return Ok(Response::new(String::new()));
        }
        let (told, heard) = oneshot::channel();
        tokio::spawn(async move {
            terminal
                .carry_accepted(client, target, told, upgraded)
                .await;
        });
        Ok(match heard.await {
            Ok(Ok(())) => Response::new(String::new()),
            Ok(Err(refusal)) => refused(&refusal),
            Err(_) => told_as(StatusCode::SERVICE_UNAVAILABLE, "too many flows are open"),
        })
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    connection.await.map_err(io::Error::other)
}

/// The connection itself, after the head of its answer was sent.
fn socket(upgraded: hyper::upgrade::Upgraded, memory: &KernelMemory) -> io::Result<TcpFlow> {
    let parts = upgraded
        .downcast::<TokioIo<TcpStream>>()
        .map_err(|_| io::Error::other("not a TCP connection"))?;
    let mut flow = TcpFlow::new(parts.io.into_inner())?.bounded(memory)?;
    flow.put_back(parts.read_buf);
    Ok(flow)
}

/// Where `request` wants to go. The error is the answer to one that goes nowhere.
fn answer<B>(
    request: &Request<B>,
    offered: Offered<'_>,
    here: SocketAddr,
) -> Result<Target, Box<Response<String>>> {
    let direct = request.uri().authority().is_none();
    if direct && PAC.contains(&request.uri().path()) {
        return Err(Box::new(match *request.method() {
            Method::GET | Method::HEAD => pac(offered.socks5, here),
            _ => not_allowed("the PAC file can be read only", "GET, HEAD"),
        }));
    }
    if *request.method() != Method::CONNECT {
        return Err(Box::new(not_allowed(
            "this proxy carries CONNECT only: use https, or the SOCKS5 proxy; the PAC file is at /proxy.pac",
            "CONNECT",
        )));
    }
    if let Some(users) = &offered.proxy.users
        && !is_admitted(users, request.headers().get(header::PROXY_AUTHORIZATION))
    {
        let mut response = told_as(
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            "this proxy asks for a name and a password",
        );
        let challenge = HeaderValue::from_static("Basic realm=\"bentpipe\", charset=\"UTF-8\"");
        let headers = response.headers_mut();
        headers.insert(header::PROXY_AUTHENTICATE, challenge);
        return Err(Box::new(response));
    }
    let authority = request.uri().authority();
    let target = authority.map(|authority| authority.as_str().parse::<Target>());
    match target {
        Some(Ok(target)) => Ok(target),
        Some(Err(error)) => Err(Box::new(told_as(
            StatusCode::BAD_REQUEST,
            &error.to_string(),
        ))),
        None => Err(Box::new(told_as(
            StatusCode::BAD_REQUEST,
            "CONNECT needs a host and a port, like \"CONNECT example.net:443 HTTP/1.1\"",
        ))),
    }
}

/// Whether Proxy-Authorization names one of `users` (RFC 7617).
fn is_admitted(users: &Users, given: Option<&HeaderValue>) -> bool {
    let said = given
        .and_then(|value| value.to_str().ok())
        .and_then(|text| {
            let (scheme, said) = text.split_once(' ')?;
            let said = scheme.eq_ignore_ascii_case("basic").then(|| said.trim())?;
            String::from_utf8(STANDARD.decode(said).ok()?).ok()
        });
    said.as_deref()
        .and_then(|said| said.split_once(':'))
        .is_some_and(|(name, password)| users.admit(name, password))
}

/// The PAC file: everything through the proxy by which it was fetched; what is not encrypted
/// through the SOCKS5 proxy, if there is one that others reach too.
fn pac(socks5: Option<SocketAddr>, here: SocketAddr) -> Response<String> {
    let connect = format!("PROXY {here}");
    let reached = |socks5: &SocketAddr| !socks5.ip().is_loopback() || here.ip().is_loopback();
    let other = match socks5.filter(reached) {
        Some(socks5) if socks5.ip().is_unspecified() => {
            format!("SOCKS5 {}", SocketAddr::new(here.ip(), socks5.port()))
        }
        Some(socks5) => format!("SOCKS5 {socks5}"),
        None => connect.clone(),
    };
    let script = format!(
        "function FindProxyForURL(url, host) {{\n  if (isPlainHostName(host)) return \"DIRECT\";\n  if (/^(https|wss):/.test(url)) return \"{connect}\";\n  return \"{other}\";\n}}\n"
    );
    let mut response = Response::new(script);
    let media_type = HeaderValue::from_static("application/x-ns-proxy-autoconfig");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

/// The gateway's refusal, with its status and Proxy-Status (RFC 9209).
fn refused(refusal: &Refusal) -> Response<String> {
    let (head, ()) = refusal.response().into_parts();
    let mut response = told_as(head.status, &refusal.to_string());
    let said = head.headers.iter();
    for (name, value) in said.filter(|(name, _)| *name != header::CONTENT_LENGTH) {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

fn not_allowed(text: &str, allowed: &'static str) -> Response<String> {
    let mut response = told_as(StatusCode::METHOD_NOT_ALLOWED, text);
    let allow = HeaderValue::from_static(allowed);
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

fn told_as(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(format!("{text}\n"));
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "192.168.1.1:3128";

    fn ask(
        proxy: &Proxy,
        method: &str,
        uri: &str,
        authorization: &str,
    ) -> Result<Target, Box<Response<String>>> {
        let request = Request::builder().method(method).uri(uri);
        let request = request.header("proxy-authorization", authorization);
        let offered = Offered {
            proxy,
            socks5: None,
        };
        answer(&request.body(()).unwrap(), offered, HERE.parse().unwrap())
    }

    #[test]
    fn connect_names_a_target_and_all_else_is_told_what_is_wrong() {
        let proxy = Proxy::default();
        for target in ["example.net:443", "192.0.2.7:80", "[2001:db8::1]:443"] {
            assert_eq!(
                ask(&proxy, "CONNECT", target, "").unwrap().to_string(),
                target
            );
        }
        for (method, uri, status, said) in [
            ("GET", "http://example.net/", 405, "CONNECT only"),
            ("POST", "/", 405, "CONNECT only"),
            ("PUT", "/proxy.pac", 405, "read only"),
            ("CONNECT", "example.net", 400, "the port is missing"),
            ("CONNECT", "example.net:0", 400, "port 0"),
            ("CONNECT", "a..b:1", 400, "not a name"),
        ] {
            let refused = ask(&proxy, method, uri, "").unwrap_err();
            assert_eq!(refused.status(), status, "{method} {uri}");
            assert!(refused.body().contains(said), "{}", refused.body());
        }
    }

    #[test]
    fn who_has_to_say_a_name_is_asked_for_it() {
        let proxy = Proxy {
            users: Some(Users::read("ann:secret").unwrap()),
            ..Proxy::default()
        };
        let said = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for wrong in [
            "",
            "Basic",
            "Basic ???",
            "Bearer x",
            &said("ann:x"),
            &said("secret"),
        ] {
            let refused = ask(&proxy, "CONNECT", "a.example:443", wrong).unwrap_err();
            assert_eq!(refused.status(), 407, "{wrong}");
            assert!(refused.headers().contains_key("proxy-authenticate"));
        }
        assert!(ask(&proxy, "CONNECT", "a.example:443", &said("ann:secret")).is_ok());
        // What tells browsers of the proxy is for everybody.
        assert_eq!(
            ask(&proxy, "GET", "/proxy.pac", "").unwrap_err().status(),
            200
        );
    }

    #[test]
    fn the_pac_file_leads_to_what_the_browser_can_reach() {
        for (socks5, other) in [
            (None, "PROXY 192.168.1.1:3128"),
            (Some("127.0.0.1:1080"), "PROXY 192.168.1.1:3128"),
            (Some("0.0.0.0:1080"), "SOCKS5 192.168.1.1:1080"),
            (Some("192.168.1.1:1080"), "SOCKS5 192.168.1.1:1080"),
        ] {
            let socks5 = socks5.map(|address| address.parse().unwrap());
            let script = pac(socks5, HERE.parse().unwrap()).into_body();
            assert!(script.contains("\"PROXY 192.168.1.1:3128\""), "{script}");
            assert!(
                script.contains(&format!("return \"{other}\";\n}}")),
                "{script}"
            );
        }
    }

    #[test]
    fn a_refusal_keeps_its_status_and_reason() {
        let refusal = Refusal {
            kind: bentpipe_tunnel::wire::proxy_status::ErrorKind::ConnectionRefused,
            detail: "192.0.2.7:80".into(),
        };
        let response = refused(&refusal);
        assert_eq!(response.status(), 502);
        let said = response.headers()["proxy-status"].to_str().unwrap();
        assert!(said.contains("error=connection_refused"), "{said}");
    }
}
