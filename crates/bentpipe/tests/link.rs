//! `bentpipe link`: the exit code of `validate` is its verdict, and mistakes in scenarios are
//! told before anything starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// A directory of a test's own, gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bentpipe-validate-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn validate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .args(["link", "validate"])
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_claim_holds_and_the_exit_code_says_so() {
    let output = validate(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let claims: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(claims.len() > 30, "{}", claims.len());
    for claim in claims {
        assert_eq!(claim["holds"], true, "{claim}");
        for field in ["claim", "source", "theirs", "ours"] {
            assert!(claim[field].as_str().is_some_and(|text| !text.is_empty()));
        }
    }
}

#[test]
fn a_claim_that_fails_is_named_and_the_exit_code_is_1() {
    let directory = Directory::new();
    for name in ["kosek-geo.toml", "kosek-leo.toml"] {
        std::fs::copy(scenarios().join(name), directory.0.join(name)).unwrap();
    }
    let here = directory.0.to_str().unwrap();
    let output = validate(&[here]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    // QPSK 1/3 instead of 1/4: 34 % more than was measured.
    let geo = directory.0.join("kosek-geo.toml");
    let right = std::fs::read_to_string(&geo).unwrap();
    std::fs::write(&geo, right.replace("modcod = 1", "modcod = 2")).unwrap();
    let report = directory.0.join("report.md");
    let output = validate(&[here, "--output", report.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(
        out.contains("FAILS  Kosek GEO: TCP goodput"),
        "what fails stands there: {out}"
    );
    assert!(out.contains("holds  Kosek LEO: TCP goodput"), "{out}");
    assert!(
        error.contains("2 of ") && error.contains(" claims fail"),
        "{error}"
    );
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("| **fails** | Kosek GEO: QUIC goodput"));

    // Another kind of return link altogether is a failed claim, too, not a crash.
    let (head, _) = right.split_once("[return]").unwrap();
    let plain = "[return]\nrate = \"5 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n[ground]\ndelay = \"40 ms\"\n";
    std::fs::write(&geo, format!("{head}{plain}")).unwrap();
    let output = validate(&[here]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("FAILS  RBDC of 5120 kbit/s"));
}

#[test]
fn a_directory_without_the_scenarios_is_a_mistake_and_the_exit_code_is_2() {
    let directory = Directory::new();
    let output = validate(&[directory.0.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("kosek-geo.toml"), "{error}");
}

#[test]
fn a_mistake_in_a_scenario_names_file_line_and_remedy_and_the_exit_code_is_2() {
    let directory = Directory::new();
    let geo = std::fs::read_to_string(scenarios().join("geo.toml")).unwrap();
    let file = directory.0.join("geo.toml");
    for (from, to, wanted) in [
        (
            "delay = \"250 ms\"",
            "delay.trace = { file = \"way.csv\", columns = [\"s\", \"ms\"], at_end = \"hold\" }",
            "line 8: forward.delay.trace.file = \"way.csv\": line 2: 1 s stands behind 2 s; the moments of a trace must increase",
        ),
        (
            "queue = \"1250 kB\"",
            "queue = \"1 kB\"",
            "line 10: forward.queue = \"1 kB\": too small for one packet of 1280 bytes, which IPv6 requires of every link (RFC 8200, section 5)",
        ),
    ] {
        std::fs::write(directory.0.join("way.csv"), "2,20\n1,20\n").unwrap();
        std::fs::write(&file, geo.replacen(from, to, 1)).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
            .args(["link", "explain", file.to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let error = text(&output.stderr);
        let whole = format!("{}: {wanted}", file.display());
        assert!(error.contains(&whole), "{error}");
    }
}
