//! Any bytes as an application's question, and as the gateway's answer to it: refused, or replied to
//! with a message that reads.
#![no_main]

use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::terminal::dns::Over;
use bentpipe_tunnel::terminal::dns::answer::Answer;
use bentpipe_tunnel::terminal::dns::question::Question;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut asked = bytes.to_vec();
    // An answer has its question in it.
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
});
