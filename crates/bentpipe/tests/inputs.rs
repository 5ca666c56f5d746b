//! Every command that takes a file, given one that is missing, a directory or empty: what is said
//! tells what was looked for, where, and what to do.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with a subdirectory, an empty file, and one with a name that is nearly another's.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bpinputs-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("directory")).unwrap();
        std::fs::write(path.join("directory/inside.toml"), "name = 1").unwrap();
        std::fs::write(path.join("empty.toml"), "\n").unwrap();
        std::fs::write(path.join("empty"), "").unwrap();
        std::fs::write(path.join("my-plan.toml"), "name = 1").unwrap();
        Self(path.canonicalize().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a command line says on standard error, after it has ended with 2.
fn said(directory: &Path, arguments: &str) -> String {
    let ended = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .args(arguments.split(' '))
        .current_dir(directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{arguments}: {said}");
    assert!(!said.contains("os error"), "{arguments}: {said}");
    said
}

/// Command lines with FILE for the file.
const COMMANDS: &[&str] = &[
    "check FILE",
    "sim FILE",
    "sim never-worst --links 1 --known FILE",
    "link explain FILE",
    "emulate FILE -- true",
    "trace FILE",
    "trace --keys FILE my-plan.toml",
    "terminal join --line-file FILE",
    "quic-pep --config FILE",
    "perf client --ca FILE localhost",
    "perf server --certificate FILE --key FILE",
];

#[test]
fn a_missing_file_is_told_with_its_directory_and_the_nearest_name() {
    let place = Place::new("missing");
    let here = place.0.display();
    for command in COMMANDS {
        let told = said(&place.0, &command.replace("FILE", "my-plan2.toml"));
        let expected = format!(
            "my-plan2.toml: there is no such file in {here}; the nearest names there are my-plan.toml"
        );
        assert!(told.contains(&expected), "{command}: {told}");
        let told = said(&place.0, &command.replace("FILE", "a/b/c.toml"));
        let expected = format!("of its directory only {here} is there");
        assert!(told.contains(&expected), "{command}: {told}");
    }
}

#[test]
fn a_directory_is_told_with_a_file_in_it() {
    let place = Place::new("directory");
    for command in COMMANDS {
        let told = said(&place.0, &command.replace("FILE", "directory"));
        let expected = "directory: this is a directory; give a file, like directory/inside.toml";
        assert!(told.contains(expected), "{command}: {told}");
    }
}

#[test]
fn an_empty_file_is_told_with_what_should_be_in_it() {
    let place = Place::new("empty");
    for (command, file, told) in [
        (
            "check FILE",
            "empty.toml",
            "is empty; check takes terminal.toml or gateway.toml",
        ),
        ("sim FILE", "empty.toml", "is empty; sim takes a plan"),
        (
            "link explain FILE",
            "empty.toml",
            "is empty; give a scenario",
        ),
        (
            "emulate FILE -- true",
            "empty.toml",
            "is empty; give a scenario",
        ),
        ("trace FILE", "empty", "is empty; trace takes captures"),
        (
            "quic-pep --config FILE",
            "empty.toml",
            "is empty; `bentpipe quic-pep init`",
        ),
    ] {
        let said = said(&place.0, &command.replace("FILE", file));
        assert!(said.contains(told), "{command}: {said}");
    }
}

#[test]
fn names_that_are_no_files_are_told_what_there_is() {
    let place = Place::new("names");
    for (command, told) in [
        ("sim geo", "geo: this is a scenario, and sim takes a plan"),
        ("sim nothing", "nothing: there is no such file in "),
        ("check nothing", "check takes terminal.toml or gateway.toml"),
        ("link explain goe", "the nearest are geo, "),
        ("emulate starlnk -- true", "the nearest are starlink, "),
        (
            "terminal --config nothing",
            "`bentpipe terminal join` writes a first one",
        ),
        (
            "gateway --config nothing",
            "`bentpipe gateway init --endpoint HOST:PORT` writes a first one",
        ),
    ] {
        let said = said(&place.0, command);
        assert!(said.contains(told), "{command}: {said}");
    }
}
