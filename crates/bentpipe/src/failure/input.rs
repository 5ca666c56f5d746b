//! Files that a command is given: their text, or what is wrong with a file that has none.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::Failure;

/// Names that are offered at most.
const OFFERED: usize = 3;

/// Reads a file that a person wrote.
pub fn read(path: &Path) -> Result<String, Failure> {
    read_or(path, "")
}

/// The same; `remedy` is what to do where there is no file, or nothing in it.
pub fn read_or(path: &Path, remedy: &str) -> Result<String, Failure> {
    let mut text = String::new();
    open(path, remedy)?
        .read_to_string(&mut text)
        .map_err(|error| Failure::file(path, why(path, &error, remedy)))?;
    if text.trim().is_empty() && !remedy.is_empty() {
        return Err(Failure::file(path, format!("the file is empty; {remedy}")));
    }
    Ok(text)
}

/// Opens a file to be read; a directory is none.
pub fn open(path: &Path, remedy: &str) -> Result<File, Failure> {
    let opened = File::open(path).and_then(|file| {
        let directory = file.metadata()?.is_dir();
        (!directory)
            .then_some(file)
            .ok_or(Error::from(ErrorKind::IsADirectory))
    });
    opened.map_err(|error| Failure::file(path, why(path, &error, remedy)))
}

/// Why there is no text, and what to do.
fn why(path: &Path, error: &Error, remedy: &str) -> String {
    let what = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => missing(path),
        ErrorKind::IsADirectory => match &names(path)[..] {
            [] => "this is a directory, without a file in it".into(),
            names => format!(
                "this is a directory; give a file, like {}",
                path.join(&names[0]).display()
            ),
        },
        ErrorKind::PermissionDenied => {
            "this user may not read it; `ls -l` of it, and of the directories above, says who may"
                .into()
        }
        ErrorKind::InvalidData => "this is no text (UTF-8)".into(),
        _ => error.to_string(),
    };
    match remedy {
        "" => what,
        remedy => format!("{what}; {remedy}"),
    }
}

/// Where it was looked for, and what is there instead.
fn missing(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directory = whole.parent().map(Path::to_owned).unwrap_or_default();
    if !directory.is_dir() {
        let there = directory.ancestors().find(|above| above.is_dir());
        return format!(
            "there is no such file: of its directory only {} is there",
            there.unwrap_or(Path::new("/")).display()
        );
    }
    let name = whole.file_name().unwrap_or_default().to_string_lossy();
    let mut near: Vec<_> = (names(&directory).into_iter())
        .map(|other| (strsim::jaro_winkler(&other, &name), other))
        .filter(|(likeness, _)| *likeness > 0.75)
        .collect();
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    near.truncate(OFFERED);
    let near: Vec<_> = near.into_iter().map(|(_, name)| name).collect();
    match &near[..] {
        [] => format!("there is no such file in {}", directory.display()),
        near => format!(
            "there is no such file in {}; the nearest names there are {}",
            directory.display(),
            near.join(", ")
        ),
    }
}

/// The names of the files in `directory`, sorted.
fn names(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = files
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .filter_map(|path: PathBuf| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever runs the tests may be allowed to read everything.
    #[test]
    fn a_file_that_may_not_be_read_says_who_may() {
        let error = Error::from(ErrorKind::PermissionDenied);
        let why = why(Path::new("plan.toml"), &error, "give another");
        assert!(
            why.starts_with("this user may not read it; `ls -l`")
                && why.ends_with("; give another"),
            "{why}"
        );
    }
}
