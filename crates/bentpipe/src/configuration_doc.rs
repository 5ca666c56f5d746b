//! docs/configuration.md, made from the types of the configuration files.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{config, quic_pep};

const HEAD: &str = "# Configuration\n\nMade from the types in `crates/bentpipe/src/config.rs` and `quic_pep/config.rs`; `UPDATE=1 cargo test -p bentpipe configuration` writes it anew.\n`bentpipe check FILE` says whether a terminal's or a gateway's file is right. An option that is not here is an error, and so is one\nthat would have no effect. `bentpipe` reads a file again at SIGHUP where it says so; a wrong file changes nothing.\n";

fn document() -> String {
    let mut text = HEAD.to_owned();
    for (title, schema) in [
        ("terminal.toml", config::terminal_schema()),
        ("gateway.toml", config::gateway_schema()),
        ("quic-pep.toml", quic_pep::schema()),
    ] {
        let _ = write!(text, "\n## {title}\n");
        let schema = crate::schema::sorted(schema).to_value();
        table(&mut text, &schema, &schema, None);
    }
    text
}

/// One table of the file, with its name and what is said of it there, and then those in it.
fn table(text: &mut String, root: &Value, schema: &Value, heading: Option<(&str, &str)>) {
    let properties = schema["properties"]
        .as_object()
        .expect("a table has options");
    let required = |name: &str| {
        let list = schema["required"].as_array();
        list.is_some_and(|list| list.iter().any(|required| required == name))
    };
    if let Some((name, about)) = heading {
        let _ = write!(text, "\n### [{name}]\n\n{about}\n");
    }
    let mut inner = Vec::new();
    let mut rows = String::new();
    for (option, declared) in properties {
        let resolved = resolve(root, declared);
        let (of_option, of_type) = (&declared["description"], &resolved["description"]);
        let is_table = resolved.get("properties").is_some();
        let about = match is_table && !is_shared(root, declared) {
            true => of_type.as_str().or(of_option.as_str()),
            false => of_option.as_str().or(of_type.as_str()),
        };
        let about = about.unwrap_or_default().replace('\n', " ");
        assert!(!about.is_empty(), "{option} says nothing");
        if is_table {
            inner.push((option, about, resolved));
            continue;
        }
        let default = match declared.get("default") {
            Some(Value::Null) | None if required(option) => "(to be given)".to_owned(),
            Some(Value::Null) | None => "(none)".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        let choices = choices(&resolved);
        let _ = writeln!(rows, "| `{option}` | {default} | {about}{choices} |");
    }
    if !rows.is_empty() {
        let _ = write!(
            text,
            "\n| option | default | meaning |\n|---|---|---|\n{rows}"
        );
    }
    for (option, about, schema) in inner {
        let name = match heading {
            Some((outer, _)) => format!("{outer}.{option}"),
            None => option.clone(),
        };
        table(text, root, &schema, Some((&name, &about)));
    }
}

/// What an option can be, where that is one of a few words.
fn choices(schema: &Value) -> String {
    let Some(list) = schema["oneOf"].as_array() else {
        return String::new();
    };
    let words = list.iter().map(|choice| {
        let about = choice["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " ");
        format!(" `{}`: {about}", choice["const"])
    });
    words.collect()
}

/// Whether another option is of the same type, so that the type says nothing of either.
fn is_shared(root: &Value, declared: &Value) -> bool {
    let named = declared["$ref"]
        .as_str()
        .or_else(|| declared["anyOf"][0]["$ref"].as_str());
    let uses = |name: &str| root.to_string().matches(&format!("\"{name}\"")).count();
    named.is_some_and(|name| uses(name) > 1)
}

/// Follows a reference, and takes the type out of an option's.
fn resolve(root: &Value, schema: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = root.pointer(&reference[1..]);
        return found.expect("references lead somewhere").clone();
    }
    match schema["anyOf"].as_array() {
        Some(list) => resolve(root, &list[0]),
        None => schema.clone(),
    }
}

#[test]
fn the_document_of_the_configuration_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let document = document();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, document).unwrap();
        return;
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == document,
        "docs/configuration.md is not what the types say; UPDATE=1 cargo test -p bentpipe configuration"
    );
}
