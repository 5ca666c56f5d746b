//! A quantity over time: points in the scenario, or the file beside it that they are read from.

use std::fmt::Display;
use std::str::FromStr;

use bentpipe_units::{Decibel, OneWayDelay, ParseError, Rate, Span, Time, rounded};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens when a trace runs out. There is no default: a scenario says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AtEnd {
    /// The last value holds for ever.
    Hold,
    /// It begins again. The last point is the length of the loop; its value is
    /// only approached, never held.
    Loop,
    /// The link goes down for good.
    End,
}

/// The value between two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Between {
    /// That of the earlier point.
    #[default]
    Step,
    /// On the straight line from one to the other.
    Line,
}

/// A quantity over time. Before its first point the first value holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trace<V> {
    /// Moments since the start with the value from then on.
    #[serde(default = "Vec::<(Span, V)>::new")]
    pub points: Vec<(Span, V)>,
    /// Instead of points: a text file of two columns, relative to the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The units of the file's two columns, like `["s", "ms"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<(String, String)>,
    /// Steps or lines between the points.
    #[serde(default)]
    pub between: Between,
    /// What happens after the last point.
    pub at_end: AtEnd,
}

/// What a trace may consist of.
pub trait Value: Copy + FromStr<Err = ParseError> + Display {
    /// The value `fraction` of the way from `self` to `next`.
    fn toward(self, next: Self, fraction: f64) -> Self;
    /// The value as a number, for means.
    fn number(self) -> f64;
}

fn between(from: u64, to: u64, fraction: f64) -> u64 {
    rounded(from as f64 + (to as f64 - from as f64) * fraction)
}

impl Value for Rate {
    fn toward(self, next: Self, fraction: f64) -> Self {
        Self::from_bits_per_second(between(
            self.bits_per_second(),
            next.bits_per_second(),
            fraction,
        ))
    }
    fn number(self) -> f64 {
        self.bits_per_second() as f64
    }
}

impl Value for OneWayDelay {
    fn toward(self, next: Self, fraction: f64) -> Self {
        Self::new(Span::from_nanos(between(
            self.span().as_nanos(),
            next.span().as_nanos(),
            fraction,
        )))
    }
    fn number(self) -> f64 {
        self.span().as_nanos() as f64
    }
}

impl Value for Decibel {
    fn toward(self, next: Self, fraction: f64) -> Self {
        Self::new(self.as_f64() + (next.as_f64() - self.as_f64()) * fraction).unwrap_or(self)
    }
    fn number(self) -> f64 {
        self.as_f64()
    }
}

impl<V: Value> Trace<V> {
    /// A trace of these points.
    pub fn of(points: Vec<(Span, V)>, between: Between, at_end: AtEnd) -> Self {
        Self {
            points,
            file: None,
            columns: None,
            between,
            at_end,
        }
    }

    /// The value at `now`. The trace must have been checked: it has a point.
    pub fn at(&self, now: Time) -> V {
        let now = self.within(now);
        let next = self.points.partition_point(|(from, _)| *from <= now);
        let Some((from, value)) = next.checked_sub(1).map(|at| self.points[at]) else {
            return self.points[0].1;
        };
        match (self.between, self.points.get(next)) {
            (Between::Line, Some((to, after))) => {
                let whole = to.as_nanos() - from.as_nanos();
                let part = now.as_nanos() - from.as_nanos();
                value.toward(*after, part as f64 / whole as f64)
            }
            _ => value,
        }
    }

    /// When a step trace takes its next value after `now`, if it ever does.
    pub fn next_step(&self, now: Time) -> Option<Time> {
        let inside = self.within(now);
        let base = now.as_nanos() - inside.as_nanos();
        let next = self.points.partition_point(|(from, _)| *from <= inside);
        self.points
            .get(next)
            .map(|(at, _)| Time::from_nanos(base.saturating_add(at.as_nanos())))
    }

    /// The moment within the trace.
    fn within(&self, now: Time) -> Span {
        match self.at_end {
            AtEnd::Loop => Span::from_nanos(now.as_nanos() % self.length().as_nanos().max(1)),
            AtEnd::Hold | AtEnd::End => Span::from_nanos(now.as_nanos()),
        }
    }

    /// The moment of the last point.
    pub fn length(&self) -> Span {
        self.points.last().map_or(Span::ZERO, |(at, _)| *at)
    }

    /// When the link ends, if this trace ends it.
    pub fn ends(&self) -> Option<Time> {
        (self.at_end == AtEnd::End).then(|| Time::ZERO + self.length())
    }

    /// The mean over the trace's length, or the only value.
    pub fn mean(&self) -> f64 {
        let mut area = 0.0;
        for pair in self.points.windows(2) {
            let width = (pair[1].0.as_nanos() - pair[0].0.as_nanos()) as f64;
            area += width
                * match self.between {
                    Between::Step => pair[0].1.number(),
                    Between::Line => (pair[0].1.number() + pair[1].1.number()) / 2.0,
                };
        }
        let length = self.length().as_nanos() - self.points[0].0.as_nanos();
        if length == 0 {
            self.points[0].1.number()
        } else {
            area / length as f64
        }
    }
}
