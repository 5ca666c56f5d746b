//! Asking and changing a running emulator, over a Unix socket.
//!
//! One connection carries one question and one answer, each a line of JSON. The
//! socket is for root alone; a question has a bound and little time.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use bentpipe_emulator::{ChangeError, NewAddress, Order, Remote, Sight};
use bentpipe_link::Scenario;
use bentpipe_link::scenario::{Change, ScenarioError};
use bentpipe_units::Span;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Where sockets lie unless a path is given.
const DIRECTORY: &str = "/run/bentpipe";
/// A question has at most so many bytes; a scenario with long traces is the longest.
const LONGEST: u64 = 8 << 20;
/// How long the other side may take over each read and write.
const PATIENCE: Duration = Duration::from_secs(3);
/// Names the form of what [`Question::Show`] gets.
const SCHEMA: &str = "bentpipe/links/1";
/// What the names of satellite hops begin with; the other hop is the ground.
const SATELLITE: &str = "satellite";

/// What can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How the links are doing.
    Show,
    /// To change some.
    Set(Set),
}

/// A change, not yet checked against the links that run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// Of which link; of every satellite hop when not given.
    pub link: Option<String>,
    /// Of which directions.
    pub direction: Sides,
    /// Lines of TOML that [`Change::parse`] takes.
    pub change: String,
    /// Nothing comes through for so long, beginning now.
    pub outage_for: Option<Span>,
    /// A scenario whose satellite hop takes over, as TOML.
    pub switch: Option<String>,
    /// The terminal's device gets another address.
    pub new_address: Option<NewAddress>,
    /// As it was written, for the certificate.
    pub what: String,
}

/// Which directions of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Sides {
    /// Gateway to terminal
    Forward,
    /// Terminal to gateway
    Return,
    /// Each
    #[default]
    Both,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How the links are doing.
    Shown {
        /// For programs.
        links: Value,
        /// For people.
        text: String,
        /// Where the running scenario lies.
        directory: PathBuf,
    },
    /// What was changed, a line for each link.
    Changed(Vec<String>),
    /// It cannot be done as it is written; nothing was changed.
    Refused(String),
    /// It went wrong; nothing was changed.
    Failed(String),
}

/// What the socket tells of a run beside what [`Remote`] does.
#[derive(Debug)]
pub struct Links {
    /// The scenario's name.
    pub scenario: String,
    /// Where the scenario lies.
    pub directory: PathBuf,
    /// The links' names, in the emulator's order.
    pub names: Vec<String>,
}

/// A socket that nobody answers at yet. Its file goes when it is dropped.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    file: SocketFile,
}

/// A socket at which a thread answers. Its file goes when this is dropped.
#[derive(Debug)]
pub struct Served(SocketFile);

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have cleaned up already.
        let _ = fs::remove_file(&self.0);
    }
}

impl Control {
    /// Makes the socket. Without a path of the caller's own, a socket that cannot be
    /// had is a warning: the emulator can do without.
    pub fn bind(path: Option<&Path>) -> Result<Option<Self>, Failure> {
        if let Some(path) = path {
            let control = Self::at(path)
                .with_context(|| format!("--control {}: cannot listen there", path.display()))?;
            return Ok(Some(control));
        }
        let own = Path::new(DIRECTORY).join(format!("emulate-{}.sock", std::process::id()));
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(DIRECTORY);
        match made.and_then(|()| Self::at(&own)) {
            Ok(control) => Ok(Some(control)),
            Err(error) => {
                tracing::warn!(
                    "`bentpipe link set` will not reach this emulator: {}: {error}; give a place with --control PATH",
                    own.display()
                );
                Ok(None)
            }
        }
    }

    fn at(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            // Left behind by one that was killed, unless somebody answers.
            match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path)?;
                }
                _ => {
                    return Err(io::Error::new(
                        io::ErrorKind::AddrInUse,
                        "another emulator listens there",
                    ));
                }
            }
        }
        // Whoever may write to the socket may change the link: never anybody else, not
        // even between making it and setting its mode.
        let listener = bentpipe_os::limits::privately(|| UnixListener::bind(path))?;
        let file = SocketFile(path.to_owned());
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, file })
    }

    /// Answers from now on, on a thread of its own, one question at a time.
    pub fn serve(self, remote: Remote, links: Links) -> anyhow::Result<Served> {
        let Self { listener, file } = self;
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    let served = stream.and_then(|stream| serve(&stream, &remote, &links));
                    if let Err(error) = served {
                        tracing::debug!("control socket: {error}");
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(Served(file))
    }
}

impl Served {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.0
    }
}

fn serve(stream: &UnixStream, remote: &Remote, links: &Links) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    BufReader::new(stream)
        .take(LONGEST + 1)
        .read_until(b'\n', &mut line)?;
    let answer = if line.len() as u64 > LONGEST {
        Answer::Refused(format!("longer than {LONGEST} bytes"))
    } else {
        match serde_json::from_slice(&line) {
            Ok(Question::Show) => show(remote, links),
            Ok(Question::Set(set)) => match orders(&set, &links.names) {
                Ok(orders) => change(remote, orders),
                Err(why) => Answer::Refused(why),
            },
            Err(error) => Answer::Refused(format!("not a question: {error}")),
        }
    };
    send(stream, &answer)
}

fn send(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn change(remote: &Remote, orders: Vec<Order>) -> Answer {
    match remote.change(orders) {
        Ok(changed) => Answer::Changed(changed.iter().map(ToString::to_string).collect()),
        Err(error @ ChangeError::NoAddress(_)) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn show(remote: &Remote, links: &Links) -> Answer {
    let (Some(sights), Some(changes)) = (remote.look(), remote.changes()) else {
        return Answer::Failed(ChangeError::Silent.to_string());
    };
    let mut text = format!(
        "{}\n{:<22}{:>12}{:>12}{:>10}{:>8}{:>12}{:>11}\n",
        links.scenario, "", "entered", "delivered", "dropped", "held", "queue bytes", "late p99"
    );
    for sight in &sights {
        let counters = &sight.counters;
        text += &format!(
            "{:<22}{:>12}{:>12}{:>10}{:>8}{:>12}{:>8.0} us\n",
            format!("{} {}", sight.link, sight.direction),
            counters.entered,
            counters.delivered,
            counters.dropped.total(),
            sight.held,
            sight.queue_bytes,
            sight.late_p99_us
        );
    }
    for change in &changes {
        text += &format!("changed at {change}\n");
    }
    let directions: Vec<_> = sights.iter().map(told).collect();
    Answer::Shown {
        links: json!({
            "schema": SCHEMA,
            "scenario": links.scenario,
            "directions": directions,
            "changes": changes,
        }),
        text,
        directory: links.directory.clone(),
    }
}

fn told(sight: &Sight) -> Value {
    let mut told = json!(sight.counters);
    told["link"] = json!(sight.link);
    told["name"] = json!(sight.direction);
    told["held"] = json!(sight.held);
    told["queue_bytes"] = json!(sight.queue_bytes);
    told["late_p99_us"] = json!(sight.late_p99_us);
    told
}

/// Checks all of `set` against links of those names.
fn orders(set: &Set, names: &[String]) -> Result<Vec<Order>, String> {
    let mut change = Change::parse(&set.change).map_err(|error| error.to_string())?;
    let mut back = change.clone();
    let mut has_link = false;
    if let Some(switch) = &set.switch {
        let scenario = Scenario::parse(switch).map_err(|error| format!("switch: {error}"))?;
        change.link = Some(Box::new(scenario.forward));
        back.link = Some(Box::new(scenario.r#return));
        has_link = true;
    }
    let links: Vec<usize> = (0..names.len())
        .filter(|number| match &set.link {
            Some(link) => names[*number] == *link,
            None => names[*number].starts_with(SATELLITE),
        })
        .collect();
    if links.is_empty() {
        let wanted = set.link.as_deref().unwrap_or(SATELLITE);
        return Err(format!(
            "there is no link {wanted:?}; this emulator has {}",
            names.join(", ")
        ));
    }
    if set.direction != Sides::Both && (has_link || set.new_address.is_some()) {
        return Err(
            "switch and new_address are of both directions: leave --direction out".to_owned(),
        );
    }
    if links.len() > 1 && matches!(set.new_address, Some(NewAddress::These(_))) {
        return Err("new_address with an address is for one link: name it with --link".to_owned());
    }
    let nothing = set.change.is_empty() && set.outage_for.is_none() && !has_link;
    Ok(links
        .into_iter()
        .map(|link| Order {
            link,
            forward: (!nothing && set.direction != Sides::Return).then(|| change.clone()),
            r#return: (!nothing && set.direction != Sides::Forward).then(|| back.clone()),
            outage_for: set.outage_for,
            address: set.new_address.clone(),
            what: set.what.clone(),
        })
        .collect())
}

/// Asks the emulator at `path`, or the only one that runs here.
pub fn ask(path: Option<&Path>, question: &Question) -> Result<Answer, Failure> {
    let (stream, path) = match path {
        Some(path) => (connect(path)?, path.to_owned()),
        None => the_only_one()?,
    };
    let asked = || -> io::Result<Answer> {
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        send(&stream, question)?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the emulator has ended",
            ));
        }
        Ok(serde_json::from_str(&line)?)
    };
    match asked() {
        Ok(Answer::Refused(why)) => Err(Failure::Configuration(why)),
        Ok(Answer::Failed(why)) => Err(Failure::Runtime(anyhow!(why))),
        Ok(answer) => Ok(answer),
        Err(error) => Err(Failure::Runtime(anyhow!(
            "no answer from {}: {error}",
            path.display()
        ))),
    }
}

fn connect(path: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(path).map_err(|error| {
        let path = path.display();
        Failure::Runtime(match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                anyhow!("the emulator that listened at {path} is gone")
            }
            io::ErrorKind::NotFound => anyhow!(
                "no emulator listens at {path}; a running one has printed its place, as \"control: PATH\""
            ),
            io::ErrorKind::PermissionDenied => {
                anyhow!("{path} is for the user who runs the emulator: run as that one, or as root")
            }
            _ => anyhow!("{path}: {error}"),
        })
    })
}

fn the_only_one() -> Result<(UnixStream, PathBuf), Failure> {
    let mut found = Vec::new();
    match fs::read_dir(DIRECTORY) {
        Ok(entries) => {
            for path in entries.flatten().map(|entry| entry.path()) {
                if path
                    .extension()
                    .is_some_and(|extension| extension == "sock")
                    && let Ok(stream) = UnixStream::connect(&path)
                {
                    found.push((stream, path));
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(Failure::Runtime(anyhow!(
                "{DIRECTORY}: {error}; run as root, or name the emulator with --control PATH"
            )));
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Failure::Runtime(anyhow!(
            "no emulator runs here: none listens in {DIRECTORY}; one that was started with --control PATH is reached with the same"
        ))),
        _ => {
            found.sort_by(|(_, one), (_, other)| one.cmp(other));
            let paths: Vec<_> = found
                .iter()
                .map(|(_, path)| format!("--control {}", path.display()))
                .collect();
            Err(Failure::Configuration(format!(
                "several emulators run here; say which: {}",
                paths.join(", ")
            )))
        }
    }
}

/// Reads what people write: KEY=VALUE, each as an element of a scenario's `change`,
/// or an outage of some time, a switch, a new address. `scenario` reads and checks a
/// scenario that is named, and gives it resolved.
pub fn parse(
    words: &[String],
    scenario: &mut dyn FnMut(&str) -> Result<String, Failure>,
) -> Result<Set, Failure> {
    let mut set = Set::default();
    let mut seen: Vec<&str> = Vec::new();
    for word in words {
        let wrong = |why: &str| Failure::Configuration(format!("{word}: {why}"));
        let Some((key, value)) = word.split_once('=') else {
            return Err(wrong("not KEY=VALUE, like rate=\"5 Mbit/s\""));
        };
        let (key, value) = (key.trim(), value.trim());
        if seen.contains(&key) {
            return Err(wrong("given twice"));
        }
        seen.push(key);
        match key {
            "switch" => set.switch = Some(scenario(value)?),
            "new_address" => {
                set.new_address = Some(new_address(value).map_err(|why| wrong(&why))?);
            }
            "outage" if !matches!(value, "true" | "false") => {
                let span: Span = value.parse().map_err(|error| {
                    wrong(&format!("{error}; an outage is true, false, or a time"))
                })?;
                if span == Span::ZERO {
                    return Err(wrong("an outage of no time"));
                }
                set.outage_for = Some(span);
            }
            _ => {
                let line = format!("{key} = {}\n", toml_value(value));
                Change::parse(&line).map_err(|error| {
                    wrong(&match error {
                        ScenarioError::Syntax(error) => error.message().to_owned(),
                        ScenarioError::Value { why, .. } => why,
                    })
                })?;
                set.change += &line;
            }
        }
    }
    set.what = words.join(", ");
    Ok(set)
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
    use super::*;

    fn set(words: &[&str]) -> Result<Set, String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&words, &mut |name| Ok(format!("scenario {name}"))).map_err(|failure| match failure {
            Failure::Configuration(why) => why,
            Failure::Runtime(error) => panic!("{error}"),
        })
    }

    #[test]
    fn words_become_one_change() {
        let set = set(&[
            "rate=10 Mbit/s",
            "delay = 100 ms",
            "loss={ periodic = { every = 10, lose = 2 } }",
            "outage=2 s",
        ])
        .unwrap();
        assert_eq!(set.outage_for, Some(Span::from_millis(2000)));
        let orders = orders(&set, &["satellite".into(), "ground".into()]).unwrap();
        assert_eq!(orders.len(), 1, "the ground is changed only by name");
        let change = orders[0].forward.as_ref().unwrap();
        assert_eq!(change.rate.unwrap().to_string(), "10 Mbit/s");
        assert_eq!(change.delay.unwrap().to_string(), "100 ms");
        assert!(change.loss.is_some() && change.outage.is_none());
        assert_eq!(orders[0].r#return, orders[0].forward);
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
            (
                &["outage=soon"],
                &["outage=soon: ", "true, false, or a time"],
            ),
            (
                &["new_address=10.0.0.3"],
                &["new_address=10.0.0.3: ", "10.0.0.3/24"],
            ),
        ];
        for (words, parts) in cases {
            let why = set(words).unwrap_err();
            for part in parts {
                assert!(why.contains(part), "{part:?} is not in {why:?}");
            }
        }
    }

    #[test]
    fn one_wrong_word_spoils_all() {
        assert!(set(&["rate=10 Mbit/s", "delay=long"]).is_err());
    }

    #[test]
    fn a_direction_is_changed_alone_and_links_go_by_name() {
        let names = ["satellite", "satellite-1", "ground"].map(str::to_owned);
        let one = Set {
            direction: Sides::Return,
            ..set(&["delay=1 ms"]).unwrap()
        };
        let both_links = orders(&one, &names).unwrap();
        assert_eq!(both_links.len(), 2);
        assert!(both_links[0].forward.is_none() && both_links[0].r#return.is_some());
        let ground = Set {
            link: Some("ground".into()),
            ..one.clone()
        };
        assert_eq!(orders(&ground, &names).unwrap()[0].link, 2);
        let nowhere = Set {
            link: Some("moon".into()),
            ..one
        };
        let why = orders(&nowhere, &names).unwrap_err();
        assert!(why.contains("moon") && why.contains("satellite-1"), "{why}");
    }

    #[test]
    fn an_address_alone_leaves_the_link_alone() {
        let set = set(&["new_address=true"]).unwrap();
        let orders = orders(&set, &["satellite".into()]).unwrap();
        assert_eq!(orders[0].address, Some(NewAddress::Next));
        assert!(orders[0].forward.is_none() && orders[0].r#return.is_none());
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
            let scenario = crate::link::load(&path).unwrap();
            let text = toml::to_string(&scenario).unwrap();
            assert!((text.len() as u64) < LONGEST / 2, "{}", path.display());
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
