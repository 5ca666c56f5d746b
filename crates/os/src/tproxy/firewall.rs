//! What the machine's own nftables rules do to connections that transparent ingress takes.
//!
//! The kernel delivers such a connection to this machine: it passes the hook `input`, where
//! another table's verdict to drop is final, and it does not pass `forward`. The rules are
//! read as `nft -j` lists them and followed for a new connection; a match that cannot be
//! decided from what is known of it counts as not met.

use std::fmt;

use serde_json::Value;

/// Jumps that are followed; the kernel allows no more either.
const DEEPEST: usize = 16;

/// What stands in the way, as far as it could be found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// One for each base chain.
    pub obstacles: Vec<Obstacle>,
    /// Why the rules could not be read.
    pub unknown: Option<String>,
}

/// A chain that matters to connections which are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It drops them on their way to the terminal.
    Dropped {
        /// Family, table and name.
        chain: String,
        /// The mark that they carry.
        mark: u32,
    },
    /// It forbids something to forwarded connections, which these are not.
    Bypassed {
        /// Family, table and name.
        chain: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped { chain, mark } => write!(
                out,
                "the firewall's chain `{chain}` drops the connections that the terminal takes; let them in: `nft insert rule {chain} meta mark {mark:#x} accept`, and the same in the file that the firewall is loaded from"
            ),
            Self::Bypassed { chain } => write!(
                out,
                "what the firewall's chain `{chain}` forbids does not hold for connections that the terminal takes, because they are not forwarded; forbid it in a chain with `hook prerouting priority raw` as well, or at the gateway"
            ),
        }
    }
}

impl Firewall {
    pub(super) fn unknown(why: String) -> Self {
        Self {
            obstacles: Vec::new(),
            unknown: Some(why),
        }
    }

    /// Reads what `nft -j list ruleset` has printed; `own` is the terminal's table.
    pub(super) fn read(listing: &str, interfaces: &[String], own: &str, mark: u32) -> Self {
        let listing: Value = match serde_json::from_str(listing) {
            Ok(listing) => listing,
            Err(error) => return Self::unknown(format!("`nft -j list ruleset`: {error}")),
        };
        let empty = Vec::new();
        let objects = listing["nftables"].as_array().unwrap_or(&empty);
        let rules = Rules {
            rules: objects.iter().filter_map(|o| o.get("rule")).collect(),
            interfaces,
            mark,
        };
        let mut obstacles = Vec::new();
        for chain in objects.iter().filter_map(|object| object.get("chain")) {
            if chain["table"] == own {
                continue;
            }
            let name = format!(
                "{} {} {}",
                text(chain, "family"),
                text(chain, "table"),
                text(chain, "name")
            );
            match chain["hook"].as_str() {
                Some("input") => {
                    let verdict = rules.verdict(chain, text(chain, "name"), 0);
                    let dropped = match verdict {
                        Verdict::Accept => false,
                        Verdict::Drop => true,
                        Verdict::Continue => chain["policy"] == "drop",
                    };
                    if dropped {
                        obstacles.push(Obstacle::Dropped { chain: name, mark });
                    }
                }
                Some("forward") => {
                    if chain["policy"] == "drop" || rules.forbids(chain, text(chain, "name"), 0) {
                        obstacles.push(Obstacle::Bypassed { chain: name });
                    }
                }
                _ => {}
            }
        }
        Self {
            obstacles,
            unknown: None,
        }
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
    Continue,
}

struct Rules<'a> {
    rules: Vec<&'a Value>,
    /// Empty: not known.
    interfaces: &'a [String],
    mark: u32,
}

impl<'a> Rules<'a> {
    fn of(&self, chain: &'a Value, name: &str) -> impl Iterator<Item = &'a Vec<Value>> {
        self.rules
            .iter()
            .filter(move |rule| {
                rule["family"] == chain["family"]
                    && rule["table"] == chain["table"]
                    && rule["chain"] == name
            })
            .filter_map(|rule| rule["expr"].as_array())
    }

    /// What the chain `name` of the table of `chain` says to a new connection's first packet.
    fn verdict(&self, chain: &'a Value, name: &str, depth: usize) -> Verdict {
        if depth > DEEPEST {
            return Verdict::Continue;
        }
        for expressions in self.of(chain, name) {
            for expression in expressions {
                let Some((kind, body)) = only(expression) else {
                    break;
                };
                match kind {
                    "match" if self.matches(body) => {}
                    "match" => break,
                    "accept" => return Verdict::Accept,
                    "drop" | "reject" => return Verdict::Drop,
                    "return" => return Verdict::Continue,
                    "jump" | "goto" => {
                        let said = self.verdict(chain, text(body, "target"), depth + 1);
                        if said != Verdict::Continue || kind == "goto" {
                            return said;
                        }
                    }
                    "counter" | "log" | "limit" | "mangle" | "xt" | "comment" => {}
                    // A verdict map and whatever else may decide: not known.
                    _ => break,
                }
            }
        }
        Verdict::Continue
    }

    /// Whether a rule of the chain, or of one that it leads to, drops anything but invalid packets.
    fn forbids(&self, chain: &'a Value, name: &str, depth: usize) -> bool {
        depth <= DEEPEST
            && self.of(chain, name).any(|expressions| {
                let invalid = expressions.iter().any(|e| e["match"]["right"] == "invalid");
                expressions
                    .iter()
                    .filter_map(only)
                    .any(|(kind, body)| match kind {
                        "drop" | "reject" => !invalid,
                        "jump" | "goto" => self.forbids(chain, text(body, "target"), depth + 1),
                        _ => false,
                    })
            })
    }

    fn matches(&self, condition: &Value) -> bool {
        let Some((kind, what)) = only(&condition["left"]) else {
            return false;
        };
        let is = |test: &dyn Fn(&Value) -> bool| {
            let right = &condition["right"];
            let list = right.as_array().or_else(|| right["set"].as_array());
            let met = list.map_or_else(|| test(right), |list| list.iter().any(test));
            met != (condition["op"] == "!=")
        };
        match (kind, text(what, "key")) {
            ("meta", "iifname" | "iif") => is(&|name| match name.as_str() {
                Some(name) if self.interfaces.is_empty() => name != "lo",
                Some(name) => self.interfaces.iter().any(|ours| {
                    name.strip_suffix('*')
                        .map_or(ours == name, |prefix| ours.starts_with(prefix))
                }),
                None => false,
            }),
            ("meta", "l4proto") => is(&|protocol| protocol == "tcp"),
            ("meta", "mark") => is(&|mark| mark == self.mark),
            ("ct", "state") => is(&|state| state == "new"),
            ("ct", "mark") => is(&|mark| mark == self.mark),
            ("socket", "transparent") => is(&|yes| yes == 1),
            _ => false,
        }
    }
}

/// The only member of an object.
fn only(object: &Value) -> Option<(&str, &Value)> {
    let (kind, body) = object.as_object()?.iter().next()?;
    Some((kind, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u32 = 0x6270_1180;

    fn read(hook: &str, policy: &str, rules: &[&str]) -> Vec<Obstacle> {
        let rules: Vec<_> = rules
            .iter()
            .map(|expressions| format!(r#",{{"rule":{{"family":"inet","table":"filter","chain":"c","expr":[{expressions}]}}}}"#))
            .collect();
        let listing = format!(
            r#"{{"nftables":[{{"metainfo":{{}}}},{{"chain":{{"family":"inet","table":"filter","name":"c","type":"filter","hook":"{hook}","prio":0,"policy":"{policy}"}}}}{}]}}"#,
            rules.concat()
        );
        let firewall = Firewall::read(&listing, &["lan0".into()], "bentpipe_4480", MARK);
        assert_eq!(firewall.unknown, None, "{listing}");
        firewall.obstacles
    }

    const ESTABLISHED: &str = r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["established","related"]}},{"accept":null}"#;
    const SSH: &str = r#"{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":22}},{"accept":null}"#;

    #[test]
    fn an_input_policy_that_drops_is_named_with_the_rule_that_helps() {
        let found = read("input", "drop", &[ESTABLISHED, SSH]);
        let told = found[0].to_string();
        assert!(
            told.contains("nft insert rule inet filter c meta mark 0x62701180 accept"),
            "{told}"
        );
    }

    #[test]
    fn an_input_chain_that_lets_them_in_is_none() {
        let by_mark = format!(
            r#"{{"match":{{"op":"==","left":{{"meta":{{"key":"mark"}}}},"right":{MARK}}}}},{{"accept":null}}"#
        );
        let by_interface = r#"{"match":{"op":"==","left":{"meta":{"key":"iifname"}},"right":{"set":["lan0","lan1"]}}},{"accept":null}"#;
        assert_eq!(read("input", "drop", &[ESTABLISHED, &by_mark]), []);
        assert_eq!(read("input", "drop", &[by_interface]), []);
        assert_eq!(read("input", "accept", &[SSH]), []);
    }

    #[test]
    fn rules_for_forwarded_connections_are_told_to_be_bypassed() {
        let smtp = r#"{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":25}},{"drop":null}"#;
        let invalid = r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":"invalid"}},{"drop":null}"#;
        assert_eq!(read("forward", "accept", &[smtp]).len(), 1);
        assert_eq!(read("forward", "accept", &[invalid, ESTABLISHED]), []);
    }
}
