//! Destinations that have refused a connection lately, as nftables knows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;

use super::super::{nft, table};

/// The sets of the terminal's table, by address and port.
pub(crate) const SETS: [&str; 2] = ["refused4", "refused6"];
/// How long a destination is remembered.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(600);
/// How many of each family.
pub(crate) const MOST: usize = 4096;
/// Changes that wait to be made; more are forgotten.
pub(super) const WAITING: usize = 1024;
/// Between two changes of nftables.
const PAUSE: Duration = Duration::from_millis(200);

/// A destination, and whether it has refused, or has now accepted.
pub(super) type Change = (SocketAddr, bool);

/// Keeps the sets of the terminal with `port` as `changes` say, for ever.
pub(super) async fn keep(port: u16, mut changes: mpsc::Receiver<Change>) {
    while let Some((destination, refused)) = changes.recv().await {
        let mut batch = BTreeMap::from([(destination, refused)]);
        while let Ok((destination, refused)) = changes.try_recv() {
            batch.insert(destination, refused);
        }
        if let Err(error) = nft::load(text(&table(port), &batch)).await {
            // More than the sets hold, or the table was swept away a moment ago.
            tracing::debug!("refused destinations: {error}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn text(table: &str, batch: &BTreeMap<SocketAddr, bool>) -> String {
    let mut text = String::new();
    for (destination, refused) in batch {
        let set = SETS[usize::from(destination.is_ipv6())];
        let element = format!("{} . {}", destination.ip(), destination.port());
        // What is there already would keep its age, and what is not there cannot be deleted.
        let changes: &[&str] = match refused {
            true => &["add", "delete", "add"],
            false => &["add", "delete"],
        };
        for change in changes {
            let _ = writeln!(text, "{change} element inet {table} {set} {{ {element} }}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_accepts_is_taken_out_whether_it_was_there_or_not() {
        let batch = BTreeMap::from([
            ("192.0.2.1:22".parse().unwrap(), false),
            ("[2001:db8::1]:80".parse().unwrap(), true),
        ]);
        let text = text("bentpipe_4480", &batch);
        assert!(text.starts_with(
            "add element inet bentpipe_4480 refused4 { 192.0.2.1 . 22 }\ndelete element inet bentpipe_4480 refused4 { 192.0.2.1 . 22 }\nadd element inet bentpipe_4480 refused6 { 2001:db8::1 . 80 }\n"
        ), "{text}");
        assert!(text.ends_with("add element inet bentpipe_4480 refused6 { 2001:db8::1 . 80 }\n"));
    }
}
