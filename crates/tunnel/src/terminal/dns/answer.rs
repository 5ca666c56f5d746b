//! An answer as it is kept: checked, and with the time for which it holds.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::svcb::{SVCB, SvcParamValue};
use hickory_proto::rr::{LowerName, RData, Record};

use super::key::Key;
use crate::gateway::egress::Egress;

/// No answer holds for longer (RFC 8767, section 4, suggests days at most).
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// That there is nothing holds no longer (RFC 2308, section 5).
const LONGEST_NEGATIVE: Duration = Duration::from_secs(60 * 60);
/// How long a failure of the name servers holds (RFC 9520, section 3.2).
const FAILURE: Duration = Duration::from_secs(5);

/// Extended DNS errors (RFC 8914) that are told.
pub type ExtendedError = (u16, &'static str);
const BLOCKED: ExtendedError = (15, "a private address, not in dns.allow_private");
const NO_ANSWER: ExtendedError = (23, "no answer through the tunnel");
const TOO_MANY: ExtendedError = (23, "too many questions are under way");

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    message: Message,
    lifetime: Duration,
    /// What it takes in memory, about, bytes.
    size: usize,
    error: Option<ExtendedError>,
}

impl Answer {
    /// Reads the answer to `key`; private addresses other than those that `private` allows make
    /// it one that refuses. The error says why it is no answer to that question.
    pub fn read(key: &Key, message: &[u8], private: &Egress) -> Result<Self, String> {
        let length = message.len();
        let message = Message::from_vec(message).map_err(|error| error.to_string())?;
        if message.metadata.message_type != MessageType::Response {
            return Err("not an answer".into());
        }
        let answers = |query: &hickory_proto::op::Query| {
            LowerName::new(query.name()) == key.name && query.query_type() == key.record_type
        };
        if !message.queries.iter().all(answers) {
            return Err("the answer to another question".into());
        }
        if message.metadata.truncation {
            return Err("a truncated answer".into());
        }
        let denied = addresses(&message).find(|address| private.check(*address, &[]).is_err());
        if let Some(address) = denied {
            tracing::debug!(name = %key.name, %address, "answer refused: a private address");
            return Ok(Self::error_of(ResponseCode::Refused, BLOCKED));
        }
        let mut answer = Self::of(message);
        answer.size += 2 * length;
        Ok(answer)
    }

    /// The answer in `message`.
    pub fn of(message: Message) -> Self {
        let records = message.all_sections().count();
        Self {
            lifetime: lifetime(&message),
            size: size_of::<Self>() + records * size_of::<Record>(),
            message,
            error: None,
        }
    }

    /// That nothing has answered.
    pub fn none() -> Self {
        Self {
            lifetime: Duration::ZERO,
            ..Self::error_of(ResponseCode::ServFail, NO_ANSWER)
        }
    }

    /// That too much is asked.
    pub fn too_many() -> Self {
        Self {
            lifetime: Duration::ZERO,
            ..Self::error_of(ResponseCode::ServFail, TOO_MANY)
        }
    }

    fn error_of(code: ResponseCode, error: ExtendedError) -> Self {
        let mut message = Message::response(0, OpCode::Query);
        message.metadata.response_code = code;
        Self {
            error: Some(error),
            lifetime: FAILURE,
            ..Self::of(message)
        }
    }

    /// What it says.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Why it says nothing, for programs and people.
    pub fn error(&self) -> Option<ExtendedError> {
        self.error
    }

    /// How long it holds, from when it was given; zero: for this once.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// What it takes in memory, about, bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether it is one at all, be it that there is nothing.
    pub fn is_good(&self) -> bool {
        let code = self.message.metadata.response_code;
        matches!(code, ResponseCode::NoError | ResponseCode::NXDomain)
    }

    /// The addresses that it names.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.message.answers.iter().filter_map(address)
    }
}

fn address(record: &Record) -> Option<IpAddr> {
    match &record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    }
}

/// All addresses of a message, hints for HTTPS (RFC 9460, section 7.3) among them.
fn addresses(message: &Message) -> impl Iterator<Item = IpAddr> {
    message.all_sections().flat_map(|record| {
        let service: Option<&SVCB> = match &record.data {
            RData::SVCB(service) => Some(service),
            RData::HTTPS(service) => Some(service),
            _ => None,
        };
        let parameters = service.into_iter().flat_map(|service| &service.svc_params);
        let hints = parameters.flat_map(|(_, value)| -> Vec<IpAddr> {
            match value {
                SvcParamValue::Ipv4Hint(hint) => hint.0.iter().map(|a| a.0.into()).collect(),
                SvcParamValue::Ipv6Hint(hint) => hint.0.iter().map(|a| a.0.into()).collect(),
                _ => Vec::new(),
            }
        });
        address(record).into_iter().chain(hints)
    })
}

/// How long a message holds: as long as the first of its records to expire, or, where there is
/// nothing, as long as the zone says that of it (RFC 2308, section 5).
fn lifetime(message: &Message) -> Duration {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => {}
        _ => return FAILURE,
    }
    let shortest = message.answers.iter().map(|record| record.ttl).min();
    let zone = message
        .authorities
        .iter()
        .find_map(|record| match &record.data {
            RData::SOA(zone) => Some(record.ttl.min(zone.minimum)),
            _ => None,
        });
    match (shortest, zone) {
        // An alias of a name that there is not.
        (Some(shortest), Some(zone)) => seconds(shortest.min(zone)).min(LONGEST_NEGATIVE),
        (Some(shortest), None) => seconds(shortest).min(LONGEST),
        (None, Some(zone)) => seconds(zone).min(LONGEST_NEGATIVE),
        (None, None) => Duration::ZERO,
    }
}
