"""All runs of a point together over time: goodput, and what arrived as a multiple of the reference's (Kosek et al.)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from bentpipe_lab.analysis import over_time, statistics
from bentpipe_lab.analysis.campaign import PointRow, counts, settings
from bentpipe_lab.analysis.over_time import Numbers, Run
from bentpipe_lab.analysis.statistics import Band
from bentpipe_lab.report.charts import (
    MOST_FIGURES,
    MOST_PANELS,
    MOST_VARIANTS,
    Chart,
    Count,
    Looks,
    entitle,
    finish,
    grid,
    panels_of,
    sampled,
    together,
)
from bentpipe_lab.report.style import MUTED
from bentpipe_lab.report.style import svg as drawing

BASELINES = ("direct", "quic")
"""What others are a multiple of, over time: a path without a proxy."""
STEPS = 75
"""Moments of a panel of ratios."""


@dataclass(frozen=True)
class Panel:
    """What is drawn in one panel, with the name of each; `reference` is what the others are a multiple of."""

    title: str
    drawn: Sequence[tuple[str, PointRow]]
    reference: PointRow | None = None

    @property
    def rows(self) -> list[PointRow]:
        """All points of it."""
        return [*([self.reference] if self.reference else []), *(row for _, row in self.drawn)]


@dataclass(frozen=True)
class Line:
    """One of a panel."""

    name: str
    row: PointRow
    at: Numbers
    band: Band


def over_runs(rows: Sequence[PointRow], samples: Path, looks: Looks) -> list[Chart]:
    """Both kinds of figures; none where no run has samples."""
    some = sampled(samples, rows)
    fixed = [row for row in some if counts(row.workload) is not None]
    goodput = [Panel(title, [(row.variant, row) for row in group]) for title, group in panels_of(fixed)]
    return [
        *_figures(
            "ratio-over-time", _ratio_panels(some), samples, looks, _ratio, "bytes received, ratio",
            "Bytes received until then as a multiple of those of the variant that each panel names: the ratio of the"
            " medians of all runs that ended well, from when each of the reference has got something; bands are 95 %"
            " intervals.",
        ),
        *_figures(
            "goodput-over-time", goodput, samples, looks, _goodput, "goodput, Mbit/s",
            "Goodput of each second, drawn at its end: medians of all runs that ended well; bands are 95 % intervals.",
        ),
    ]  # fmt: skip


def _ratio_panels(rows: Sequence[PointRow]) -> Iterator[Panel]:
    """What has a reference; where a panel would have too many lines, one for each setting of its own."""
    for base, others in settings(rows):
        if base.axes["system"] not in BASELINES:
            continue
        apart: dict[str, list[PointRow]] = {}
        for row in others:
            further = ", ".join(value for name, value in row.setting.items() if name not in base.setting)
            apart.setdefault(further if len(others) >= MOST_VARIANTS else "", []).append(row)
        for further, some in apart.items():
            title = ", ".join([base.clock, *base.setting.values(), *([further] if further else [])])
            names = [
                ", ".join([row.variant, *(value for axis, value in row.setting.items() if axis not in base.setting)])
                for row in some
            ]
            if len(some) < MOST_VARIANTS:
                yield Panel(f"{title}: x {base.variant}", list(zip(names, some, strict=True)), base)


def _figures(
    name: str, panels: Iterator[Panel] | Sequence[Panel], samples: Path, looks: Looks,
    lines_of: Callable[[Panel, Mapping[str, Sequence[Run]]], list[Line]], y_label: str, caption: str,
) -> Iterator[Chart]:  # fmt: skip
    shown = list(panels)[: MOST_FIGURES * MOST_PANELS]
    for number, first in enumerate(range(0, len(shown), MOST_PANELS), start=1):
        some = shown[first : first + MOST_PANELS]
        runs = over_time.received(samples, [row for panel in some for row in panel.rows])
        drawn = [(panel, lines) for panel in some if (lines := lines_of(panel, runs))]
        if not drawn:
            continue
        figure, cells = grid(len(drawn))
        table: list[dict[str, object]] = []
        for axes, (panel, lines) in zip(cells, drawn, strict=False):
            for line in lines:
                _draw(axes, line, looks)
                table += _table(line, name)
            if panel.reference is not None:
                axes.axhline(1, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
            entitle(axes, panel.title, together(map(Count.of, panel.rows)))
            axes.set_ylim(bottom=0)
            axes.set_xlabel("seconds")
            axes.grid(visible=True)
        finish(figure, cells, y_label)
        ends = "; ".join(f"{panel.title}: {', '.join(map(_end, lines))}" for panel, lines in drawn)
        yield Chart(f"{name}-{number}", drawing(figure), caption, f"{y_label} over time, at the end: {ends}", table)


def _ratio(panel: Panel, runs: Mapping[str, Sequence[Run]]) -> list[Line]:
    assert panel.reference is not None
    reference = runs[panel.reference.point]
    moments = np.linspace(0.0, max(at[-1] for at, _ in reference), STEPS + 1)[1:]
    theirs = over_time.until(reference, moments)
    known = (theirs > 0).all(axis=0)
    if not known.any():
        return []
    return [
        Line(
            name, row, moments[known],
            statistics.ratio_band(theirs[:, known], over_time.until(runs[row.point], moments[known])),
        )
        for name, row in panel.drawn
    ]  # fmt: skip


def _goodput(panel: Panel, runs: Mapping[str, Sequence[Run]]) -> list[Line]:
    rates = [(name, row, over_time.each_second(runs[row.point])) for name, row in panel.drawn]
    return [
        Line(name, row, np.arange(1.0, each.shape[1] + 1.0), statistics.median_band(each))
        for name, row, each in rates
        if each.size
    ]


def _draw(axes: Axes, line: Line, looks: Looks) -> None:
    look = looks.of(line.row.variant)
    axes.plot(line.at, line.band.median, label=line.name, linewidth=1.5, **look)
    axes.fill_between(line.at, line.band.low, line.band.high, color=look["color"], alpha=0.15, linewidth=0)


def _table(line: Line, figure: str) -> list[dict[str, object]]:
    value = "ratio" if figure.startswith("ratio") else "goodput_mbit_s"
    numbers = (line.at.tolist(), line.band.median.tolist(), line.band.low.tolist(), line.band.high.tolist())
    return [
        {"point": line.row.point, **Count.of(line.row).fields, "at_s": at, value: median, "low": low, "high": high}
        for at, median, low, high in zip(*numbers, strict=True)
    ]


def _end(line: Line) -> str:
    return f"{line.name} {line.band.median[-1]:.3g}"
