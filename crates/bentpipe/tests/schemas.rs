//! `schemas/`: what `bentpipe schema` prints, kept for those who generate types from it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .arg("schema")
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_files_are_what_the_binary_prints() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let names: BTreeSet<String> = printed(&[]).lines().map(str::to_owned).collect();
    let files: BTreeSet<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(files, names, "make schemas");
    for name in names {
        let kept = std::fs::read_to_string(directory.join(format!("{name}.json"))).unwrap();
        assert!(kept == printed(&[&name]), "{name} differs: make schemas");
    }
}

#[test]
fn a_name_that_is_not_there_is_refused_with_those_that_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .args(["schema", "plans"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("records"), "{said}");
}
