//! What is asked: what an answer is kept under.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{LowerName, RecordType};

/// The most that is sent in a datagram: it is not fragmented anywhere (RFC 9715), bytes.
pub const LARGEST: u16 = 1232;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Of what.
    pub name: LowerName,
    /// What of it.
    pub record_type: RecordType,
    /// With signatures (RFC 3225).
    pub dnssec_ok: bool,
    /// Not validated (RFC 4035, section 3.2.2).
    pub checking_disabled: bool,
}

impl Key {
    /// The question as the gateway is asked it: it says nothing of who asks.
    pub fn question(&self) -> Vec<u8> {
        let mut message = Message::new(0, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.metadata.checking_disabled = self.checking_disabled;
        // Asks to be told whether the answer is authentic (RFC 6840, section 5.7).
        message.metadata.authentic_data = true;
        message.add_query(Query::query((&self.name).into(), self.record_type));
        let mut edns = Edns::new();
        edns.set_max_payload(LARGEST).set_dnssec_ok(self.dnssec_ok);
        message.set_edns(edns);
        message
            .to_vec()
            .expect("a name that was read can be written")
    }
}
