//! The shape of a plan, from the JSON Schema of its type: which fields are lists.

use serde_json::Value;

/// What a schema says about one place in a plan. Where the schema knows nothing of the
/// place, it says nothing.
#[derive(Debug, Clone)]
pub struct Shape<'s> {
    root: &'s Value,
    /// Schemas that the value may follow; references and alternatives are resolved.
    forms: Vec<&'s Value>,
}

impl<'s> Shape<'s> {
    /// The shape of a whole plan.
    pub fn of(schema: &'s Value) -> Self {
        let mut shape = Self {
            root: schema,
            forms: Vec::new(),
        };
        shape.add(schema);
        shape
    }

    /// The shape of the field `name` of a table.
    pub fn field(&self, name: &str) -> Self {
        self.inner(|form| {
            let named = form.get("properties").and_then(|fields| fields.get(name));
            named.into_iter().collect()
        })
    }

    /// The shape of a list's elements.
    pub fn items(&self) -> Self {
        self.inner(|form| {
            let first = form.get("prefixItems").and_then(Value::as_array);
            let rest = form.get("items");
            first.into_iter().flatten().chain(rest).collect()
        })
    }

    /// Whether the field is a list by nature.
    pub fn is_list(&self) -> bool {
        self.forms.iter().any(|form| match form.get("type") {
            Some(Value::String(kind)) => kind == "array",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
            _ => false,
        })
    }

    fn inner(&self, inside: impl Fn(&'s Value) -> Vec<&'s Value>) -> Self {
        let mut shape = Self {
            root: self.root,
            forms: Vec::new(),
        };
        for form in self.forms.iter().flat_map(|form| inside(form)) {
            shape.add(form);
        }
        shape
    }

    fn add(&mut self, schema: &'s Value) {
        self.forms.push(schema);
        if let Some(path) = schema.get("$ref").and_then(Value::as_str)
            && let Some(target) = path
                .strip_prefix('#')
                .and_then(|path| self.root.pointer(path))
        {
            self.add(target);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let alternatives = schema.get(key).and_then(Value::as_array);
            for alternative in alternatives.into_iter().flatten() {
                self.add(alternative);
            }
        }
    }
}
