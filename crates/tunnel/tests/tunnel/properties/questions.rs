//! Questions of DNS of a drawn conversation: each is answered within ten seconds, with what was asked for, or told to be
//! unanswerable where it is.

use std::time::Duration;

use futures_util::future::join_all;
use hickory_proto::op::ResponseCode;
use proptest::prelude::*;
use tokio::time::{sleep, sleep_until};

use super::{Event, Link, UP_MS};
use crate::support::names::{Names, addresses};
use crate::support::{World, now};

/// A reply comes within that; the runtime's timers have milliseconds.
const PATIENCE: Duration = Duration::from_millis(10_002);
/// On links that are as fast each question is answered that can be, kbit/s.
const FAST: u32 = 3000;
/// Those above are of no server's.
const NAMES: u8 = 48;

/// Questions of one host, one after the other.
#[derive(Debug, Clone)]
pub struct Questions {
    at_ms: u32,
    host: u8,
    names: Vec<u8>,
    every_ms: u32,
}

pub fn drawn() -> impl Strategy<Value = Vec<Questions>> {
    let names = proptest::collection::vec(0u8..64, 1..30);
    let questions =
        (0u32..40_000, 0u8..3, names, 0u32..3000).prop_map(|(at_ms, host, names, every_ms)| {
            Questions {
                at_ms,
                host,
                names,
                every_ms,
            }
        });
    proptest::collection::vec(questions, 0..5)
}

/// Asks all of them; what was wrong.
pub async fn all(
    world: &World,
    link: &Link,
    events: &[(u32, Event)],
    all: &[Questions],
) -> Vec<String> {
    let address = |name: u8| format!("93.184.217.{name}");
    for name in 0..NAMES {
        // Some hold for no time, others for some seconds.
        let ttl = u32::from(name % 3) * 10;
        let server = &world.internet.1;
        server.put(&format!("name-{name}.example."), ttl, &[&address(name)]);
    }
    let (begin, names) = (now(), Names::of(world));
    let is_fast = link.rates.iter().all(|rate| *rate >= FAST);
    let is_undisturbed = link.outage.is_none() && events.is_empty();
    let quiet = Duration::from_millis(link.quiet_ms(events).into());
    let up = Duration::from_millis(UP_MS.into());
    let ask = async |host: u8, name: u8, may_fail: bool| {
        let at = begin.elapsed();
        let (took, reply) = names.ask_from(host, &format!("name-{name}.example.")).await;
        let is_good = addresses(&reply) == [address(name)];
        let code = reply.metadata.response_code;
        let has_failed = code == ResponseCode::ServFail && reply.answers.is_empty();
        let may_fail = may_fail || name >= NAMES;
        let is_right = (is_good && name < NAMES || has_failed && may_fail) && took < PATIENCE;
        (!is_right).then(|| {
            let addresses = addresses(&reply);
            format!("name {name} of host {host} at {at:?} took {took:?}: {code}, {addresses:?}")
        })
    };
    // On slow links a question may wait for a packet of each of many small flows, and again when it is lost.
    let may_fail = |at: Duration| !is_fast || at < quiet && !(is_undisturbed && at > up);
    let asking = all.iter().map(|questions| {
        let ask = &ask;
        let each = (0u32..)
            .zip(&questions.names)
            .map(move |(number, name)| async move {
                let at = questions.at_ms + number * questions.every_ms;
                sleep_until(begin + Duration::from_millis(at.into())).await;
                ask(questions.host, *name, may_fail(begin.elapsed())).await
            });
        join_all(each)
    });
    let asked = join_all(asking).await;
    sleep_until(begin + quiet).await;
    sleep(Duration::from_secs(1)).await;
    // Where a slow link still has much to carry, it takes several.
    let mut last = Vec::new();
    for _ in 0..60 {
        last = join_all((0..3).map(|host| ask(host, 3 * host, false))).await;
        last.retain(Option::is_some);
        if last.is_empty() || is_fast {
            break;
        }
    }
    asked.into_iter().flatten().chain(last).flatten().collect()
}
