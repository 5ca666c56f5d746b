//! Changes of a running link as people write them, KEY=VALUE, and their translation.

use bentpipe_emulator::{LinkUpdate, NewAddress};
use bentpipe_link::{Change, Directions, LinkChange, Scenario, ScenarioError};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// What the names of satellite hops begin with; the other hop is the ground.
const SATELLITE: &str = "satellite";

/// What somebody wants changed, as it was written. The emulator's side translates it, once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// Of which link; of every satellite hop when not given.
    pub link: Option<String>,
    /// Of which directions.
    pub directions: Directions,
    /// KEY=VALUE, each.
    pub changes: Vec<String>,
    /// The scenario that `switch=` names, resolved, as TOML.
    pub switch: Option<String>,
}

/// What the words of a request amount to.
#[derive(Debug, Default)]
struct Words {
    /// Lines of TOML for [`Change::parse`].
    change: String,
    address: Option<NewAddress>,
    switch: bool,
}

impl ChangeRequest {
    /// The name of the scenario that is to take over, if one is.
    pub fn switch_to(&self) -> Option<&str> {
        let mut words = self.changes.iter().filter_map(|word| word.split_once('='));
        words.find_map(|(key, value)| (key.trim() == "switch").then_some(value.trim()))
    }

    /// Translates and checks all of it, for links of those names.
    ///
    /// # Errors
    /// What is wrong, with the word that it is wrong in; nothing is then to be changed.
    pub fn updates(&self, names: &[String]) -> Result<Vec<LinkUpdate>, String> {
        let words = parse(&self.changes)?;
        let change = Change::parse(&words.change).map_err(|error| error.to_string())?;
        let mut change = LinkChange::of(self.directions, &change);
        if words.switch {
            let text = self
                .switch
                .as_deref()
                .ok_or("switch: the scenario is missing")?;
            let scenario = Scenario::parse(text).map_err(|error| format!("switch: {error}"))?;
            change.forward.link = Some(Box::new(scenario.forward));
            change.r#return.link = Some(Box::new(scenario.r#return));
        }
        let links: Vec<usize> = (0..names.len())
            .filter(|number| match &self.link {
                Some(link) => names[*number] == *link,
                None => names[*number].starts_with(SATELLITE),
            })
            .collect();
        if links.is_empty() {
            let wanted = self.link.as_deref().unwrap_or(SATELLITE);
            return Err(format!(
                "there is no link {wanted:?}; this emulator has {}",
                names.join(", ")
            ));
        }
        if self.directions != Directions::Both && (words.switch || words.address.is_some()) {
            return Err(
                "switch and new_address are of both directions: leave --direction out".to_owned(),
            );
        }
        if links.len() > 1 && matches!(words.address, Some(NewAddress::These(_))) {
            return Err(
                "new_address with an address is for one link: name it with --link".to_owned(),
            );
        }
        Ok(links
            .into_iter()
            .map(|link| LinkUpdate {
                link,
                change: change.clone(),
                address: words.address.clone(),
                what: self.changes.join(", "),
            })
            .collect())
    }
}

/// Reads words: each as an element of a scenario's `change`, or a switch, or a new address.
fn parse(words: &[String]) -> Result<Words, String> {
    let mut parsed = Words::default();
    let mut seen: Vec<&str> = Vec::new();
    for word in words {
        let wrong = |why: &str| format!("{word}: {why}");
        let Some((key, value)) = word.split_once('=') else {
            return Err(wrong("not KEY=VALUE, like rate=\"5 Mbit/s\""));
        };
        let (key, value) = (key.trim(), value.trim());
        if seen.contains(&key) {
            return Err(wrong("given twice"));
        }
        seen.push(key);
        match key {
            "switch" => parsed.switch = true,
            "new_address" => {
                parsed.address = Some(new_address(value).map_err(|why| wrong(&why))?);
            }
            _ => {
                let line = format!("{key} = {}\n", toml_value(value));
                Change::parse(&line).map_err(|error| {
                    wrong(&match error {
                        ScenarioError::Syntax(error) => error.message().to_owned(),
                        ScenarioError::Value { why, .. } => why,
                    })
                })?;
                parsed.change += &line;
            }
        }
    }
    Ok(parsed)
}

fn new_address(value: &str) -> Result<NewAddress, String> {
    if value == "true" {
        return Ok(NewAddress::Next);
    }
    value
        .split(',')
        .map(|part| {
            let address: IpNet = part
                .trim()
                .parse()
                .map_err(|_| format!("{part:?} is neither true nor an address like 10.0.0.3/24"))?;
            let ip = address.addr();
            if ip.is_multicast() || ip.is_unspecified() || ip.is_loopback() {
                return Err(format!(
                    "{ip} is a multicast, loopback or unspecified address; no device can have it"
                ));
            }
            Ok(address)
        })
        .collect::<Result<_, _>>()
        .map(NewAddress::These)
}

/// A value as TOML: a table, a truth or something quoted as it is, all else as text.
fn toml_value(value: &str) -> String {
    if matches!(value, "true" | "false") || value.starts_with(['{', '"', '\'']) {
        value.to_owned()
    } else {
        toml::Value::String(value.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use bentpipe_link::LinkOutage;
    use bentpipe_units::Span;

    use super::*;

    fn request(words: &[&str]) -> ChangeRequest {
        ChangeRequest {
            changes: words.iter().map(|word| (*word).to_owned()).collect(),
            ..ChangeRequest::default()
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn words_become_one_change() {
        let request = request(&[
            "rate=10 Mbit/s",
            "delay = 100 ms",
            "loss={ periodic = { every = 10, lose = 2 } }",
            "outage=2 s",
        ]);
        let updates = request.updates(&names(&["satellite", "ground"])).unwrap();
        assert_eq!(updates.len(), 1, "the ground is changed only by name");
        let change = &updates[0].change.forward;
        let span = Span::from_millis(2000);
        assert_eq!(change.outage, Some(LinkOutage::For(span)));
        assert_eq!(change.rate.unwrap().to_string(), "10 Mbit/s");
        assert_eq!(change.delay.unwrap().to_string(), "100 ms");
        assert!(change.loss.is_some());
        assert_eq!(updates[0].change.r#return, *change);
    }

    #[test]
    fn what_is_wrong_is_named_with_the_reason() {
        let cases: [(&[&str], &[&str]); 9] = [
            (&["rate"], &["rate: not KEY=VALUE"]),
            (&["rate=10 Mbit"], &["rate=10 Mbit: "]),
            (&["rate=0 bit/s"], &["rate=0 bit/s: ", "sends nothing"]),
            (&["delay=-1 ms"], &["delay=-1 ms: "]),
            (&["loss=200 %"], &["loss=200 %: "]),
            (&["speed=1"], &["speed=1: unknown field `speed`", "`rate`"]),
            (&["rate=1 Mbit/s", "rate=2 Mbit/s"], &["given twice"]),
            (&["outage=soon"], &["outage=soon: ", "a time"]),
            (
                &["new_address=10.0.0.3"],
                &["new_address=10.0.0.3: ", "10.0.0.3/24"],
            ),
        ];
        for (words, parts) in cases {
            let why = request(words).updates(&names(&["satellite"])).unwrap_err();
            for part in parts {
                assert!(why.contains(part), "{part:?} is not in {why:?}");
            }
        }
    }

    #[test]
    fn one_wrong_word_spoils_all() {
        let request = request(&["rate=10 Mbit/s", "delay=long"]);
        assert!(request.updates(&names(&["satellite"])).is_err());
    }

    #[test]
    fn a_direction_is_changed_alone_and_links_go_by_name() {
        let names = names(&["satellite", "satellite-1", "ground"]);
        let one = ChangeRequest {
            directions: Directions::Return,
            ..request(&["delay=1 ms"])
        };
        let both_links = one.updates(&names).unwrap();
        assert_eq!(both_links.len(), 2);
        assert!(both_links[0].change.forward.is_empty());
        assert!(!both_links[0].change.r#return.is_empty());
        let ground = ChangeRequest {
            link: Some("ground".into()),
            ..one.clone()
        };
        assert_eq!(ground.updates(&names).unwrap()[0].link, 2);
        let nowhere = ChangeRequest {
            link: Some("moon".into()),
            ..one
        };
        let why = nowhere.updates(&names).unwrap_err();
        assert!(why.contains("moon") && why.contains("satellite-1"), "{why}");
    }

    #[test]
    fn an_address_alone_leaves_the_link_alone() {
        let updates = request(&["new_address=true"])
            .updates(&names(&["satellite"]))
            .unwrap();
        assert_eq!(updates[0].address, Some(NewAddress::Next));
        assert!(updates[0].change.is_empty());
    }

    /// A scenario is sent as it was resolved: it has to mean the same when it is read again.
    #[test]
    fn every_preset_can_be_switched_to() {
        let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        for entry in fs::read_dir(presets).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let scenario = crate::scenario::load(&path).unwrap();
            let text = toml::to_string(&scenario).unwrap();
            assert!(
                (text.len() as u64) < crate::control::LONGEST / 2,
                "{}",
                path.display()
            );
            let mut again = Scenario::parse(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            // What is planned for later is not part of what takes over.
            for direction in [&mut again.forward, &mut again.r#return] {
                direction.change.clear();
            }
            let mut first = scenario;
            for direction in [&mut first.forward, &mut first.r#return] {
                direction.change.clear();
            }
            assert_eq!(again.forward, first.forward, "{}", path.display());
            assert_eq!(again.r#return, first.r#return, "{}", path.display());
        }
    }
}
