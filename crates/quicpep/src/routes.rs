//! Where a client's connection leads: a fixed destination, or one by the server name that
//! the client has asked for.
//!
//! A proxy only goes where its operator has written. There is no entry for "wherever the
//! client says": that would be an open proxy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What stands at the next hop.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A server, or a proxy that looks like one: it is told nothing but the client's TLS
    /// server name and application protocol.
    #[default]
    Server,
    /// Another `bentpipe quic-pep`: connections to it are kept ready.
    Pep,
}

/// A next hop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Host and UDP port, like "origin.example:443".
    pub address: String,
    /// What stands there: "server" or "pep".
    #[serde(default)]
    pub kind: Kind,
    /// The name in its certificate; without it, of a server the name that the client asks
    /// for, or the host of `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Every way that a proxy may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// By the server name that a client asks for, in lower case.
    pub by_name: BTreeMap<String, Route>,
    /// For all others.
    pub otherwise: Option<Route>,
}

/// Why a route cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No port, or none that is a number.
    #[error("{0:?} is not a host and a UDP port, like \"origin.example:443\"")]
    Address(String),
    /// Nothing to go to at all.
    #[error("there is no destination: give `next`, or a server name in `names`")]
    Nowhere,
}

impl Route {
    /// A server at `address`.
    pub fn server(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            kind: Kind::Server,
            name: None,
        }
    }

    /// The host of its address; brackets around IPv6 are left out.
    pub fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Checks the address.
    pub fn check(&self) -> Result<(), RouteError> {
        let port = self.address.rsplit_once(':').map(|(_, port)| port);
        let port = port.and_then(|port| port.parse::<u16>().ok());
        if self.host().is_empty() || port.is_none_or(|port| port == 0) {
            return Err(RouteError::Address(self.address.clone()));
        }
        Ok(())
    }
}

impl Routes {
    /// Every connection to `route`.
    pub fn fixed(route: Route) -> Self {
        Self {
            by_name: BTreeMap::new(),
            otherwise: Some(route),
        }
    }

    /// Checks every address, and that there is one.
    pub fn check(&self) -> Result<(), RouteError> {
        if self.by_name.is_empty() && self.otherwise.is_none() {
            return Err(RouteError::Nowhere);
        }
        self.all().try_for_each(Route::check)
    }

    /// Every next hop.
    pub fn all(&self) -> impl Iterator<Item = &Route> {
        self.by_name.values().chain(&self.otherwise)
    }

    /// Where a client that asks for `name` is taken.
    pub fn find(&self, name: Option<&str>) -> Option<&Route> {
        name.and_then(|name| self.by_name.get(&name.to_ascii_lowercase()))
            .or(self.otherwise.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_table_goes_before_the_fixed_destination() {
        let mut routes = Routes::fixed(Route::server("a.example:443"));
        let special = Route::server("[2001:db8::1]:4433");
        routes.by_name.insert("b.example".into(), special.clone());
        routes.check().unwrap();
        assert_eq!(routes.find(Some("B.example")), Some(&special));
        assert_eq!(routes.find(None).unwrap().host(), "a.example");
        assert_eq!(special.host(), "2001:db8::1");
    }

    #[test]
    fn what_cannot_be_reached_is_refused() {
        for wrong in ["a.example", ":443", "a.example:0", "a.example:https"] {
            Route::server(wrong).check().unwrap_err();
        }
        Routes::default().check().unwrap_err();
    }
}
