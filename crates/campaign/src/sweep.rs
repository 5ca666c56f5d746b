//! The points of a sweep, from one file.
//!
//! Any field may have a list instead of a value, or a [range](crate::range); the points
//! are all combinations. Lists in fields that are lists anyway are no sweep, but the
//! tables in them may have some. `[[case]]` tables are laid over the file one after the
//! other: a sweep over several fields at once.

use std::collections::BTreeMap;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::problem::Problem;
use crate::shape::Shape;

/// The values that a point was given, by the dotted names of their fields.
pub type Axes = BTreeMap<String, String>;

/// A file; spans tell where in the text its values stand.
pub type File<'t> = Spanned<DeTable<'t>>;

/// Points that a sweep may have; more would run for days.
pub const MOST_POINTS: usize = 100_000;

/// One point of a sweep.
#[derive(Debug, Clone)]
pub struct Point<'t> {
    /// What was chosen.
    pub axes: Axes,
    /// The file with one value in each field.
    pub file: File<'t>,
}

/// All points of the file `text`: cases in their order, then the fields by name, the last
/// one changing fastest. `schema` is the JSON Schema for a file's kind of plan; it says which
/// fields are lists anyway.
pub fn points<'t, 's>(
    text: &'t str,
    schema: impl Fn(&DeTable<'t>) -> &'s Value,
) -> Result<Vec<Point<'t>>, Problem> {
    let mut file = DeTable::parse(text).map_err(Problem::Syntax)?;
    let mut points = Vec::new();
    for (name, file) in cases(text, &mut file)? {
        let mut fields = Vec::new();
        let shape = Shape::of(schema(file.get_ref()));
        find(text, file.get_ref(), &shape, &mut Vec::new(), &mut fields)?;
        let count = (fields.iter()).fold(1.0, |product, field| product * field.values.len() as f64);
        if points.len() as f64 + count > MOST_POINTS as f64 {
            let sizes: Vec<_> = (fields.iter())
                .map(|field| format!("{} has {}", field.name(), field.values.len()))
                .collect();
            let why = format!(
                "a sweep of {count:.0} points ({}); {MOST_POINTS} are the most, so leave out values",
                sizes.join(", ")
            );
            return Err(Problem::at(text, &file.span(), "sweep", why));
        }
        let case = name.map(|name| ("case".to_owned(), name));
        let mut mine = vec![Point {
            axes: case.into_iter().collect(),
            file,
        }];
        for field in &fields {
            mine = (mine.iter()).flat_map(|point| field.over(point)).collect();
        }
        points.append(&mut mine);
    }
    Ok(points)
}

// --- cases --------------------------------------------------------------------------

type Case<'t> = (Option<String>, File<'t>);

/// The file without its cases, or once for each with the case laid over it.
fn cases<'t>(text: &str, file: &mut File<'t>) -> Result<Vec<Case<'t>>, Problem> {
    let Some(cases) = file.get_mut().remove("case") else {
        return Ok(vec![(None, file.clone())]);
    };
    let span = cases.span();
    let DeValue::Array(cases) = cases.into_inner() else {
        let why = "cases are tables: write [[case]] over each";
        return Err(Problem::at(text, &span, "case", why));
    };
    if cases.is_empty() {
        return Err(Problem::at(text, &span, "case", EMPTY));
    }
    let mut all: Vec<Case<'t>> = Vec::new();
    for case in cases.iter() {
        let wrong = |why: &str| Err(Problem::at(text, &case.span(), "case", why));
        let DeValue::Table(over) = case.get_ref() else {
            return wrong("cases are tables: write [[case]] over each");
        };
        let mut over = over.clone();
        let name = over.remove("name");
        let Some(name) = name.as_ref().and_then(|name| name.get_ref().as_str()) else {
            return wrong("it has no name; add one, like name = \"one\"");
        };
        if (all.iter()).any(|(other, _)| other.as_deref() == Some(name)) {
            return wrong(&format!("two have the name {name:?}; give each its own"));
        }
        let mut table = file.clone();
        lay_over(table.get_mut(), over);
        all.push((Some(name.to_owned()), table));
    }
    Ok(all)
}

/// Tables are merged; everything else takes the place of what was there.
fn lay_over<'t>(under: &mut DeTable<'t>, over: DeTable<'t>) {
    for (key, value) in over {
        let there = under.get_mut(&**key.get_ref()).map(Spanned::get_mut);
        let span = value.span();
        match (there, value.into_inner()) {
            (Some(DeValue::Table(under)), DeValue::Table(over)) => lay_over(under, over),
            (_, value) => {
                // The key goes too: its place in the text is the case's from now on.
                under.remove(&**key.get_ref());
                under.insert(key, Spanned::new(span, value));
            }
        }
    }
}

// --- fields -------------------------------------------------------------------------

const EMPTY: &str = "an empty list has nothing to run; give at least one value";

/// A field with several values.
struct Field<'t> {
    path: Vec<String>,
    values: Vec<Spanned<DeValue<'t>>>,
}

impl<'t> Field<'t> {
    fn name(&self) -> String {
        self.path.join(".")
    }

    /// `point` once with each value.
    fn over<'a>(&'a self, point: &'a Point<'t>) -> impl Iterator<Item = Point<'t>> + 'a {
        self.values.iter().map(|value| {
            let mut point = point.clone();
            point.axes.insert(self.name(), shown(value.get_ref()));
            *at(point.file.get_mut(), &self.path) = value.clone();
            point
        })
    }
}

/// The value at `path`, array elements by number.
fn at<'a, 't>(table: &'a mut DeTable<'t>, path: &[String]) -> &'a mut Spanned<DeValue<'t>> {
    const FOUND: &str = "the path was found in this table";
    let (first, rest) = path.split_first().expect(FOUND);
    let mut value = table.get_mut(first.as_str()).expect(FOUND);
    for step in rest {
        value = match value.get_mut() {
            DeValue::Table(inner) => inner.get_mut(step.as_str()),
            DeValue::Array(inner) => (step.parse::<usize>().ok()).and_then(|at| inner.get_mut(at)),
            _ => None,
        }
        .expect(FOUND);
    }
    value
}

/// Finds the fields that have lists in which one value is wanted.
fn find<'t>(
    text: &str,
    table: &DeTable<'t>,
    shape: &Shape<'_>,
    path: &mut Vec<String>,
    fields: &mut Vec<Field<'t>>,
) -> Result<(), Problem> {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let shape = shape.field(key.get_ref());
        match value.get_ref() {
            DeValue::Array(list) if shape.is_list() && !lists_of(list, &shape) => {
                for (index, element) in list.iter().enumerate() {
                    if let DeValue::Table(inner) = element.get_ref() {
                        path.push(index.to_string());
                        find(text, inner, &shape.items(), path, fields)?;
                        path.pop();
                    }
                }
            }
            DeValue::Array(list) => {
                check(list)
                    .map_err(|why| Problem::at(text, &value.span(), &path.join("."), why))?;
                fields.push(Field {
                    path: path.clone(),
                    values: list.to_vec(),
                });
            }
            DeValue::Table(inner) => find(text, inner, &shape, path, fields)?,
            _ => {}
        }
        path.pop();
    }
    Ok(())
}

/// Whether `list` has lists where its shape wants values: a sweep over whole lists.
fn lists_of(list: &DeArray<'_>, shape: &Shape<'_>) -> bool {
    let all = || (list.iter()).all(|element| matches!(element.get_ref(), DeValue::Array(_)));
    !list.is_empty() && !shape.items().is_list() && all()
}

fn check(list: &DeArray<'_>) -> Result<(), String> {
    if list.is_empty() {
        return Err(EMPTY.into());
    }
    let values: Vec<_> = list.iter().map(|value| shown(value.get_ref())).collect();
    match (1..values.len()).find(|&index| values[..index].contains(&values[index])) {
        Some(twice) => Err(format!("{:?} stands in the list twice", values[twice])),
        None => Ok(()),
    }
}

/// A value as it is shown in tables.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(moment) => moment.to_string(),
        DeValue::Array(list) => {
            let list: Vec<_> = list.iter().map(|value| shown(value.get_ref())).collect();
            format!("[{}]", list.join(", "))
        }
        DeValue::Table(table) => {
            let fields: Vec<_> = (table.iter())
                .map(|(key, value)| format!("{} {}", key.get_ref(), shown(value.get_ref())))
                .collect();
            fields.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::json;

    use super::*;

    /// Of a plan with a list of tables and a list of pairs.
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        json!({
            "properties": {
                "change": { "type": ["array", "null"], "items": { "$ref": "#/$defs/Change" } },
                "points": { "type": "array", "items": { "type": "array" } },
            },
            "$defs": { "Change": { "properties": { "at": { "type": "string" } } } },
        })
    });

    fn points(text: &str) -> Result<Vec<Point<'_>>, Problem> {
        super::points(text, |_| &SCHEMA)
    }

    fn axes(text: &str) -> Vec<String> {
        let points = points(text).unwrap_or_else(|problem| panic!("{problem}"));
        (points.iter())
            .map(|point| {
                let axes: Vec<_> = (point.axes.iter())
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                axes.join(" ")
            })
            .collect()
    }

    #[test]
    fn all_combinations_in_the_order_of_names() {
        let text = "seeds = 1\n[link]\nrate = [\"1 Mbit/s\", \"2 Mbit/s\"]\n[flow]\ncontroller = [\"a\", \"b\"]\n";
        assert_eq!(
            axes(text),
            [
                "flow.controller=a link.rate=1 Mbit/s",
                "flow.controller=a link.rate=2 Mbit/s",
                "flow.controller=b link.rate=1 Mbit/s",
                "flow.controller=b link.rate=2 Mbit/s",
            ]
        );
        assert_eq!(axes("seeds = 1"), [""]);
    }

    #[test]
    fn lists_by_nature_are_no_sweep_but_what_is_in_them_is() {
        let text = "change = [{ at = [\"1 s\", \"2 s\"] }, { at = \"3 s\" }]\npoints = [[\"0 s\", \"1 s\"]]";
        assert_eq!(axes(text), ["change.0.at=1 s", "change.0.at=2 s"]);
    }

    #[test]
    fn lists_of_such_lists_are_a_sweep() {
        let text = "change = [[], [{ at = \"1 s\" }, { at = \"2 s\" }]]";
        assert_eq!(axes(text), ["change=[]", "change=[at 1 s, at 2 s]"]);
    }

    #[test]
    fn a_case_is_laid_over_the_file_and_may_have_lists_of_its_own() {
        let text = "[link]\nqueue = \"1 BDP\"\ndelay = \"1 ms\"\n[[case]]\nname = \"small\"\nlink.queue = [\"1 kB\", \"2 kB\"]\n[[case]]\nname = \"codel\"\nlink.queue = { codel = { limit = \"9 kB\" } }\n";
        let points = points(text).expect("points");
        let queues: Vec<_> = (points.iter())
            .map(|point| {
                let link = point.file.get_ref()["link"].get_ref();
                let shown = ["queue", "delay"].map(|key| shown(link[key].get_ref()));
                format!("{}: {}", point.axes["case"], shown.join(" "))
            })
            .collect();
        assert_eq!(
            queues,
            [
                "small: 1 kB 1 ms",
                "small: 2 kB 1 ms",
                "codel: codel limit 9 kB 1 ms"
            ]
        );
    }

    #[test]
    fn what_cannot_be_swept_over_says_where_and_why() {
        let long = format!(
            "[{}]",
            (0..400)
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join(",")
        );
        let many = format!("seeds = {long}\nuntil = {long}\n");
        for (text, expected) in [
            (
                "a = 1\n[b]\nc = []\n",
                "line 3: b.c: an empty list has nothing to run",
            ),
            ("a = [1, 2, 1]", "line 1: a: \"1\" stands in the list twice"),
            ("case = []", "line 1: case: an empty list"),
            ("case = 3", "line 1: case: cases are tables"),
            ("[[case]]\na = 1", "line 1: case: it has no name"),
            (
                "[[case]]\nname = \"x\"\n[[case]]\nname = \"x\"",
                "line 3: case: two have the name",
            ),
            (
                &*many,
                "line 1: sweep: a sweep of 160000 points (seeds has 400, until has 400); 100000 are the most",
            ),
        ] {
            let problem = points(text).expect_err(text).to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
