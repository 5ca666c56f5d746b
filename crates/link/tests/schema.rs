//! The JSON Schema of a scenario: what can be written as text is said to be text.

use bentpipe_link::Scenario;
use serde_json::Value;

fn definitions() -> Value {
    let schema = schemars::schema_for!(Scenario);
    schema.get("$defs").expect("a scenario has parts").clone()
}

#[test]
fn quantities_are_strings_with_a_pattern_and_examples() {
    let definitions = definitions();
    for name in [
        "Rate",
        "Bytes",
        "Span",
        "OneWayDelay",
        "Probability",
        "Frequency",
        "Decibel",
        "QueueLimit",
    ] {
        let quantity = &definitions[name];
        assert_eq!(quantity["type"], "string", "{name}");
        assert!(quantity["pattern"].is_string(), "{name}");
        assert!(quantity["examples"][0].is_string(), "{name}");
    }
}

#[test]
fn text_or_table_is_one_of_both_and_every_table_has_one_model() {
    let definitions = definitions();
    for (name, short, models) in [
        ("RateSpec", "Rate", 5),
        ("DelaySpec", "OneWayDelay", 4),
        ("LossSpec", "Probability", 6),
        ("CorruptSpec", "Probability", 2),
        ("QueueSpec", "QueueLimit", 5),
    ] {
        let forms = definitions[name]["oneOf"].as_array().expect(name);
        assert_eq!(forms[0]["$ref"], format!("#/$defs/{short}"), "{name}");
        assert_eq!(forms.len(), 1 + models, "{name}");
        for table in &forms[1..] {
            let properties = table["properties"].as_object().expect(name);
            assert_eq!(properties.len(), 1, "{name}");
            assert_eq!(table["additionalProperties"], false, "{name}");
        }
    }
}

#[test]
fn a_planned_change_is_one_flat_table_and_lists_are_lists() {
    let definitions = definitions();
    let change = &definitions["ScheduledChange"];
    let mut fields: Vec<_> = change["properties"]
        .as_object()
        .expect("it has fields")
        .keys()
        .collect();
    fields.sort();
    assert_eq!(
        fields,
        [
            "at",
            "corrupt",
            "delay",
            "duplicate",
            "jitter",
            "loss",
            "outage",
            "queue",
            "rate",
            "reorder"
        ]
    );
    assert_eq!(change["additionalProperties"], false);
    for (table, field) in [
        ("DirectionSpec", "outages"),
        ("DirectionSpec", "cross"),
        ("DirectionSpec", "change"),
        ("DvbRcs2", "others"),
        ("Mahimahi", "opportunities"),
    ] {
        let property = &definitions[table]["properties"][field];
        assert_eq!(property["type"], "array", "{table}.{field}: {property}");
    }
}
