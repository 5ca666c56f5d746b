//! What comes from outside as text is read or refused, and never worse.

use bentpipe_tunnel::identity::enrolment_line::EnrolmentLine;
use bentpipe_tunnel::target::Target;
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
    fn no_line_panics(text in "(bentpipe://)?\\PC{0,150}") {
        let _ = text.parse::<EnrolmentLine>();
    }
}
