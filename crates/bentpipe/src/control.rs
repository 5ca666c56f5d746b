//! Control of a running emulator over a Unix socket: both ends of it.
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
use bentpipe_emulator::{ControlHandle, LinkUpdate, RunStatus, STATUS_SCHEMA, UpdateError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Failure;
use crate::link_set::ChangeRequest;

/// Where sockets lie unless a path is given: root's place, and a user's own (XDG Base Directory
/// Specification).
fn directories() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    std::iter::once(PathBuf::from("/run"))
        .chain(own.map(PathBuf::from))
        .map(|path| path.join("bentpipe"))
        .collect()
}
/// A question has at most so many bytes; a scenario with long traces is the longest.
pub const LONGEST: u64 = 8 << 20;
/// How long the other side may take over each read and write.
const PATIENCE: Duration = Duration::from_secs(3);

/// What can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How the links are doing.
    Show,
    /// To change some.
    Set(ChangeRequest),
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

/// What the socket tells of a run beside what the emulator's own handle does.
#[derive(Debug)]
pub struct RunningLinks {
    /// The scenario's name.
    pub scenario: String,
    /// Where the scenario lies.
    pub directory: PathBuf,
    /// The links' names, in the emulator's order.
    pub names: Vec<String>,
}

/// A socket that nobody answers at yet. Its file goes when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// A socket at which a thread answers. Its file goes when this is dropped.
#[derive(Debug)]
pub struct ServedSocket(SocketFile);

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have cleaned up already.
        let _ = fs::remove_file(&self.0);
    }
}

impl ControlSocket {
    /// Makes the socket. Without a path of the caller's own, a socket that cannot be
    /// had is a warning: the emulator can do without.
    pub fn bind(path: Option<&Path>) -> Result<Option<Self>, Failure> {
        if let Some(path) = path {
            let control = Self::at(path)
                .with_context(|| format!("--control {}: cannot listen there", path.display()))?;
            return Ok(Some(control));
        }
        let name = format!("emulate-{}.sock", std::process::id());
        let mut refused = Vec::new();
        for directory in directories() {
            let own = directory.join(&name);
            let made = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory);
            match made.and_then(|()| Self::at(&own)) {
                Ok(control) => return Ok(Some(control)),
                Err(error) => refused.push(format!("{}: {error}", own.display())),
            }
        }
        tracing::warn!(
            "`bentpipe link set` will not reach this emulator: {}; give a place with --control PATH",
            refused.join(", ")
        );
        Ok(None)
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
    pub fn serve(
        self,
        control: ControlHandle,
        links: RunningLinks,
    ) -> anyhow::Result<ServedSocket> {
        let Self { listener, file } = self;
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    let served = stream.and_then(|stream| serve(&stream, &control, &links));
                    if let Err(error) = served {
                        tracing::debug!("control socket: {error}");
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(ServedSocket(file))
    }
}

impl ServedSocket {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.0
    }
}

fn serve(stream: &UnixStream, control: &ControlHandle, links: &RunningLinks) -> io::Result<()> {
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
            Ok(Question::Show) => show(control, links),
            Ok(Question::Set(request)) => match request.updates(&links.names) {
                Ok(updates) => update(control, updates),
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

fn update(control: &ControlHandle, updates: Vec<LinkUpdate>) -> Answer {
    match control.update(updates) {
        Ok(applied) => Answer::Changed(applied.iter().map(ToString::to_string).collect()),
        Err(error @ UpdateError::NoAddress(_)) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn show(control: &ControlHandle, links: &RunningLinks) -> Answer {
    let (Some(statuses), Some(changes)) = (control.status(), control.changes()) else {
        return Answer::Failed(UpdateError::Silent.to_string());
    };
    let mut text = format!(
        "{}\n{:<22}{:>12}{:>12}{:>10}{:>8}{:>12}{:>11}\n",
        links.scenario, "", "entered", "delivered", "dropped", "held", "queue bytes", "late p99"
    );
    for status in &statuses {
        let counters = &status.counters;
        text += &format!(
            "{:<22}{:>12}{:>12}{:>10}{:>8}{:>12}{:>8.0} us\n",
            format!("{} {}", status.link, status.direction),
            counters.entered,
            counters.delivered,
            counters.dropped.total(),
            status.held,
            status.queue_bytes,
            status.late_p99_us
        );
    }
    for change in &changes {
        text += &format!("changed at {change}\n");
    }
    let status = RunStatus {
        schema: STATUS_SCHEMA,
        scenario: links.scenario.clone(),
        directions: statuses,
        changes,
    };
    match serde_json::to_value(status) {
        Ok(status) => Answer::Shown {
            links: status,
            text,
            directory: links.directory.clone(),
        },
        Err(error) => Answer::Failed(format!("the status: {error}")),
    }
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
    for directory in directories() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                tracing::debug!("{}: {error}", directory.display());
                continue;
            }
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_socket = path.extension().is_some_and(|it| it == "sock");
            if is_socket && let Ok(stream) = UnixStream::connect(&path) {
                found.push((stream, path));
            }
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let places: Vec<_> = directories()
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Err(Failure::Runtime(anyhow!(
                "no emulator that this user may change runs here: none listens in {}; one that was started with --control PATH is reached with the same, root's by root",
                places.join(" or ")
            )))
        }
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
