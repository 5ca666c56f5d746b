//! DNS over HTTPS (RFC 8484), by HTTP/2, with the certificate of DNS over TLS.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::pin::pin;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bentpipe_tunnel::terminal::dns::{Over, Resolver};
use bentpipe_tunnel::wire::dns::PATH;
use bytes::Bytes;
use hickory_resolver::proto::op::Message;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::tls::{self, Certificate};
use super::{IDLE, MAX_OF_ONE_CONNECTION, MAX_QUESTION};

/// The media type of a message (section 6).
const MESSAGE: &str = "application/dns-message";
/// A request's header section, bytes: a question in its path, and what browsers add.
const LONGEST_HEAD: u32 = 16 * 1024;

/// Why a request is refused.
type Refusal = (StatusCode, &'static str);

/// Answers `clients` and this machine itself, for ever.
pub async fn serve(
    listener: TcpListener,
    clients: Vec<IpNet>,
    certificate: Certificate,
    resolver: Resolver,
) {
    tls::accept_each(
        listener,
        clients,
        certificate,
        &[b"h2"],
        move |stream, host| {
            let resolver = resolver.clone();
            converse(stream, move |request| {
                let resolver = resolver.clone();
                async move { answer(request, host, &resolver).await }
            })
        },
    )
    .await;
}

/// Answers the requests of one connection until it is closed, or nothing is asked for a while; what
/// is being answered then has as long again.
async fn converse<F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(Request<Incoming>) -> F,
) -> io::Result<()>
where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let asked = Notify::new();
    let service = service_fn(|request| {
        asked.notify_one();
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    #[expect(clippy::cast_possible_truncation, reason = "constants of a few bits")]
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MAX_OF_ONE_CONNECTION as u32)
        .max_header_list_size(LONGEST_HEAD)
        .initial_stream_window_size(MAX_QUESTION as u32)
        .initial_connection_window_size((MAX_OF_ONE_CONNECTION * MAX_QUESTION) as u32)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    loop {
        tokio::select! {
            done = connection.as_mut() => return done.map_err(io::Error::other),
            more = tokio::time::timeout(IDLE, asked.notified()) => if more.is_err() {
                break;
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    tokio::time::timeout(IDLE, connection)
        .await?
        .map_err(io::Error::other)
}

/// The response to one request.
async fn answer(
    request: Request<Incoming>,
    host: IpAddr,
    resolver: &Resolver,
) -> Response<Full<Bytes>> {
    let question = match question(request).await {
        Ok(question) => question,
        Err(refusal) => return refused(refusal),
    };
    match resolver.reply(host, &question, Over::Stream).await {
        Some(reply) => message(reply),
        None => refused((StatusCode::BAD_REQUEST, "this is no question of DNS")),
    }
}

/// The question that `request` asks.
async fn question<B>(request: Request<B>) -> Result<Vec<u8>, Refusal>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let (head, body) = request.into_parts();
    // Whole, also where it is refused: some clients take a response to half a request for a failure.
    let body = in_body(body).await?;
    if head.uri.path() != PATH {
        return Err((StatusCode::NOT_FOUND, "questions are asked at /dns-query"));
    }
    match head.method {
        Method::GET => in_query(head.uri.query().unwrap_or_default()),
        Method::POST if is_message(&head.headers) => Ok(body),
        Method::POST => Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "only application/dns-message is understood",
        )),
        _ => Err((
            StatusCode::METHOD_NOT_ALLOWED,
            "questions are asked by GET or POST",
        )),
    }
}

/// The question in a query's `dns`.
fn in_query(query: &str) -> Result<Vec<u8>, Refusal> {
    let text = query
        .split('&')
        .find_map(|field| field.strip_prefix("dns="));
    let question = URL_SAFE_NO_PAD.decode(text.unwrap_or_default());
    match question {
        Ok(question) if question.len() > MAX_QUESTION => {
            Err((StatusCode::URI_TOO_LONG, "the question is too long"))
        }
        Ok(question) if !question.is_empty() => Ok(question),
        _ => Err((
            StatusCode::BAD_REQUEST,
            "?dns= has to be a message in base64url without padding",
        )),
    }
}

/// The bytes of `body`, if they can be those of a question.
async fn in_body<B>(body: B) -> Result<Vec<u8>, Refusal>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let body = Limited::new(body, MAX_QUESTION).collect();
    match tokio::time::timeout(IDLE, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes().into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "the question is too long"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the question is not whole")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the question did not come")),
    }
}

fn is_message(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let essence = media_type.and_then(|it| it.split(';').next());
    essence.is_some_and(|it| it.trim().eq_ignore_ascii_case(MESSAGE))
}

/// A response with the message `reply`, good for as long as all its answers are (section 5.1).
fn message(reply: Vec<u8>) -> Response<Full<Bytes>> {
    let answers = Message::from_vec(&reply).map(|reply| reply.answers);
    let ttl = answers.iter().flatten().map(|record| record.ttl).min();
    let mut response = Response::new(Full::from(reply));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MESSAGE));
    if let Ok(value) = HeaderValue::try_from(format!("max-age={}", ttl.unwrap_or(0))) {
        headers.insert(CACHE_CONTROL, value);
    }
    response
}

/// A response that says why there is no message.
fn refused((status, why): Refusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(why));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hickory_resolver::proto::op::{OpCode, ResponseCode};
    use hickory_resolver::proto::rr::{Name, RData, Record, rdata};
    use hyper::body::Frame;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    use super::*;

    /// What a client says first, and a SETTINGS frame without any.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    async fn ask<B>(method: &str, uri: &str, media_type: &str, body: B) -> Result<Vec<u8>, Refusal>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let request = Request::builder().method(method).uri(uri);
        question(request.header(CONTENT_TYPE, media_type).body(body).unwrap()).await
    }

    #[tokio::test]
    async fn a_question_comes_in_the_query_or_in_the_body() {
        let none = || Full::<Bytes>::default();
        for uri in [
            "/dns-query?dns=_-8",
            "https://a.example/dns-query?x=1&dns=_-8",
        ] {
            assert_eq!(ask("GET", uri, "", none()).await, Ok(vec![0xff, 0xef]));
        }
        let longest = vec![7; MAX_QUESTION];
        let uri = format!("{PATH}?dns={}", URL_SAFE_NO_PAD.encode(&longest));
        assert_eq!(ask("GET", &uri, "", none()).await, Ok(longest.clone()));
        for media_type in [MESSAGE, "Application/DNS-Message; x=1"] {
            let body = Full::<Bytes>::from(longest.clone());
            let asked = ask("POST", PATH, media_type, body).await;
            assert_eq!(asked, Ok(longest.clone()), "{media_type}");
        }
    }

    #[tokio::test]
    async fn what_is_no_question_has_the_status_that_says_why() {
        let long = vec![7; MAX_QUESTION + 1];
        let long_query = format!("{PATH}?dns={}", URL_SAFE_NO_PAD.encode(&long));
        for (method, uri, media_type, body, status) in [
            ("GET", "/", "", &[][..], 404),
            ("POST", "/dns-query/", MESSAGE, b"question", 404),
            ("GET", PATH, "", &[], 400),
            ("GET", "/dns-query?dns=", "", &[], 400),
            ("GET", "/dns-query?dns=_-8=", "", &[], 400),
            ("GET", "/dns-query?dns=/+8", "", &[], 400),
            ("GET", &long_query, "", &[], 414),
            ("POST", PATH, "text/plain", b"question", 415),
            ("POST", PATH, "", b"question", 415),
            ("POST", PATH, MESSAGE, &long, 413),
            ("PUT", PATH, MESSAGE, b"question", 405),
            ("HEAD", PATH, "", &[], 405),
        ] {
            let body = Full::<Bytes>::from(body.to_vec());
            let refusal = ask(method, uri, media_type, body).await.unwrap_err();
            assert_eq!(refusal.0, status, "{method} {uri} {media_type}");
            let allow = refused(refusal).headers().contains_key(ALLOW);
            assert_eq!(allow, status == 405);
        }
    }

    /// A body that never comes.
    struct Never;

    impl Body for Never {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_does_not_come_is_not_waited_for() {
        let began = Instant::now();
        let refusal = ask("POST", PATH, MESSAGE, Never).await.unwrap_err();
        assert_eq!(refusal.0, 408);
        assert_eq!(began.elapsed().as_secs(), IDLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_nothing_is_asked_is_closed() {
        for said in [&[], PREFACE] {
            let (mut client, stream) = tokio::io::duplex(1 << 16);
            client.write_all(said).await.unwrap();
            let began = Instant::now();
            // This client does not take part in closing, so it has all the time there is.
            converse(stream, |_| pending()).await.unwrap_err();
            assert_eq!(began.elapsed().as_secs(), 2 * IDLE.as_secs());
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            let streams = [
                &[0, 3][..],
                &u32::try_from(MAX_OF_ONE_CONNECTION).unwrap().to_be_bytes(),
            ]
            .concat();
            assert!(heard.windows(6).any(|setting| setting == streams));
        }
    }

    #[test]
    fn a_response_is_good_for_as_long_as_its_first_record_to_expire() {
        for (ttls, max_age) in [(&[300, 20][..], "max-age=20"), (&[], "max-age=0")] {
            let mut reply = Message::error_msg(0, OpCode::Query, ResponseCode::NoError);
            for ttl in ttls {
                let data = RData::A(rdata::A::new(192, 0, 2, 7));
                let name = Name::from_ascii("a.example.").unwrap();
                reply.answers.push(Record::from_rdata(name, *ttl, data));
            }
            let response = message(reply.to_vec().unwrap());
            assert_eq!(response.headers()[CACHE_CONTROL], max_age);
            assert_eq!(response.headers()[CONTENT_TYPE], MESSAGE);
        }
    }
}
