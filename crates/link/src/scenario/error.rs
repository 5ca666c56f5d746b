//! The reasons why a text is not a scenario.

/// Why a text is not a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is not TOML, or not of this shape; the message shows line and column.
    #[error("{}{}", .0.to_string().trim_end(), remedy(.0.message()))]
    Syntax(#[from] toml::de::Error),
    /// It reads well but cannot be.
    #[error("{}{field} = {value:?}: {why}", line.map_or(String::new(), |line| format!("line {line}: ")))]
    Value {
        /// Path of the field, dotted.
        field: String,
        /// Its line, where it can be told.
        line: Option<usize>,
        /// What stands there.
        value: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

/// What to write where something is missing.
fn remedy(message: &str) -> &'static str {
    match message {
        "missing field `at_end`" => {
            "; say what happens when the trace runs out: at_end = \"hold\", \"loop\" or \"end\""
        }
        "missing field `rate`" => "; like rate = \"20 Mbit/s\"",
        "missing field `delay`" => "; one way, like delay = \"250 ms\"",
        "missing field `queue`" => "; like queue = \"1 BDP\" or queue = \"25 packets\"",
        "missing field `name`" => "; like name = \"geo\"",
        "missing field `forward`" => "; a table [forward]: the link from gateway to terminal",
        "missing field `return`" => "; a table [return]: the link from terminal to gateway",
        _ => "",
    }
}
