"""What was published, beside what a campaign measured: figure by figure, where axes and names agree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bentpipe_lab.analysis.campaign import MetricRow
from bentpipe_lab.records import published
from bentpipe_lab.workloads import WORKLOADS

EXPLAINED_FROM = 0.15
"""A larger difference is marked: docs/studies.md says where it is from."""

Number = TypeVar("Number", int, float)
NO_AXES = (published.METRIC, published.VALUE, published.RUNS, published.SPREAD)


@dataclass(frozen=True)
class Pair:
    """One figure of theirs and one of ours."""

    ours: MetricRow
    theirs: float
    their_runs: int | None
    their_spread: float | None = None

    @property
    def difference(self) -> float:
        """Of ours, relative to theirs."""
        return self.ours.interval.median / self.theirs - 1

    @property
    def large(self) -> bool:
        """Whether it has to be explained."""
        return abs(self.difference) > EXPLAINED_FROM


def pairs(name: str, rows: Sequence[MetricRow]) -> list[Pair]:
    """Every published figure whose axes a point has; what a point leaves to its workload is the workload's default.

    Without a name there is no publication.
    """
    found: list[Pair] = []
    if not name:
        return found
    for line in published.figures(name):
        wanted = {axis: value for axis, value in line.items() if value and axis not in NO_AXES}
        found += [
            Pair(
                row,
                float(line[published.VALUE]),
                _given(line, published.RUNS, int),
                _given(line, published.SPREAD, float),
            )
            for row in rows
            if row.metric == line[published.METRIC] and _has(row, wanted)
        ]
    return found


def _given(line: Mapping[str, str], column: str, kind: Callable[[str], Number]) -> Number | None:
    return kind(line[column]) if line.get(column) else None


def _has(row: MetricRow, wanted: Mapping[str, str]) -> bool:
    options = WORKLOADS[row.row.workload].options if row.row.workload in WORKLOADS else {}
    axes = {**{f"workload.{name}": option.default for name, option in options.items()}, **row.row.axes}
    return all(axes.get(axis) == value for axis, value in wanted.items())
