//! Any path of a CONNECT-UDP request is refused or names a target that can be asked for again.
#![no_main]

use bentpipe_tunnel::wire::connect_udp;

libfuzzer_sys::fuzz_target!(|path: &str| {
    let Ok(uri) = format!("https://192.0.2.1:4433{path}").parse::<http::Uri>() else {
        return;
    };
    let mut request = http::Request::new(());
    *request.uri_mut() = uri;
    if let Ok(target) = connect_udp::target(&request) {
        let gateway = "192.0.2.1:4433".parse().expect("an address and a port");
        let again = connect_udp::request(&gateway, &target, 0);
        assert_eq!(connect_udp::target(&again), Ok(target));
    }
});
