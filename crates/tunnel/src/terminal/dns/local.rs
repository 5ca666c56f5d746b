//! Names that have no meaning outside this network: answered here, never asked for (RFC 6761,
//! RFC 6303, RFC 6762, RFC 7686, RFC 8375).

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::{LowerName, Name, RData, Record, RecordType};

use super::answer::Answer;
use super::key::Key;

/// What is asked of no name server.
const NOWHERE: &[&str] = &[
    "invalid",
    "local",
    "onion",
    "home.arpa",
    "10.in-addr.arpa",
    "168.192.in-addr.arpa",
    "254.169.in-addr.arpa",
    "127.in-addr.arpa",
    "d.f.ip6.arpa",
    "8.e.f.ip6.arpa",
    "9.e.f.ip6.arpa",
    "a.e.f.ip6.arpa",
    "b.e.f.ip6.arpa",
];
/// For how long such an answer holds, seconds.
const TTL: u32 = 3600;

/// The answer, if it is known without asking.
pub fn answer(key: &Key) -> Option<Answer> {
    let mut message = Message::response(0, OpCode::Query);
    if within(&key.name, "localhost") {
        let data = match key.record_type {
            RecordType::A => Some(RData::A(Ipv4Addr::LOCALHOST.into())),
            RecordType::AAAA => Some(RData::AAAA(Ipv6Addr::LOCALHOST.into())),
            _ => None,
        };
        let name = Name::from(&key.name);
        message
            .answers
            .extend(data.map(|data| Record::from_rdata(name, TTL, data)));
        return Some(Answer::of(message));
    }
    // 172.16.0.0/12 are sixteen zones.
    let private_b = || (16..32).any(|b| within(&key.name, &format!("{b}.172.in-addr.arpa")));
    let nowhere = NOWHERE.iter().any(|zone| within(&key.name, zone)) || private_b();
    nowhere.then(|| {
        message.metadata.response_code = ResponseCode::NXDomain;
        Answer::of(message)
    })
}

fn within(name: &LowerName, zone: &str) -> bool {
    let zone = Name::from_ascii(zone).map(|name| LowerName::new(&name));
    zone.is_ok_and(|zone| zone.zone_of(name))
}
