"""A campaign in one small table: a line per point and figure, under a head that says when, where and at what load."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from bentpipe_lab.analysis import campaign as analysis
from bentpipe_lab.analysis.campaign import MetricRow, PointRow
from bentpipe_lab.analysis.statistics import Interval
from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign.directory import Campaign
from bentpipe_lab.campaign.store import PROVENANCE
from bentpipe_lab.records import tables

SECONDS = "seconds"
DIGITS = 4
"""That are told of a figure."""
FIGURES = ("metric", "n", "n_total", "late", "median", "low", "high", "bound", "others")


def text(campaign: Campaign) -> str:
    """The table as CSV; figures are medians with 95 % intervals of the `n` runs of `n_total` that ended well."""
    runs = tables.read(campaign.directory)
    rows = analysis.rows(runs)
    figures = analysis.metric_rows(rows, runs, tables.metrics(campaign.directory))
    axes = _telling(rows)
    out = io.StringIO()
    out.writelines(f"# {line}\n" for line in _head(campaign))
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["clock", *(name.rpartition(".")[2] for name in axes), *FIGURES])
    for row in rows:
        what = [row.clock, *(row.axes.get(name, "") for name in axes)]
        for line in _lines(row, [each for each in figures if each.row is row]):
            table.writerow([*what, *line])
    return out.getvalue()


def _lines(row: PointRow, figures: Sequence[MetricRow]) -> Iterator[list[Any]]:
    others = "; ".join(f"{count} {verdict}" for verdict, count in row.verdicts.items() if verdict != "ok")
    counts = [row.n_ok, row.n_total, row.late]
    if analysis.counts(row.workload) is None or row.interval is None:
        yield [SECONDS, *counts, *_values(row.interval), _short(row.bound_s), others]
    for each in figures:
        yield [each.metric, each.interval.n, *counts[1:], *_values(each.interval), "", others]


def _values(found: Interval | None) -> list[str]:
    """The median, and its interval where there is one."""
    if found is None:
        return ["", "", ""]
    return [_short(found.median), *([_short(found.low), _short(found.high)] if found.told else ["", ""])]


def _head(campaign: Campaign) -> Iterator[str]:
    begun = directories.provenance_of(campaign.directory)
    machine = begun["machine"]
    yield f"{campaign.plan.name}: {campaign.plan.source}"
    yield (
        f"begun {begun['begun']}, revision {begun['revision'][:18]}, binary {begun['binary_sha256'][:12]};"
        f" {machine['processor']}, {machine['processors']} processors, {' '.join(machine['kernel'].split(' ')[:2])}"
    )
    loads = sorted(_loads(campaign))
    if loads:
        yield f"load of the machine in the runs: {loads[0]:.1f} to {loads[-1]:.1f}, median {loads[len(loads) // 2]:.1f}"
    yield (
        "n of n_total runs ended well; late: attempts in which the emulator was late, which count nowhere; median with"
        " its 95 % interval, which one run has not; bound: the least time that physics allows"
    )


def _loads(campaign: Campaign) -> Iterator[float]:
    store = campaign.store
    for run in store.complete():
        if store.holds(run, PROVENANCE):
            yield json.loads(store.text(run, PROVENANCE))["load"][0]


def _telling(rows: Sequence[PointRow]) -> list[str]:
    """The axes in which points differ, and the system."""
    names = dict.fromkeys(name for row in rows for name in row.axes)
    return [name for name in names if name == "system" or len({row.axes.get(name) for row in rows}) > 1]


def _short(value: float) -> str:
    return f"{value:.{DIGITS}g}"
