//! The house's rules, asked of Cargo: arrows point one way, and the pure crates
//! cannot reach a clock, a random source or a socket.

use std::collections::{BTreeMap, BTreeSet};
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
        "bentpipe-quicpep",
        &["bentpipe-units", "bentpipe-cc", "bentpipe-quic"],
    ),
    (
        "bentpipe-perf",
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
            "bentpipe-quicpep",
            "bentpipe-perf",
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
            "bentpipe-quicpep",
            "bentpipe-perf",
            "bentpipe-sim",
        ],
    ),
    (
        "bentpipe-os",
        &[
            "bentpipe-units",
            "bentpipe-quic",
            "bentpipe-tunnel",
            "bentpipe-perf",
        ],
    ),
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
        if ![
            "bentpipe-tunnel",
            "bentpipe-quicpep",
            "bentpipe-perf",
            "bentpipe-quic",
            "bentpipe-cc",
        ]
        .contains(&name(&package))
        {
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

/// A file by its place in its crate's modules.
type Module = Vec<String>;

/// The modules of a crate with the text of their files, tests and comments left out.
fn modules(root: &std::path::Path) -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::new();
    for file in rust_files(root) {
        let inside = file.strip_prefix(root).expect("a file of the crate");
        let mut module: Module = (inside.with_extension("").iter())
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        if ["mod", "lib", "main"].contains(&module[module.len() - 1].as_str()) {
            module.pop();
        }
        let text = std::fs::read_to_string(&file).expect("a source file");
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        let lines = code.lines().filter_map(|line| line.split("//").next());
        modules.insert(module, lines.collect::<Vec<_>>().join(" "));
    }
    modules
}

/// The paths that a `use` of `tree` brings in.
fn imports(tree: &str, prefix: &[&str], found: &mut Vec<Module>) {
    let (path, group) = match tree.split_once('{') {
        Some((path, rest)) => (path, rest.rfind('}').map(|end| &rest[..end])),
        None => (tree, None),
    };
    let parts = path.split("::").map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    let all: Vec<_> = prefix.iter().copied().chain(parts).collect();
    let Some(group) = group else {
        found.push(all.iter().map(|part| (*part).to_owned()).collect());
        return;
    };
    let (mut depth, mut begin) = (0, 0);
    for (at, letter) in group.char_indices().chain([(group.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = group[begin..at].trim();
                if !part.is_empty() {
                    imports(part, &all, found);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// The paths that `code` writes out where it needs them, without a `use`.
fn written_out(code: &str, found: &mut Vec<Module>) {
    let of_a_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    // `$crate`, in a macro, is whoever uses the macro.
    let words = code.split(|letter: char| !of_a_path(letter) && letter != '$');
    for word in words.filter(|word| word.contains("::")) {
        found.push(word.split("::").map(str::to_owned).collect());
    }
}

/// Which other files of its crate a module names; what lies below it is its own.
fn names(module: &Module, code: &str, modules: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut found = Vec::new();
    for (number, part) in code.split("use ").enumerate() {
        let (tree, rest) = match number {
            0 => ("", part),
            _ => part.split_once(';').unwrap_or((part, "")),
        };
        imports(tree, &[], &mut found);
        written_out(rest, &mut found);
    }
    let absolute = found.into_iter().filter_map(|path| {
        let ups = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => Some([module.get(..module.len().checked_sub(ups)?)?, &path[ups..]].concat()),
            _ => None,
        }
    });
    absolute
        .filter_map(|path| {
            (1..=path.len())
                .rev()
                .map(|len| path[..len].to_vec())
                .find(|path| modules.contains_key(path))
        })
        .filter(|other| !other.starts_with(module))
        .collect()
}

#[test]
fn no_file_needs_itself_through_others() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in std::fs::read_dir(root).expect("crates").flatten() {
        let modules = modules(&entry.path().join("src"));
        let edges: BTreeMap<_, _> = (modules.iter())
            .map(|(module, code)| (module, names(module, code, &modules)))
            .collect();
        for module in modules.keys() {
            let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
            while let Some(at) = next.pop() {
                for other in &edges[at] {
                    assert_ne!(
                        other,
                        module,
                        "{}: a circle of imports through {}",
                        entry.path().display(),
                        module.join("/")
                    );
                    if reached.insert(other) {
                        next.push(other);
                    }
                }
            }
        }
    }
}
