//! What comes from outside as text is read or refused, and never worse.

use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::identity::enrolment_line::EnrolmentLine;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::dns::Over;
use bentpipe_tunnel::terminal::dns::answer::Answer;
use bentpipe_tunnel::terminal::dns::question::Question;
use bentpipe_tunnel::wire::connect;
use bentpipe_tunnel::wire::proxy_status::Refusal;
use bentpipe_tunnel::wire::request::Request;
use http::{HeaderValue, Response};
use proptest::prelude::*;

proptest! {
    #[test]
    fn whatever_reads_as_a_target_can_be_asked_for(text in "\\PC{0,80}") {
        if let Ok(target) = text.parse::<Target>() {
            prop_assert_eq!(Request::read(&connect::request(&target, 0)), Ok(Request::Connect(target)));
        }
    }

    #[test]
    fn every_address_can_be_asked_for(address in any::<std::net::SocketAddr>()) {
        prop_assume!(address.port() != 0);
        let target = Target::from(address);
        prop_assert_eq!(Request::read(&connect::request(&target, 0)), Ok(Request::Connect(target)));
    }

    #[test]
    fn plausible_targets_do_not_panic(text in "(\\[?[0-9a-f:.%_-]{0,40}\\]?:?[0-9]{0,6})|([a-zA-Z0-9._-]{0,300}:[0-9]{0,6})") {
        if let Ok(target) = text.parse::<Target>() {
            prop_assert_eq!(target.to_string().parse::<Target>(), Ok(target));
        }
    }

    #[test]
    fn no_request_line_panics(method in "[A-Z]{1,10}", uri in "[ -~]{0,60}", key in "[ -~]{0,60}") {
        if let Ok(mut request) = http::Request::builder().method(method.as_str()).uri(uri).body(()) {
            request.headers_mut().insert("bentpipe-terminal", HeaderValue::from_str(&key).unwrap());
            let _ = Request::read(&request);
        }
    }

    #[test]
    fn no_answer_panics(status in 100u16..1000, said in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(value) = HeaderValue::from_bytes(&said) {
            let mut response = Response::new(());
            *response.status_mut() = status.try_into().unwrap();
            response.headers_mut().insert("proxy-status", value);
            let _ = Refusal::read(&response);
        }
    }

    #[test]
    fn no_message_of_dns_panics(message in prop::collection::vec(any::<u8>(), 0..600)) {
        dns_message(&message);
    }

    #[test]
    fn no_damage_to_a_message_of_dns_panics(message in prop::sample::select(corpus()), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut message = message;
        if !message.is_empty() {
            let at = at.index(message.len());
            message[at] = byte;
        }
        dns_message(&message);
    }

    #[test]
    fn no_line_panics(text in "(bentpipe://)?\\PC{0,150}") {
        let _ = text.parse::<EnrolmentLine>();
    }
}

#[test]
fn the_corpus_of_dns_messages_is_replayed() {
    let corpus = corpus();
    assert!(corpus.len() >= 28, "the corpus is there");
    for message in corpus {
        dns_message(&message);
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/dns_message");
    let files = std::fs::read_dir(path).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// The same as the fuzz target of that name.
fn dns_message(bytes: &[u8]) {
    let mut asked = bytes.to_vec();
    if let Some(flags) = asked.get_mut(2) {
        *flags &= 0x7f;
    }
    let Ok(question) = Question::read(&asked) else {
        return;
    };
    assert!(Question::read(&question.key().question()).is_ok());
    let answer = Answer::read(question.key(), bytes, &Egress::default());
    for answer in [Answer::none()].into_iter().chain(answer) {
        for (over, longest) in [(Over::Udp, 1232), (Over::Stream, 65_535)] {
            let reply = question.reply(&answer, |ttl| ttl, over);
            assert!(!reply.is_empty() && reply.len() <= longest);
        }
    }
}
