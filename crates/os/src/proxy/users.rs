//! Users of a proxy: names and passwords from a file.

use std::collections::BTreeMap;
use std::sync::Arc;

use ring::digest::{Digest, SHA256, digest};

/// Those who may use a proxy. Clones are the same.
#[derive(Debug, Clone)]
pub struct Users(Arc<BTreeMap<String, Digest>>);

impl Users {
    /// Reads `text`: a line `NAME:PASSWORD` for each user, empty lines and those that begin with
    /// `#` for people. The error says which line is wrong and how, without what is in it.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut users = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| format!("line {}: {why}", number + 1);
            let (name, password) = line
                .split_once(':')
                .ok_or_else(|| wrong("write it as NAME:PASSWORD"))?;
            // What SOCKS5 can carry (RFC 1929).
            if !(1..=255).contains(&name.len()) || !(1..=255).contains(&password.len()) {
                return Err(wrong("name and password have 1 to 255 bytes each"));
            }
            let password = digest(&SHA256, password.as_bytes());
            if users.insert(name.to_owned(), password).is_some() {
                return Err(wrong("this name was there before"));
            }
        }
        if users.is_empty() {
            return Err("it names nobody; write a line NAME:PASSWORD for each user".into());
        }
        Ok(Self(Arc::new(users)))
    }

    /// Whether `name` has this password.
    pub fn admit(&self, name: &str, password: &str) -> bool {
        // How long comparing digests takes says nothing of the password.
        let given = digest(&SHA256, password.as_bytes());
        let user = self.0.get(name);
        user.is_some_and(|expected| expected.as_ref() == given.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_admitted_with_its_own_password_alone() {
        let users = Users::read("# people\nann:a:b\r\n\nbob:secret\n").unwrap();
        assert!(users.admit("ann", "a:b") && users.admit("bob", "secret"));
        for (name, password) in [("ann", "secret"), ("bob", ""), ("eve", "a:b"), ("", "")] {
            assert!(!users.admit(name, password), "{name}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        for (text, told) in [
            ("", "names nobody"),
            ("ann:x\nsecret", "line 2: write it as NAME:PASSWORD"),
            (":secret", "line 1: name and password have"),
            (
                "ann:secret\nann:secret",
                "line 2: this name was there before",
            ),
        ] {
            let error = Users::read(text).unwrap_err();
            assert!(error.contains(told), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
