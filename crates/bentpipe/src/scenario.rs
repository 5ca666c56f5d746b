//! Scenarios by file or by name: those that come with the program need no file.

use std::path::{Path, PathBuf};

use bentpipe_link::Scenario;

use crate::failure::{self, Failure};

/// Embeds scenarios, each as its name and its text.
macro_rules! presets {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../scenarios/", $name, ".toml")))),*]
    };
}

/// The scenarios that come with the program.
const PRESETS: &[(&str, &str)] = presets!(
    "astra" "bujari-handover" "bujari-leo" "bujari-leo-codel" "bujari-leo-half-bdp"
    "bujari-leo-leo-bdp" "bujari-terrestrial" "bujari-terrestrial-codel"
    "bujari-terrestrial-half-bdp" "bujari-terrestrial-leo-bdp" "eutelsat" "geo" "iridium"
    "ka-sat" "ka-sat-4g" "kosek-geo" "kosek-geo-loss-0.01" "kosek-geo-loss-0.1"
    "kosek-geo-loss-1"
    "kosek-leo" "kosek-leo-loss-0.01" "kosek-leo-loss-0.1" "kosek-leo-loss-1" "leo" "meo"
    "qir-blackhole" "qir-goodput" "qir-handshakecorruption" "qir-handshakeloss" "qir-longrtt"
    "qir-sat" "qir-satloss" "qir-terrestrial" "qir-transfercorruption" "qir-transferloss"
    "qpep-geo" "starlink"
    "starlink-shell"
);

/// The files that they name.
const TRACES: &[(&str, &str)] = &[(
    "traces/iridium-one-way-delay.csv",
    include_str!("../../../scenarios/traces/iridium-one-way-delay.csv"),
)];

/// What to give where a file is none.
const WANTED: &str = "give a scenario (docs/scenarios.md), or the name of one that comes with the program, like geo, leo or starlink";

/// Reads and checks a scenario, with the traces that it names: a file, or where there is none
/// of that name, one that comes with the program.
pub fn load(path: &Path) -> Result<Scenario, Failure> {
    match name(path) {
        Some(name) => preset(name),
        None => read(path),
    }
}

/// Where a scenario that is named in a running one's place lies: beside `directory`'s others,
/// or wherever [`load`] finds it.
pub fn beside(directory: &Path, name: &str) -> PathBuf {
    let file = directory.join(format!("{name}.toml"));
    if self::name(Path::new(name)).is_some() && file.is_file() {
        file
    } else {
        PathBuf::from(name)
    }
}

/// The name, if this is one and no file.
pub fn name(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let is_path = path.exists() || text.contains('/') || text.ends_with(".toml");
    (!is_path).then_some(text)
}

/// Whether this is no file, but the name of a scenario that comes with the program.
pub fn is_preset(path: &Path) -> bool {
    name(path).is_some_and(|name| PRESETS.iter().any(|(known, _)| *known == name))
}

/// Whether a text is of a scenario, right or wrong: it has a link's two directions at its top.
pub fn looks_like_one(text: &str) -> bool {
    text.parse::<toml::Table>()
        .is_ok_and(|table| table.contains_key("forward") && table.contains_key("return"))
}

fn read(path: &Path) -> Result<Scenario, Failure> {
    let directory = path.parent().unwrap_or(Path::new(""));
    Scenario::parse_with(&failure::read_or(path, WANTED)?, &mut |name| {
        let file = directory.join(name);
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    })
    .map_err(|error| Failure::file(path, error))
}

fn preset(name: &str) -> Result<Scenario, Failure> {
    let Some((_, text)) = PRESETS.iter().find(|(known, _)| *known == name) else {
        return Err(Failure::Configuration(unknown(name)));
    };
    Scenario::parse_with(text, &mut |file| {
        let trace = TRACES.iter().find(|(known, _)| *known == file);
        trace
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| format!("{file} does not come with the program"))
    })
    .map_err(|error| Failure::file(Path::new(name), error))
}

/// What to say of a name that nothing has.
fn unknown(name: &str) -> String {
    let mut names: Vec<_> = PRESETS.iter().map(|(known, _)| *known).collect();
    names.sort_by_key(|known| strsim::damerau_levenshtein(known, name));
    format!(
        "{name}: there is no such file, and no scenario of that name comes with the program; the nearest are {}. A file's name contains '/' or ends in .toml",
        names[..3].join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_project_is_known_by_name_and_reads_as_its_file() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut files = 0;
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                let name = path.file_stem().unwrap().to_str().unwrap();
                let preset = preset(name).unwrap_or_else(|failure| panic!("{failure:?}"));
                assert_eq!(preset, read(&path).unwrap(), "{name}");
                files += 1;
            }
        }
        assert_eq!(files, PRESETS.len());
    }

    #[test]
    fn an_unknown_name_is_told_the_nearest() {
        for (name, near) in [
            ("goe", "geo"),
            ("kosek-geo-los-1", "kosek-geo-loss-1"),
            ("starlnk", "starlink"),
        ] {
            let Err(Failure::Configuration(why)) = load(Path::new(name)) else {
                panic!("{name} is known");
            };
            assert!(why.contains(&format!("nearest are {near}, ")), "{why}");
        }
        assert!(name(Path::new("missing.toml")).is_none());
        assert!(name(Path::new("./geo")).is_none());
    }
}
