//! A client's question, as it was sent, and the reply to it.

use std::time::Duration;

use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, LowerName, RecordType};

use super::answer::Answer;
use super::key::{Key, LARGEST};

/// A message's header (RFC 1035, section 4.1.1), bytes.
const HEADER: usize = 12;
/// The least that every client takes over UDP (RFC 1035, section 4.2.1), bytes.
const SMALLEST: u16 = 512;
/// Extended DNS errors (RFC 8914, section 5.2).
const EXTENDED_ERROR: u16 = 15;

/// How the reply goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// In a datagram: what does not fit is left out, and the client told to ask over TCP.
    Udp,
    /// In a stream.
    Stream,
}

/// A client's question.
#[derive(Debug, Clone)]
pub struct Question {
    id: u16,
    query: Query,
    key: Key,
    recursion_desired: bool,
    authentic_data: bool,
    /// What the client takes over UDP, if it speaks EDNS (RFC 6891).
    edns: Option<u16>,
}

impl Question {
    /// Reads what a client has sent. The error is the reply to what is no question that can be
    /// answered, if it deserves one.
    pub fn read(message: &[u8]) -> Result<Self, Option<Vec<u8>>> {
        let Some(&[id_0, id_1, flags, ..]) = message.get(..HEADER) else {
            return Err(None);
        };
        // To an answer nobody replies.
        if flags & 0x80 != 0 {
            return Err(None);
        }
        let id = u16::from_be_bytes([id_0, id_1]);
        let op_code = OpCode::from_u8((flags >> 3) & 0xf);
        let refusal = |code| {
            let mut message = Message::error_msg(id, op_code, code);
            message.metadata.recursion_desired = flags & 1 != 0;
            Err(message.to_vec().ok())
        };
        if op_code != OpCode::Query {
            return refusal(ResponseCode::NotImp);
        }
        let Ok(message) = Message::from_vec(message) else {
            return refusal(ResponseCode::FormErr);
        };
        let [query] = &message.queries[..] else {
            return refusal(ResponseCode::FormErr);
        };
        let edns = message.edns.as_ref();
        if edns.is_some_and(|edns| edns.version() > 0) {
            return refusal(ResponseCode::BADVERS);
        }
        if query.query_class() != DNSClass::IN {
            return refusal(ResponseCode::Refused);
        }
        if matches!(query.query_type(), RecordType::AXFR | RecordType::IXFR) {
            return refusal(ResponseCode::Refused);
        }
        let key = Key {
            name: LowerName::new(query.name()),
            record_type: query.query_type(),
            dnssec_ok: edns.is_some_and(|edns| edns.flags().dnssec_ok),
            checking_disabled: message.metadata.checking_disabled,
        };
        Ok(Self {
            id,
            query: query.clone(),
            key,
            recursion_desired: message.metadata.recursion_desired,
            authentic_data: message.metadata.authentic_data,
            edns: edns.map(Edns::max_payload),
        })
    }

    /// What is asked.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The reply with `answer`, `ttl` being what is left of each record's time to live.
    pub fn reply(
        &self,
        answer: &Answer,
        ttl: impl Fn(Duration) -> Duration,
        over: Over,
    ) -> Vec<u8> {
        let found = answer.message();
        let mut reply = Message::response(self.id, OpCode::Query);
        let head = &mut reply.metadata;
        head.response_code = found.metadata.response_code;
        head.recursion_desired = self.recursion_desired;
        head.recursion_available = true;
        head.checking_disabled = self.key.checking_disabled;
        let asks = self.authentic_data || self.key.dnssec_ok;
        head.authentic_data = asks && found.metadata.authentic_data;
        reply.add_query(self.query.clone());
        reply.answers.clone_from(&found.answers);
        reply.authorities.clone_from(&found.authorities);
        reply.additionals.clone_from(&found.additionals);
        for records in [
            &mut reply.answers,
            &mut reply.authorities,
            &mut reply.additionals,
        ] {
            for record in records {
                let left = ttl(Duration::from_secs(record.ttl.into())).as_secs();
                record.ttl = u32::try_from(left).unwrap_or(u32::MAX);
            }
        }
        if self.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(LARGEST)
                .set_dnssec_ok(self.key.dnssec_ok);
            if let Some((code, text)) = answer.error() {
                let mut error = code.to_be_bytes().to_vec();
                error.extend_from_slice(text.as_bytes());
                edns.options_mut()
                    .insert(EdnsOption::Unknown(EXTENDED_ERROR, error));
            }
            reply.set_edns(edns);
        }
        let written = reply.to_vec();
        let limit = match over {
            Over::Stream => usize::from(u16::MAX),
            Over::Udp => self
                .edns
                .unwrap_or(SMALLEST)
                .clamp(SMALLEST, LARGEST)
                .into(),
        };
        match written {
            Ok(written) if written.len() <= limit => written,
            Ok(_) => self.written(reply.truncate()),
            Err(_) => {
                let mut failed = Message::error_msg(self.id, OpCode::Query, ResponseCode::ServFail);
                failed.add_query(self.query.clone());
                self.written(failed)
            }
        }
    }

    fn written(&self, message: Message) -> Vec<u8> {
        // A header and a question that was read can be written.
        message.to_vec().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::MessageType;

    use super::*;

    fn ask(name: &str, edns: Option<u16>) -> Message {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(name.parse().unwrap(), RecordType::A));
        if let Some(payload) = edns {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            message.set_edns(edns);
        }
        message
    }

    fn refused(message: &[u8]) -> Option<ResponseCode> {
        let reply = Question::read(message).unwrap_err()?;
        Some(Message::from_vec(&reply).unwrap().metadata.response_code)
    }

    #[test]
    fn the_same_question_in_other_letters_has_the_same_key() {
        let keys = ["WWW.Example.com.", "www.example.COM."].map(|name| {
            let question = Question::read(&ask(name, None).to_vec().unwrap()).unwrap();
            question.key().clone()
        });
        assert_eq!(keys[0], keys[1]);
        // What the gateway is asked reads as that question again.
        let again = Question::read(&keys[0].question()).unwrap();
        assert_eq!(*again.key(), keys[0]);
    }

    #[test]
    fn what_is_no_question_is_told_so_or_not_answered() {
        assert_eq!(refused(b"short"), None);
        let mut answer = ask("a.example.", None);
        answer.metadata.message_type = MessageType::Response;
        assert_eq!(refused(&answer.to_vec().unwrap()), None);
        let mut update = ask("a.example.", None);
        update.metadata.op_code = OpCode::Update;
        let update = update.to_vec().unwrap();
        assert_eq!(refused(&update), Some(ResponseCode::NotImp));
        let mut two = ask("a.example.", None);
        two.add_query(Query::query("b.example.".parse().unwrap(), RecordType::A));
        assert_eq!(refused(&two.to_vec().unwrap()), Some(ResponseCode::FormErr));
        let mut chaos = ask("version.bind.", None);
        chaos.queries[0].set_query_class(DNSClass::CH);
        let chaos = chaos.to_vec().unwrap();
        assert_eq!(refused(&chaos), Some(ResponseCode::Refused));
        // A name of more than 255 bytes, and one that points at itself.
        let mut long = ask(".", None).to_vec().unwrap();
        long.truncate(HEADER);
        let mut circle = long.clone();
        for _ in 0..5 {
            long.push(63);
            long.extend([b'a'; 63]);
        }
        long.extend([0, 0, 1, 0, 1]);
        circle.extend([0xc0, 12, 0, 1, 0, 1]);
        assert_eq!(refused(&long), Some(ResponseCode::FormErr));
        assert_eq!(refused(&circle), Some(ResponseCode::FormErr));
    }

    #[test]
    fn a_reply_too_long_for_a_datagram_says_so() {
        let mut found = ask("a.example.", None).into_response();
        for host in 0..100 {
            let address = std::net::Ipv4Addr::new(192, 0, 2, host).into();
            let data = hickory_proto::rr::RData::A(address);
            let name = "a.example.".parse().unwrap();
            found.add_answer(hickory_proto::rr::Record::from_rdata(name, 60, data));
        }
        let answer = Answer::of(found);
        for (edns, over, whole) in [
            (None, Over::Udp, false),
            (Some(1232), Over::Udp, false),
            (Some(65_535), Over::Udp, false),
            (None, Over::Stream, true),
        ] {
            let question = Question::read(&ask("a.example.", edns).to_vec().unwrap()).unwrap();
            let reply = question.reply(&answer, |ttl| ttl, over);
            let reply = Message::from_vec(&reply).unwrap();
            assert_eq!(reply.answers.len() == 100, whole, "{edns:?}");
            assert_eq!(reply.metadata.truncation, !whole, "{edns:?}");
            assert_eq!(reply.metadata.id, 7);
            assert_eq!(reply.edns.is_some(), edns.is_some());
        }
    }
}
