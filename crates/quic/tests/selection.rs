//! Names of controllers: found, told when unknown, and the same in the schema.

use bentpipe_quic::{Selection, Settings};
use schemars::schema_for;

#[test]
fn every_controller_is_found_by_its_name_and_is_in_the_schema() {
    let schema = schema_for!(Selection);
    let known = schema.get("enum").and_then(|names| names.as_array());
    let known = known.expect("a list of names");
    assert_eq!(known.len(), Selection::all().count());
    for selection in Selection::all() {
        assert_eq!(selection.name().parse(), Ok(selection));
        assert!(known.iter().any(|name| name == selection.name()));
        assert!(Settings::new(selection).initial_window > 0);
    }
}

#[test]
fn an_unknown_controller_is_told_the_known_ones() {
    let error = "vegas".parse::<Selection>().expect_err("there is none");
    let error = error.to_string();
    assert!(error.contains("\"vegas\""), "{error}");
    for selection in Selection::all() {
        assert!(
            error.contains(selection.name()),
            "{error} lacks {selection}"
        );
    }
}
