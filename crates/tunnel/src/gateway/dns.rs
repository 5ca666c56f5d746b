//! Questions of DNS that terminals ask, answered by the name servers of the gateway's machine.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h3::error::{Code, StreamError};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsCode;
use tokio::sync::Semaphore;

use crate::session::BidiStream;
use crate::sockets::Resolve;
use crate::wire::dns::{self, MAX_MESSAGE, MAX_QUESTION, Question};
use crate::wire::proxy_status::{ErrorKind, Refusal};

/// A question has to be whole by then.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The name servers have this long, whatever they do.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

type RequestStream = h3::server::RequestStream<BidiStream, Bytes>;

/// Answers `question`, the request on `stream`. The error is what to answer instead.
///
/// `places` bounds what whoever asks may have under way.
pub async fn answer<R: Resolve>(
    resolver: &R,
    places: &Semaphore,
    question: Question,
    stream: &mut RequestStream,
) -> Result<(), Refusal> {
    let question = match question {
        Question::Path(message) => message,
        Question::Body => {
            let read = tokio::time::timeout(BODY_TIMEOUT, read(stream));
            read.await
                .map_err(|_| bad("the question was not complete in time"))??
        }
    };
    let question = understood(&question)?;
    let Ok(_place) = places.try_acquire() else {
        return Err(Refusal {
            kind: ErrorKind::ConnectionLimitReached,
            detail: "too many questions of this session are under way".into(),
        });
    };
    let failed = || {
        let mut message = Message::response(question.metadata.id, OpCode::Query);
        message.metadata.response_code = ResponseCode::ServFail;
        message.add_queries(question.queries.iter().cloned());
        message
    };
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, resolver.query(question.clone()));
    let mut answer = match asked.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::debug!("a question was not answered: {error}");
            failed()
        }
        Err(_) => failed(),
    };
    answer.metadata.id = question.metadata.id;
    let fresh = answer.answers.iter().map(|record| record.ttl).min();
    let message = match answer.to_vec() {
        Ok(message) if message.len() <= MAX_MESSAGE => message,
        _ => failed().to_vec().map_err(|error| Refusal {
            kind: ErrorKind::ProxyInternalError,
            detail: error.to_string(),
        })?,
    };
    // An error means that nobody is there to hear it.
    let _ = send(stream, message, fresh.unwrap_or(0)).await;
    Ok(())
}

/// The question, if it is one, without the asker's network (ECS, RFC 7871): answers are for all.
fn understood(question: &[u8]) -> Result<Message, Refusal> {
    let mut question =
        Message::from_vec(question).map_err(|error| bad(&format!("not a DNS message: {error}")))?;
    let head = question.metadata;
    if head.message_type != MessageType::Query || head.op_code != OpCode::Query {
        return Err(bad("the message is not a query"));
    }
    if question.queries.len() != 1 {
        return Err(bad("the message has not one question"));
    }
    if let Some(edns) = &mut question.edns {
        edns.options_mut().remove(EdnsCode::Subnet);
    }
    Ok(question)
}

async fn read(stream: &mut RequestStream) -> Result<Vec<u8>, Refusal> {
    let mut body = BytesMut::new();
    loop {
        let data = stream.recv_data().await;
        let data = data.map_err(|error| bad(&format!("the question broke off: {error}")))?;
        let Some(mut data) = data else {
            return Ok(body.into());
        };
        if body.len() + data.remaining() > MAX_QUESTION {
            return Err(bad("the question is too long"));
        }
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
}

async fn send(stream: &mut RequestStream, message: Vec<u8>, fresh: u32) -> Result<(), StreamError> {
    stream
        .send_response(dns::response(message.len(), fresh))
        .await?;
    stream.send_data(message.into()).await?;
    stream.finish().await?;
    // Of a question in the path nothing more is read.
    stream.stop_sending(Code::H3_NO_ERROR);
    Ok(())
}

fn bad(detail: &str) -> Refusal {
    Refusal {
        kind: ErrorKind::HttpRequestError,
        detail: detail.into(),
    }
}
