//! Clients of other people's making on the gateway's list: each has a bearer token, or a
//! certificate that the gateway has issued.

use bentpipe_tunnel::identity::Fingerprint;
use serde::{Deserialize, Serialize};

use super::{Date, FileRegistry, List, check_name, find};

/// A client, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// What people call it; policies go by that.
    pub name: String,
    /// What it shows.
    #[serde(flatten)]
    pub proof: Proof,
    /// When that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Date>,
}

/// What a client shows. None of it is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// A bearer token with this hash. It has 256 random bits, of which a hash tells nothing.
    Token(Fingerprint),
    /// A certificate with this key.
    Certificate(Fingerprint),
}

impl Proof {
    /// Of either.
    pub fn fingerprint(&self) -> &Fingerprint {
        match self {
            Self::Token(hash) => hash,
            Self::Certificate(key) => key,
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl FileRegistry {
    /// Puts a new client on the list. Its name is nobody else's.
    pub fn add_client(&self, client: Client) -> anyhow::Result<()> {
        check_name(&client.name).map_err(anyhow::Error::msg)?;
        self.change(|list| list.add_client(client))
    }

    /// Shuts the client out that `selector` names, and that shows what is like `proof`.
    pub fn revoke_client(&self, selector: &str, proof: Proof) -> anyhow::Result<Client> {
        let (what, lists) = match proof {
            Proof::Token(_) => ("token", "bentpipe gateway token list"),
            Proof::Certificate(_) => ("certificate", "bentpipe gateway certificate list"),
        };
        self.change(|list| {
            let indices =
                (0..list.client.len()).filter(|&at| list.client[at].proof.is_like(&proof));
            let indices: Vec<_> = indices.collect();
            let entries = indices.iter().map(|&at| {
                let client = &list.client[at];
                (client.proof.fingerprint(), Some(client.name.as_str()))
            });
            let index = indices[find(selector, entries, what, lists)?];
            Ok(list.client.remove(index))
        })
    }
}

impl List {
    /// Those that show what is like `proof`.
    pub fn clients_with(self, proof: Proof) -> Vec<Client> {
        let clients = self.client.into_iter();
        clients
            .filter(|client| client.proof.is_like(&proof))
            .collect()
    }

    fn add_client(&mut self, client: Client) -> Result<(), String> {
        let name = &client.name;
        let mut terminals = self
            .terminal
            .iter()
            .filter_map(|terminal| terminal.name.as_ref());
        if terminals.any(|other| other == name) || self.client.iter().any(|c| c.name == *name) {
            return Err(format!(
                "there is a terminal or a client called {name:?} already; revoke that, or choose another name"
            ));
        }
        self.client.push(client);
        Ok(())
    }

    pub(super) fn client(&self, shown: &Fingerprint) -> Option<&Client> {
        let mut clients = self.client.iter();
        clients.find(|client| client.proof.fingerprint() == shown)
    }

    pub(super) fn has_tokens(&self) -> bool {
        let mut clients = self.client.iter();
        clients.any(|client| matches!(client.proof, Proof::Token(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_written_with_what_it_shows_and_has_a_name_of_its_own() {
        let hash = Fingerprint::of_token(b"secret");
        let client = |name: &str, proof| Client {
            name: name.into(),
            proof,
            made: None,
        };
        let mut list = List::default();
        list.add_client(client("phone", Proof::Token(hash)))
            .unwrap();
        assert!(list.has_tokens() && list.client(&hash).is_some());
        let text = toml::to_string(&list).unwrap();
        assert_eq!(
            text,
            format!("[[client]]\nname = \"phone\"\ntoken = \"{hash}\"\n")
        );
        assert_eq!(toml::from_str::<List>(&text).unwrap(), list);
        let why = list.add_client(client("phone", Proof::Certificate(hash)));
        assert!(why.unwrap_err().contains("already"));
    }
}
