//! What comes from outside as text is read or refused, and never worse.

use bentpipe_tunnel::flow::packet::{self, Header, Why};
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::identity::enrolment_line::EnrolmentLine;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::dns::Over;
use bentpipe_tunnel::terminal::dns::answer::Answer;
use bentpipe_tunnel::terminal::dns::question::Question;
use bentpipe_tunnel::wire::capsule::{self, Reader};
use bentpipe_tunnel::wire::connect_ip::{
    self, ADDRESS_ASSIGN, ADDRESS_REQUEST, ROUTE_ADVERTISEMENT,
};
use bentpipe_tunnel::wire::contexts::{Agreed, Contexts};
use bentpipe_tunnel::wire::proxy_status::Refusal;
use bentpipe_tunnel::wire::request::Request;
use bentpipe_tunnel::wire::{connect, connect_udp, datagram, path_mtu};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
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
    fn no_damage_to_a_message_of_dns_panics(message in prop::sample::select(corpus("dns_message")), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
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

    #[test]
    fn capsules_read_back_however_the_stream_is_cut(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
        unknown in (1u8..63, prop::collection::vec(any::<u8>(), 0..63)),
        cut in 1usize..400,
    ) {
        let mut stream = Vec::new();
        for content in &contents {
            stream.extend(capsule::datagram(content));
            let length = u8::try_from(unknown.1.len()).unwrap();
            stream.extend([unknown.0, length]);
            stream.extend(&unknown.1);
        }
        let mut reader = Reader::default();
        let mut read = Vec::new();
        for piece in stream.chunks(cut) {
            reader.take(piece);
            while let Some(content) = reader.next_datagram().unwrap() {
                read.push(content.to_vec());
            }
        }
        prop_assert_eq!(reader.end(), Ok(()));
        prop_assert_eq!(read, contents);
    }

    #[test]
    fn no_capsule_panics_or_holds_more_than_one(stream in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..50) {
        read_capsules(&stream, cut);
    }

    #[test]
    fn no_damage_to_a_capsule_of_connect_ip_panics(stream in prop::sample::select(corpus("connect_ip")), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in 1usize..50) {
        let mut stream = stream;
        let at = at.index(stream.len());
        stream[at] = byte;
        read_ip_capsules(&stream, cut);
    }

    #[test]
    fn no_damage_to_a_packet_panics(packet in prop::sample::select(corpus("ip_packet")), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut packet = packet;
        if !packet.is_empty() {
            let at = at.index(packet.len());
            packet[at] = byte;
        }
        read_packet(&packet);
    }

    #[test]
    fn no_field_of_contexts_panics(ecn in "[0-9(), .;a-]{0,60}", whole in "[0-9(), .;a-]{0,20}", content in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut headers = HeaderMap::new();
        headers.insert("ecn-dscp-context-id", ecn.parse().unwrap());
        headers.insert("bentpipe-df-context-id", whole.parse().unwrap());
        let contexts = Contexts::of_gateway(Agreed::of_request(&headers));
        let _ = contexts.read(content.clone().into());
        let _ = path_mtu::read(&content);
    }

    #[test]
    fn no_path_of_connect_udp_panics(host in "[ -~]{0,40}", port in "[ -~]{0,8}", end in "/?") {
        read_path(&format!("/.well-known/masque/udp/{host}/{port}{end}"));
    }
}

/// Reads what may be capsules.
fn read_capsules(stream: &[u8], cut: usize) {
    let mut reader = Reader::default();
    for piece in stream.chunks(cut) {
        reader.take(piece);
        loop {
            match reader.next_datagram() {
                Ok(Some(content)) => {
                    if let Ok(payload) = datagram::udp_payload(content) {
                        assert!(payload.len() <= datagram::LONGEST);
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = reader.end();
}

/// Reads what may be capsules of a CONNECT-IP request.
fn read_ip_capsules(stream: &[u8], cut: usize) {
    let mut reader = Reader::taking(&[ADDRESS_ASSIGN, ADDRESS_REQUEST, ROUTE_ADVERTISEMENT]);
    for piece in stream.chunks(cut) {
        reader.take(piece);
        while let Ok(Some((_, content))) = reader.next_capsule() {
            let _ = connect_ip::read_addresses(&content);
        }
    }
    let _ = reader.end();
}

/// Reads what may be an IP packet; an error about it is a packet, about which there is none.
fn read_packet(packet: &[u8]) {
    if let Some(header) = Header::read(packet)
        && let Some(error) = packet::error(&header, packet, header.destination, Why::Prohibited)
    {
        let about = Header::read(&error).unwrap();
        assert_eq!(about.destination, header.source);
        assert_eq!(
            packet::error(&about, &error, header.source, Why::Unreachable),
            None
        );
    }
}

/// Reads what may be the path of a CONNECT-UDP request.
fn read_path(path: &str) {
    let Ok(uri) = format!("https://192.0.2.1:4433{path}").parse::<http::Uri>() else {
        return;
    };
    let mut request = http::Request::new(());
    *request.uri_mut() = uri;
    if let Ok(target) = connect_udp::target(&request) {
        let gateway = "192.0.2.1:4433".parse().unwrap();
        let again = connect_udp::request(&gateway, &target, 0);
        assert_eq!(connect_udp::target(&again), Ok(target));
    }
}

#[test]
fn the_paths_of_rfc_9298_are_read_and_others_are_not() {
    let target = |path: &str| {
        let mut request = http::Request::new(());
        *request.uri_mut() = format!("https://gateway.example{path}").parse().unwrap();
        connect_udp::target(&request).map(|target| target.to_string())
    };
    for (path, right) in [
        ("/.well-known/masque/udp/192.0.2.6/443/", "192.0.2.6:443"),
        (
            "/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/",
            "[2001:db8::42]:443",
        ),
        (
            "/.well-known/masque/udp/target.example.com/53",
            "target.example.com:53",
        ),
    ] {
        assert_eq!(target(path).as_deref(), Ok(right));
    }
    for wrong in [
        "/",
        "/.well-known/masque/udp/",
        "/.well-known/masque/udp/192.0.2.6/0/",
        "/.well-known/masque/udp/192.0.2.6/65536/",
        "/.well-known/masque/udp/192.0.2.6/+443/",
        "/.well-known/masque/udp/%00/443/",
        "/.well-known/masque/udp/a%2Fb/443/",
        "/.well-known/masque/udp/%zz/443/",
        "/.well-known/masque/udp//443/",
        "/.well-known/masque/tcp/192.0.2.6/443/",
    ] {
        assert!(target(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn contents_are_read_as_their_context_says() {
    let read = |content: &'static [u8]| datagram::udp_payload(Bytes::from_static(content));
    assert_eq!(read(b"\0payload"), Ok(Bytes::from_static(b"payload")));
    assert_eq!(read(b"\0"), Ok(Bytes::new()));
    assert_eq!(
        read(b"\x02x"),
        Err(datagram::ContentError::UnknownContext(2))
    );
    assert_eq!(read(b""), Err(datagram::ContentError::Malformed));
    assert_eq!(read(b"\x40"), Err(datagram::ContentError::Malformed));
}

/// What the fuzzer has kept, of `target`.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&directory).unwrap();
    let corpus: Vec<_> = files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(corpus.len() >= 6, "{directory}");
    corpus
}

#[test]
fn the_corpora_are_replayed() {
    for stream in corpus("capsule") {
        for cut in [1, 3, 1000] {
            read_capsules(&stream, cut);
        }
    }
    for stream in corpus("connect_ip") {
        for cut in [1, 3, 1000] {
            read_ip_capsules(&stream, cut);
        }
    }
    for packet in corpus("ip_packet") {
        read_packet(&packet);
    }
    for path in corpus("connect_udp") {
        read_path(&String::from_utf8_lossy(&path));
    }
}

#[test]
fn the_corpus_of_dns_messages_is_replayed() {
    let corpus = corpus("dns_message");
    assert!(corpus.len() >= 28, "the corpus is there");
    for message in corpus {
        dns_message(&message);
    }
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
