//! The house's rules, asked of Cargo: arrows point one way, and the pure crates
//! cannot reach a clock, a random source or a socket.

use std::collections::BTreeSet;
use std::process::Command;

/// Each crate with the workspace's crates that it may build on.
const ARROWS: &[(&str, &[&str])] = &[
    ("bentpipe-units", &[]),
    ("bentpipe-link", &["bentpipe-units"]),
    (
        "bentpipe-link-validate",
        &["bentpipe-units", "bentpipe-link"],
    ),
    ("bentpipe-cc", &["bentpipe-units"]),
    ("bentpipe-trace", &[]),
    ("bentpipe-quic", &["bentpipe-units", "bentpipe-cc"]),
    (
        "bentpipe-vnet",
        &[
            "bentpipe-units",
            "bentpipe-link",
            "bentpipe-cc",
            "bentpipe-quic",
        ],
    ),
    (
        "bentpipe-tunnel",
        &["bentpipe-units", "bentpipe-cc", "bentpipe-quic"],
    ),
    (
        "bentpipe-sim",
        &[
            "bentpipe-units",
            "bentpipe-link",
            "bentpipe-cc",
            "bentpipe-quic",
            "bentpipe-vnet",
            "bentpipe-tunnel",
        ],
    ),
    (
        "bentpipe-campaign",
        &[
            "bentpipe-units",
            "bentpipe-link",
            "bentpipe-cc",
            "bentpipe-quic",
            "bentpipe-vnet",
            "bentpipe-tunnel",
            "bentpipe-sim",
        ],
    ),
    ("bentpipe-os", &["bentpipe-units", "bentpipe-tunnel"]),
    (
        "bentpipe-emulator",
        &["bentpipe-units", "bentpipe-link", "bentpipe-os"],
    ),
];

/// Crates without a clock, random numbers or I/O; nothing below them has any either.
const PURE: &[&str] = &["bentpipe-units", "bentpipe-link", "bentpipe-cc"];
/// What reaches the machine.
const MACHINE: &[&str] = &[
    "tokio",
    "mio",
    "socket2",
    "rustix",
    "libc",
    "nix",
    "getrandom",
    "async-io",
    "smol",
    "polling",
];

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo prints text")
}

fn packages() -> Vec<serde_json::Value> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn name(value: &serde_json::Value) -> &str {
    value["name"].as_str().expect("a name")
}

fn builds_on(package: &serde_json::Value) -> Vec<serde_json::Value> {
    let all = package["dependencies"].as_array().expect("dependencies");
    all.iter()
        .filter(|dependency| dependency["kind"].is_null())
        .cloned()
        .collect()
}

#[test]
fn arrows_point_one_way() {
    for package in packages() {
        let name = name(&package);
        if name == "bentpipe" {
            continue;
        }
        let (_, allowed) = ARROWS
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("{name} has no place in the picture"));
        for dependency in builds_on(&package) {
            let on = self::name(&dependency);
            let inside = on.starts_with("bentpipe");
            assert!(!inside || allowed.contains(&on), "{name} builds on {on}");
        }
    }
}

#[test]
fn nothing_below_the_pure_crates_reaches_the_machine() {
    for pure in PURE {
        let tree = cargo(&[
            "tree", "--locked", "-p", pure, "-e", "normal", "--prefix", "none",
        ]);
        let below: BTreeSet<_> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        for machine in MACHINE {
            assert!(!below.contains(machine), "{pure} reaches {machine}");
        }
    }
}

#[test]
fn the_tunnel_asks_for_no_sockets_and_no_random_numbers() {
    for package in packages() {
        if !["bentpipe-tunnel", "bentpipe-quic", "bentpipe-cc"].contains(&name(&package)) {
            continue;
        }
        for dependency in builds_on(&package) {
            let on = name(&dependency);
            assert!(
                !MACHINE.contains(&on) || on == "tokio",
                "{} builds on {on}",
                name(&package)
            );
            // Its generators are there, seeded from outside; its sources are not.
            let sources = on == "rand" && dependency["uses_default_features"] == true;
            assert!(!sources, "randomness is an input to {}", name(&package));
            let features = dependency["features"].as_array().expect("features");
            for feature in features.iter().filter_map(|feature| feature.as_str()) {
                let banned = [
                    "net",
                    "fs",
                    "process",
                    "signal",
                    "full",
                    "runtime-tokio",
                    "os_rng",
                    "thread_rng",
                ];
                assert!(
                    !banned.contains(&feature),
                    "{} asks for {on}/{feature}",
                    name(&package)
                );
            }
        }
    }
}

#[test]
fn unsafe_code_is_only_where_the_machine_is() {
    for package in packages() {
        let manifest = package["manifest_path"].as_str().expect("a path");
        let text = std::fs::read_to_string(manifest).expect("a manifest");
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{manifest} has the workspace's lints"
        );
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in std::fs::read_dir(root).expect("crates").flatten() {
        if entry.file_name() == "os" {
            continue;
        }
        for file in rust_files(&entry.path().join("src")) {
            let text = std::fs::read_to_string(&file).expect("a source file");
            assert!(
                !text.contains(concat!("unsafe", " {")),
                "{} has unsafe code",
                file.display()
            );
        }
    }
}

fn rust_files(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
