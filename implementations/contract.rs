//! The contract of docs/matrix.md for wrappers in Rust: role, protocol, knobs, requests, and where files are.

#![allow(dead_code, reason = "a wrapper takes what it needs")]

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

/// A variable of the environment; empty where it is not set.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

pub fn is_server() -> bool {
    variable("ROLE") == "server"
}

/// HTTP/3 is spoken, not HTTP/0.9.
pub fn is_h3() -> bool {
    variable("TESTCASE") == "http3"
}

/// A knob in bytes or packets; None leaves the library's default.
pub fn number<N: FromStr>(name: &str) -> Result<Option<N>> {
    let text = variable(name);
    let number = (!text.is_empty()).then(|| text.parse().ok());
    number
        .map(|parsed| parsed.with_context(|| format!("{name}={text}: give a whole number")))
        .transpose()
}

/// What is to be fetched; the first says from where.
pub fn requests() -> Result<Vec<Request>> {
    let requests: Result<Vec<_>> = (variable("REQUESTS").split_whitespace())
        .map(Request::of)
        .collect();
    let requests = requests?;
    ensure!(!requests.is_empty(), "REQUESTS names nothing");
    Ok(requests)
}

/// A file at a server.
pub struct Request {
    pub url: String,
    /// Host and port, as they are written.
    pub authority: String,
    pub host: String,
    pub port: u16,
    /// With the slash before it.
    pub path: String,
}

impl Request {
    fn of(url: &str) -> Result<Self> {
        let rest = (url.strip_prefix("https://")).context("a request that is no https address")?;
        let (authority, path) = rest.split_once('/').context("a request without a path")?;
        let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
        Ok(Self {
            url: url.to_owned(),
            authority: authority.to_owned(),
            host: host.to_owned(),
            port: port.parse()?,
            path: format!("/{path}"),
        })
    }

    /// Where the server is.
    pub fn address(&self) -> Result<SocketAddr> {
        (self.host.as_str(), self.port)
            .to_socket_addrs()?
            .find(SocketAddr::is_ipv4)
            .context("the server has no address")
    }

    /// Where the file goes.
    pub fn saved(&self) -> Result<PathBuf> {
        below("/downloads", &self.path)
    }
}

/// The file that the server has for a path.
pub fn served(path: &str) -> Result<PathBuf> {
    below("/www", path)
}

fn below(directory: &str, path: &str) -> Result<PathBuf> {
    let name = Path::new(path.trim())
        .file_name()
        .context("a path that names no file")?;
    Ok(Path::new(directory).join(name))
}
