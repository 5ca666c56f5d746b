//! `bentpipe sim`: a small campaign from file to table.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory of its own, gone when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bpsim-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn run(&self, plan: &str) -> Output {
        std::fs::write(self.0.join("plan.toml"), plan).unwrap();
        Command::new(env!("CARGO_BIN_EXE_bentpipe"))
            .args(["sim", "plan.toml", "--out", "out"])
            .current_dir(&self.0)
            .output()
            .unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join("out").join(name)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PLAN: &str = r#"name = "small"
seeds = 2
until = "60 s"
[link]
name = "leo"
forward = { rate = "20 Mbit/s", delay = "20 ms", loss = { from = "0.01 %", to = "1 %", steps = 3, scale = "log" }, queue = "1 BDP" }
return = { rate = "20 Mbit/s", delay = "20 ms", queue = "1 BDP" }
[flow]
controller = "newreno"
bytes = "200 kB"
[[case]]
name = "slow"
link.forward.rate = "5 Mbit/s"
[[case]]
name = "fast"
"#;

#[test]
fn a_campaign_has_all_its_runs_in_order_and_a_line_per_point() {
    let place = Place::new("campaign");
    let ended = place.run(PLAN);
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let records = place.read("records.jsonl");
    let runs: Vec<String> = (records.lines())
        .filter_map(|line| {
            serde_json::from_str::<serde_json::Value>(line)
                .unwrap()
                .get("run")
                .cloned()
        })
        .map(|run| {
            let axes = &run["axes"];
            let of = |name: &str| axes[name].as_str().unwrap().to_owned();
            format!("{} {} {}", of("case"), of("link.forward.loss"), run["seed"])
        })
        .collect();
    assert_eq!(
        runs.join("; "),
        "slow 0.01 % 1; slow 0.01 % 2; slow 0.1 % 1; slow 0.1 % 2; slow 1 % 1; slow 1 % 2; \
         fast 0.01 % 1; fast 0.01 % 2; fast 0.1 % 1; fast 0.1 % 2; fast 1 % 1; fast 1 % 2"
    );
    assert!(records.starts_with("{\"schema\":\"bentpipe/records/1\"}\n{\"run\""));
    assert_eq!(records.matches("schema").count(), 1);
    let summary: serde_json::Value = serde_json::from_str(&place.read("summary.json")).unwrap();
    let lines = summary.as_array().unwrap();
    assert_eq!(lines.len(), 6);
    assert!(
        lines
            .iter()
            .all(|line| line["n_ok"] == 2 && line["n_total"] == 2)
    );
    let seconds = |line: usize| lines[line]["median_s"].as_f64().unwrap();
    // 200 kB are 0.33 s at 5 Mbit/s, after two round trips of 40 ms.
    assert!(seconds(0) > 0.41 && seconds(0) < 0.6, "{}", seconds(0));
    assert!(seconds(3) < seconds(0));
    assert_eq!(place.read("summary.csv").lines().count(), 7);
    let resolved: serde_json::Value = serde_json::from_str(&place.read("resolved.json")).unwrap();
    assert_eq!(resolved[0][1]["link"]["forward"]["queue"], "25 kB");

    // The same plan gives the same bytes, whichever core was faster.
    let again = place.run(PLAN);
    assert!(again.status.success());
    assert_eq!(records, place.read("records.jsonl"));
}

#[test]
fn a_plan_that_is_wrong_starts_nothing() {
    let place = Place::new("wrong");
    let many = PLAN.replace(
        "seeds = 2",
        "seeds = { from = 1, to = 10000, steps = 10000 }",
    );
    let many = many.replace("\"200 kB\"", "[\"1 kB\", \"2 kB\", \"3 kB\", \"4 kB\"]");
    for (plan, expected) in [
        (
            PLAN.replace("until", "untill"),
            "TOML parse error at line 3",
        ),
        (
            PLAN.replace("\"newreno\"", "[]"),
            "line 9: flow.controller: an empty list has nothing to run",
        ),
        (PLAN.replace("60 s", "0 s"), "line 3: until: until = 0 ns"),
        (many, "a sweep of 120000 points"),
        (
            PLAN.replace("seeds = 2", "seeds = 20000"),
            "line 2: seeds: 20000 runs: give 1 to 10000",
        ),
    ] {
        let ended = place.run(&plan);
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{error}");
        assert!(error.starts_with("bentpipe: plan.toml: "), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(!place.0.join("out").exists(), "{expected}");
    }
}

#[test]
fn this_machine_can_be_a_host_of_a_plan() {
    let place = Place::new("host");
    let ended = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .args(["sim", "record-host", "--for", "1 s"])
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let host = String::from_utf8(ended.stdout).unwrap();
    let plan = PLAN.replace("bytes = \"200 kB\"", &format!("bytes = \"200 kB\"\n{host}"));
    assert_ne!(plan, PLAN);
    let ended = place.run(&plan);
    assert!(ended.status.success(), "{host}\n{ended:?}");
}

/// Figures of runs of one length say nothing beside those of another.
#[test]
fn drawn_links_run_for_as_long_as_is_asked_and_known_figures_are_of_that_length() {
    let place = Place::new("drawn");
    let never_worst = |arguments: &str| {
        let ended = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
            .args(["sim", "never-worst", "--links", "1"])
            .args(arguments.split(' '))
            .current_dir(&place.0)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code(), said)
    };
    std::fs::write(place.0.join("plan.toml"), PLAN).unwrap();
    let (code, said) = never_worst("--seconds 1 --out one.json");
    assert_eq!(code, Some(0), "{said}");
    let runs = std::fs::read_to_string(place.0.join("one.json")).unwrap();
    let runs: serde_json::Value = serde_json::from_str(&runs).unwrap();
    assert!(
        runs.as_array()
            .unwrap()
            .iter()
            .all(|run| run["lasted"] == 1)
    );

    let (code, said) = never_worst("--seconds 1 --known one.json --out again.json");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 of 1 runs"), "{said}");
    for (wrong, why) in [
        (
            "--seconds 2 --known one.json",
            "--known: its run over link 0 lasted 1 s, one of this command lasts 2 s",
        ),
        (
            "--known plan.toml",
            "--known plan.toml: expected ident at line 1",
        ),
        ("--link 200", "--link 200: the set has links 0 to "),
        ("--seconds 0", "--seconds 0: give 1 to 60"),
        ("--seconds 61", "--seconds 61: give 1 to 60"),
    ] {
        let (code, said) = never_worst(wrong);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
