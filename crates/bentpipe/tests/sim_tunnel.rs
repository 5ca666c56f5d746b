//! `bentpipe sim` with terminals and a gateway: the same plan, the same bytes.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory of its own, gone when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bpsimt-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn run(&self, plan: &str, out: &str) -> Output {
        std::fs::write(self.0.join("plan.toml"), plan).unwrap();
        Command::new(env!("CARGO_BIN_EXE_bentpipe"))
            .args(["sim", "plan.toml", "--out", out])
            .current_dir(&self.0)
            .output()
            .unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PLAN: &str = r#"name = "beam"
through = "tunnel"
seeds = 2
until = "120 s"
terminals = [1, 3]

[link]
name = "geo"
forward = { rate = "20 Mbit/s", delay = "250 ms", loss = "1 %", queue = "300 kB" }
return = { rate = "5 Mbit/s", delay = "250 ms", loss = "1 %", queue = "100 kB" }
ground = { delay = "40 ms" }

[transport]
controller = "cubic"
expected_rate = "20 Mbit/s"

[[flow]]
name = "file"
start = "5 s"
stagger = "1 s"
download = "1 MB"

[[flow]]
name = "mail"
start = "6 s"
count = 2
every = "3 s"
upload = "50 kB"
"#;

#[test]
fn two_processes_write_the_same_records() {
    let place = Place::new("twice");
    for out in ["one", "other"] {
        let ended = place.run(PLAN, out);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{said}");
        let progress = |line: &str| line.contains(" runs");
        let only = said.lines().all(progress);
        assert!(only, "ends do not log into a simulation: {said}");
    }
    let [one, other] = ["one", "other"].map(|out| place.read(&format!("{out}/records.jsonl")));
    assert!(one == other, "the records differ");
    let flows = one.matches("\"record\":\"flow\"").count();
    assert_eq!(flows, 2 * 3 + 2 * 9, "each flow of each run has its record");

    let summary: serde_json::Value = serde_json::from_str(&place.read("one/summary.json")).unwrap();
    let lines: Vec<_> = summary
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            let axes = &line["axes"];
            let text = |name: &str| axes[name].as_str().unwrap().to_owned();
            let counts = (line["n_ok"].as_u64(), line["n_total"].as_u64());
            (text("terminals"), text("flow"), counts)
        })
        .collect();
    let line = |terminals: &str, flow: &str, count: u64| {
        (terminals.into(), flow.into(), (Some(count), Some(count)))
    };
    assert_eq!(
        lines,
        [
            line("1", "file", 2),
            line("1", "mail", 4),
            line("3", "file", 6),
            line("3", "mail", 12),
        ]
    );
}

#[test]
fn a_plan_that_cannot_be_is_refused_with_its_place() {
    let place = Place::new("refused");
    for (from, to, told) in [
        (
            "terminals = [1, 3]",
            "terminals = 0",
            "line 5: terminals: 0 terminals: give 1 to 1000",
        ),
        (
            "terminals = [1, 3]",
            "terminals = 900",
            "line 5: terminals: 900 terminals, but the gateway's memory is for",
        ),
        (
            "download = \"1 MB\"",
            "download = \"1 MB\"\nupload = \"1 MB\"",
            "flow.0.download: give one of this, upload and call",
        ),
        (
            "name = \"mail\"",
            "name = \"file\"",
            "two flows are called \"file\"",
        ),
        ("controller = \"cubic\"", "controller = \"reno\"", "reno"),
        ("until = \"120 s\"", "until = \"0 s\"", "line 4: until"),
        (
            "until = \"120 s\"",
            "until = \"120 s\"\ngranularity = \"1 s\"",
            "line 5: granularity",
        ),
        (
            "until = \"120 s\"",
            "until = \"120 s\"\nhost = { like = \"busy\", tick = \"1 s\" }",
            "line 5: host: terminals[0].host.tick = 1 s: give at most 100 ms",
        ),
        (
            "until = \"120 s\"",
            "until = \"120 s\"\ngateway_host = { stall_every = \"1 us\" }",
            "line 5: gateway_host: gateway_host.stall_every",
        ),
        ("through = \"tunnel\"", "through = \"tin\"", "tin"),
        ("queue = \"300 kB\"", "queue = \"-1 kB\"", "-1 kB"),
    ] {
        assert!(PLAN.contains(from));
        let ended = place.run(&PLAN.replacen(from, to, 1), "out");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(
            said.contains("plan.toml") && said.contains(told),
            "{told:?} in: {said}"
        );
        assert!(!place.0.join("out").exists(), "nothing has begun");
    }
}

#[test]
fn what_never_ends_ends_with_a_verdict() {
    let place = Place::new("endless");
    let dark = PLAN
        .replace("loss = \"1 %\", queue = \"300 kB\"", "queue = \"300 kB\", outages = [{ from = \"8 s\", for = \"1000 h\", packets = \"lost\" }]")
        .replace("download = \"1 MB\"", "download = \"100 MB\"")
        .replace("until = \"120 s\"", "until = \"24 h\"\nsample_every = \"1 h\"");
    let ended = place.run(&dark, "out");
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let summary: serde_json::Value = serde_json::from_str(&place.read("out/summary.json")).unwrap();
    assert_eq!(summary[0]["verdicts"]["reset"], 2, "{summary}");
}
