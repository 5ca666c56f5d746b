//! Context IDs that tell of a datagram's markings without a byte of their own
//! (draft-ietf-masque-connect-udp-ecn-dscp-02).
//!
//! A client says in its request which contexts stand for which ECN field, and a gateway that knows
//! them says its own in the answer; a client that says none gets none. Both ends mark packets with
//! the DSCP 0, whatever the contexts are for: a satellite link joins networks that mean different
//! things by the others (section 5.2). Of DF the draft says nothing, so that has a field of our own.

use std::sync::{Arc, OnceLock};

use bentpipe_quic::varint;
use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use noq_proto::EcnCodepoint;

use super::datagram::{ContentError, LONGEST, UDP_PAYLOAD};
use crate::marking::{Marked, Marking};

/// The field of the draft's section 4.2: lists of a DSCP and the contexts of Not-ECT, ECT(1), ECT(0)
/// and CE with it.
const ECN: HeaderName = HeaderName::from_static("ecn-dscp-context-id");
/// The contexts of the same four for datagrams that must not be cut.
const DONT_FRAGMENT: HeaderName = HeaderName::from_static("bentpipe-df-context-id");

/// By ECN field, those with which a client sends: even numbers are its own (RFC 9298, section 4).
const CLIENT: [u8; 4] = [UDP_PAYLOAD, 2, 4, 6];
const CLIENT_FIELD: HeaderValue = HeaderValue::from_static("(0 0 2 4 6)");
const CLIENT_WHOLE: [u8; 4] = [8, 10, 12, 14];
const CLIENT_WHOLE_FIELD: HeaderValue = HeaderValue::from_static("(8 10 12 14)");
/// And those with which a gateway sends.
const GATEWAY: [u8; 4] = [UDP_PAYLOAD, 1, 3, 5];
const GATEWAY_FIELD: HeaderValue = HeaderValue::from_static("(0 0 1 3 5)");

/// Contexts that one end may name: all values of the byte of DSCP and ECN (section 6.2).
const MOST: usize = 256;

/// Lets the content of a datagram that is sent say that it has met congestion (CE); `false` if its ends do not speak ECN, or
/// have not agreed to tell of it.
pub fn mark_congested(content: &mut [u8]) -> bool {
    let Some(context) = content.first_mut() else {
        return false;
    };
    let mut own = [CLIENT, CLIENT_WHOLE, GATEWAY].into_iter();
    let Some([.., ce]) = own.find(|[_, ecn @ ..]| ecn.contains(context)) else {
        return false;
    };
    *context = ce;
    true
}

/// What the other end's contexts mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    theirs: Arc<[(u64, Marking)]>,
    /// Datagrams that must not be cut are told from others.
    whole: bool,
}

/// The contexts of one flow.
#[derive(Debug)]
pub struct Contexts {
    gateway: bool,
    agreed: OnceLock<Agreed>,
}

impl Contexts {
    /// A terminal's. `earlier` is what was agreed for another flow of the session: the gateway
    /// will not answer otherwise, and what is sent before its answer can be marked.
    pub fn of_terminal(earlier: Option<Agreed>) -> Self {
        Self {
            gateway: false,
            agreed: earlier.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    /// A gateway's, for a request that says what `agreed` is.
    pub fn of_gateway(agreed: Option<Agreed>) -> Self {
        Self {
            gateway: true,
            agreed: agreed.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    /// Names a terminal's contexts in its request.
    pub fn offer(headers: &mut HeaderMap) {
        headers.insert(ECN, CLIENT_FIELD);
        headers.insert(DONT_FRAGMENT, CLIENT_WHOLE_FIELD);
    }

    /// Names a gateway's in its answer, if the client knows what they are.
    pub fn answer(&self, headers: &mut HeaderMap) {
        if let Some(agreed) = self.agreed.get() {
            headers.insert(ECN, GATEWAY_FIELD);
            if agreed.whole {
                headers.insert(DONT_FRAGMENT, CLIENT_WHOLE_FIELD);
            }
        }
    }

    /// Takes a gateway's answer: what is agreed from now on, if anything is.
    pub fn agree(&self, answer: &HeaderMap) -> Option<&Agreed> {
        if let Some(agreed) = Agreed::read(answer, 1) {
            // What an earlier flow has agreed on is the same.
            let _ = self.agreed.set(agreed);
        }
        self.agreed.get()
    }

    /// The context of a datagram that is sent.
    pub fn of(&self, marking: Marking) -> u8 {
        let Some(agreed) = self.agreed.get() else {
            return UDP_PAYLOAD;
        };
        let contexts = match self.gateway {
            true => GATEWAY,
            false if marking.dont_fragment && agreed.whole => CLIENT_WHOLE,
            false => CLIENT,
        };
        contexts[marking.ecn.map_or(0, |ecn| ecn as usize)]
    }

    /// What a context other than 0 stands for. A gateway's are good in both directions.
    fn meaning(&self, context: u64) -> Option<Marking> {
        let agreed = self.agreed.get()?;
        if let Some((_, marking)) = agreed.theirs.iter().find(|(id, _)| *id == context) {
            return Some(*marking);
        }
        let mut own = (0..).zip(GATEWAY).filter(|_| self.gateway);
        let (bits, _) = own.find(|(_, id)| u64::from(*id) == context)?;
        Some(Marking {
            ecn: EcnCodepoint::from_bits(bits),
            dont_fragment: false,
        })
    }

    /// A datagram that came: its marking and its payload.
    pub fn read(&self, mut content: Bytes) -> Result<Marked, ContentError> {
        let (context, length) = varint::read(&content).ok_or(ContentError::Malformed)?;
        let marking = match context {
            0 => Marking::default(),
            _ => self
                .meaning(context)
                .ok_or(ContentError::UnknownContext(context))?,
        };
        content.advance(length);
        match content.len() > LONGEST {
            true => Err(ContentError::Malformed),
            false => Ok((marking, content)),
        }
    }
}

impl Agreed {
    /// What a request says, if it says anything.
    pub fn of_request(headers: &HeaderMap) -> Option<Self> {
        Self::read(headers, 0)
    }

    /// What fields say, whose contexts are numbers with the remainder `parity` when halved; nothing
    /// if they name none, or nonsense: a field that cannot be read is not there (RFC 9651, section 4.2).
    fn read(headers: &HeaderMap, parity: u64) -> Option<Self> {
        let mut theirs = Vec::new();
        for list in lists(headers, &ECN)? {
            let [dscp @ 0..=63, contexts @ ..] = &list[..] else {
                return None;
            };
            let contexts: &[u64; 4] = contexts.try_into().ok()?;
            // Context 0 is that of unmarked datagrams, whatever is said.
            if contexts[0] == 0 && *dscp != 0 {
                return None;
            }
            take(&mut theirs, contexts, false);
        }
        let mut whole = false;
        if let Some(list) = lists(headers, &DONT_FRAGMENT)
            .as_deref()
            .and_then(<[_]>::first)
        {
            let contexts: &[u64; 4] = list[..].try_into().ok()?;
            whole = true;
            // An answer repeats what it has understood.
            if parity == 0 {
                take(&mut theirs, contexts, true);
            }
        }
        let own = |&(id, marking): &(u64, Marking)| match id {
            0 => marking == Marking::default(),
            _ => id % 2 == parity,
        };
        let mut ids: Vec<_> = theirs.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        let sound = theirs.len() <= MOST && ids.len() == theirs.len() && theirs.iter().all(own);
        (sound && !theirs.is_empty()).then(|| Self {
            theirs: theirs.into(),
            whole,
        })
    }
}

/// Adds the contexts of the four values of the ECN field.
fn take(to: &mut Vec<(u64, Marking)>, contexts: &[u64; 4], dont_fragment: bool) {
    for (bits, id) in (0..).zip(contexts) {
        let ecn = EcnCodepoint::from_bits(bits);
        to.push((*id, Marking { ecn, dont_fragment }));
    }
}

/// The lists of numbers that a field has (RFC 9651, section 3.1.1). The draft's examples have commas
/// within a list where that has spaces.
fn lists(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<Vec<u64>>> {
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().ok(),
        false => None,
    };
    let mut lists = Vec::new();
    for field in headers.get_all(name) {
        let mut rest = field.to_str().ok()?.trim();
        while !rest.is_empty() {
            let (inside, after) = rest.strip_prefix('(')?.split_once(')')?;
            let parts = inside.split([' ', ',']).filter(|part| !part.is_empty());
            lists.push(parts.map(number).collect::<Option<_>>()?);
            rest = after.trim_start();
            if !rest.is_empty() {
                rest = rest.strip_prefix(',')?.trim_start();
            }
        }
    }
    (!lists.is_empty()).then_some(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(ecn: &str, whole: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ECN, ecn.parse().unwrap());
        if let Some(whole) = whole {
            headers.insert(DONT_FRAGMENT, whole.parse().unwrap());
        }
        headers
    }

    fn every_marking() -> impl Iterator<Item = Marking> {
        [false, true].into_iter().flat_map(|dont_fragment| {
            (0..4).map(move |bits| Marking {
                ecn: EcnCodepoint::from_bits(bits),
                dont_fragment,
            })
        })
    }

    fn arrives(from: &Contexts, to: &Contexts, marking: Marking) -> Result<Marking, ContentError> {
        let content = [&[from.of(marking)][..], b"payload"].concat();
        let (marking, payload) = to.read(content.into())?;
        assert_eq!(payload, "payload");
        Ok(marking)
    }

    #[test]
    fn what_both_ends_know_is_told_and_nothing_before_they_do() {
        let terminal = Contexts::of_terminal(None);
        let mut request = HeaderMap::new();
        Contexts::offer(&mut request);
        let gateway = Contexts::of_gateway(Agreed::of_request(&request));
        for marking in every_marking() {
            assert_eq!(
                arrives(&terminal, &gateway, marking),
                Ok(Marking::default())
            );
        }
        let mut answer = HeaderMap::new();
        gateway.answer(&mut answer);
        let agreed = terminal.agree(&answer).cloned();
        let another = Contexts::of_terminal(agreed);
        for marking in every_marking() {
            for terminal in [&terminal, &another] {
                assert_eq!(arrives(terminal, &gateway, marking), Ok(marking));
                // Nobody is told of DF in this direction.
                let ecn = Marking {
                    dont_fragment: false,
                    ..marking
                };
                assert_eq!(arrives(&gateway, terminal, marking), Ok(ecn));
            }
        }
    }

    #[test]
    fn what_speaks_ecn_can_be_marked_on_its_way_and_stays_otherwise_as_it_is() {
        let mut request = HeaderMap::new();
        Contexts::offer(&mut request);
        let gateway = Contexts::of_gateway(Agreed::of_request(&request));
        let mut answer = HeaderMap::new();
        gateway.answer(&mut answer);
        let terminal = Contexts::of_terminal(Agreed::read(&answer, 1));
        for marking in every_marking() {
            for (from, to) in [(&terminal, &gateway), (&gateway, &terminal)] {
                let unmarked = arrives(from, to, marking).unwrap();
                let mut content = [from.of(marking), 7];
                let can = mark_congested(&mut content);
                assert_eq!(can, marking.ecn.is_some());
                let ecn = can.then_some(EcnCodepoint::Ce);
                let (marked, _) = to.read(content.to_vec().into()).unwrap();
                assert_eq!(marked, Marking { ecn, ..unmarked });
            }
        }
        assert!(!mark_congested(&mut []));
    }

    #[test]
    fn those_who_know_nothing_of_markings_get_none() {
        let old_gateway = Contexts::of_gateway(None);
        let mut answer = HeaderMap::new();
        old_gateway.answer(&mut answer);
        assert!(answer.is_empty());
        let terminal = Contexts::of_terminal(None);
        assert_eq!(terminal.agree(&answer), None);
        for marking in every_marking() {
            assert_eq!(
                arrives(&terminal, &old_gateway, marking),
                Ok(Marking::default())
            );
            assert_eq!(
                arrives(&old_gateway, &terminal, marking),
                Ok(Marking::default())
            );
        }
        assert_eq!(
            old_gateway.read(Bytes::from_static(&[2, 1])),
            Err(ContentError::UnknownContext(2))
        );
    }

    #[test]
    fn the_fields_of_other_clients_are_read_as_the_draft_writes_them() {
        let draft = "(46,8,10,12,14), (0,0,2,4,6)";
        let spaces = "(46 8 10 12 14),(0 0 2 4 6)";
        for field in [draft, spaces] {
            let contexts = Contexts::of_gateway(Agreed::of_request(&headers(field, None)));
            let ecn = |context| {
                contexts
                    .read(Bytes::from(vec![context]))
                    .map(|(marking, _)| marking.ecn)
            };
            for (context, ecn_field) in [
                (0, None),
                (2, Some(EcnCodepoint::Ect1)),
                (8, None),
                (12, Some(EcnCodepoint::Ect0)),
                (14, Some(EcnCodepoint::Ce)),
                (5, Some(EcnCodepoint::Ce)),
            ] {
                assert_eq!(ecn(context), Ok(ecn_field), "{context}");
            }
            let mut answer = HeaderMap::new();
            contexts.answer(&mut answer);
            assert_eq!(
                answer,
                headers("(0 0 1 3 5)", None),
                "no field that it did not name"
            );
        }
    }

    #[test]
    fn fields_that_make_no_sense_are_not_there() {
        let too_many: Vec<_> = (0..65)
            .map(|n| {
                format!(
                    "(1 {} {} {} {})",
                    8 * n + 2,
                    8 * n + 4,
                    8 * n + 6,
                    8 * n + 8
                )
            })
            .collect();
        for (ecn, whole) in [
            ("", None),
            ("()", None),
            ("(0 0 2 4)", None),
            ("(0 0 2 4 6 8)", None),
            ("0, 2", None),
            ("(0 0 2 4 6", None),
            ("(0 0 -2 4 6)", None),
            ("(0 0 2 2 6)", None),
            ("(64 8 10 12 14)", None),
            ("(0 0 1 3 5)", None),
            ("(0 2 0 4 6)", None),
            ("(46 0 2 4 6)", None),
            ("(0 0 2 4 6.5)", None),
            ("(0 0 2 4 6), (0 8 2 12 14)", None),
            ("(0 0 2 4 6)", Some("(8 10 12)")),
            ("(0 0 2 4 6)", Some("(6 8 10 12)")),
            (&too_many.join(", "), None),
        ] {
            assert_eq!(
                Agreed::of_request(&headers(ecn, whole)),
                None,
                "{ecn} {whole:?}"
            );
        }
        assert_eq!(
            Agreed::read(&headers("(0 0 2 4 6)", None), 1),
            None,
            "a gateway's are odd"
        );
    }
}
