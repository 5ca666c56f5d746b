"""Sequence numbers over time of page loads, TCP beside QUIC: all runs and the median, as Thomas et al. drew them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from bentpipe_lab.analysis import over_time
from bentpipe_lab.analysis.campaign import PointRow
from bentpipe_lab.analysis.over_time import Numbers, Run
from bentpipe_lab.report.charts import (
    DASHES,
    MOST_FIGURES,
    MOST_PANELS,
    MOST_VARIANTS,
    Chart,
    Count,
    Looks,
    entitle,
    finish,
    grid,
    is_page,
    sampled,
    together,
)
from bentpipe_lab.report.style import svg as drawing

PROTOCOL = "workload.protocol"
RESPONSE_START = "response_start_s"
STEPS = 100
"""Moments of a run that is not the median one."""


@dataclass(frozen=True)
class Load:
    """One load of a page: the bytes that had arrived by some moments, and the moments that the browser told."""

    repetition: int
    attempt: int
    run: Run
    response_start_s: float | None
    page_load_s: float

    def received(self, at_s: float) -> float:
        """MB that had arrived."""
        return float(np.interp(at_s, *self.run)) / 1e6

    @property
    def events(self) -> Iterator[tuple[str, str, float]]:
        """What the browser told, with its mark and moment."""
        if self.response_start_s is not None:
            yield "response start", "v", self.response_start_s
        yield "page load", "^", self.page_load_s

    def line(self, *, whole: bool) -> tuple[Numbers, Numbers]:
        """Seconds and MB: every sample, or evenly spaced moments."""
        at, got = self.run
        moments = at if whole else np.linspace(0.0, at[-1], STEPS + 1)
        return moments, np.interp(moments, at, got) / 1e6


@dataclass(frozen=True)
class Line:
    """All loads of one point, the quickest first."""

    name: str
    row: PointRow
    loads: Sequence[Load]
    look: Mapping[str, Any]

    @property
    def median(self) -> Load:
        """The load that half of them are at most as quick as; of an even number the quicker one of the middle."""
        return self.loads[(len(self.loads) - 1) // 2]


def sequence_numbers(rows: Sequence[PointRow], samples: Path, metrics: pl.DataFrame) -> list[Chart]:
    """Figures of pages whose runs have samples, a panel for each page and link."""
    some = [row for row in sampled(samples, rows) if is_page(row)]
    panels = list(_panels(some, samples, metrics, Looks(row.variant for row in rows)))
    shown = [(title, lines) for title, lines in panels if len(lines) <= MOST_VARIANTS][: MOST_FIGURES * MOST_PANELS]
    parts = [shown[first : first + MOST_PANELS] for first in range(0, len(shown), MOST_PANELS)]
    return [_figure(number, part) for number, part in enumerate(parts, start=1)]


def _panels(
    rows: Sequence[PointRow], samples: Path, metrics: pl.DataFrame, looks: Looks
) -> Iterator[tuple[str, list[Line]]]:
    """Protocols are beside each other in a panel: by what, as systems are."""
    runs = over_time.received_by_run(samples, rows)
    starts = {
        (point, repetition, attempt): value
        for point, repetition, attempt, value in metrics.filter(pl.col("metric") == RESPONSE_START)
        .select("point", "repetition", "attempt", "value")
        .iter_rows()
    }
    protocols = list(dict.fromkeys(row.axes.get(PROTOCOL, "") for row in rows))
    panels: dict[str, list[Line]] = {}
    for row in rows:
        loads = [
            Load(*run, runs[row.point][run], starts.get((row.point, *run)), seconds)
            for run, seconds in zip(row.good, row.times, strict=True)
            if run in runs.get(row.point, {})
        ]
        if not loads:
            continue
        protocol = row.axes.get(PROTOCOL, "")
        look = {**looks.of(row.variant), "linestyle": DASHES[protocols.index(protocol) % len(DASHES)]}
        name = ", ".join(filter(None, (row.variant, row.setting.get(PROTOCOL, ""))))
        title = ", ".join([row.clock, *(value for axis, value in row.setting.items() if axis != PROTOCOL)])
        line = Line(name, row, sorted(loads, key=lambda load: load.page_load_s), look)
        panels.setdefault(title, []).append(line)
    yield from panels.items()


def _figure(number: int, panels: Sequence[tuple[str, Sequence[Line]]]) -> Chart:
    figure, cells = grid(len(panels))
    table: list[dict[str, object]] = []
    for axes, (title, lines) in zip(cells, panels, strict=False):
        for line in lines:
            for load in line.loads:
                table += _draw(axes, line, load)
        entitle(axes, title, together(Count(len(line.loads), line.row.n_total) for line in lines))
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("seconds since the first packet of the load")
        axes.grid(visible=True)
    finish(figure, cells, "bytes received, MB")
    ends = "; ".join(f"{title}: {', '.join(map(_end, lines))}" for title, lines in panels)
    return Chart(
        f"sequence-numbers-{number}", drawing(figure),
        "Sequence numbers of page loads as the client received them: new bytes of the servers' streams, of TCP by"
        " sequence number, of QUIC by stream offset. Thin: every run that ended well; bold: the run of the median page"
        " load time. Triangles: down at Response Start, up at Page Load Time.",
        f"Bytes received over time; page load of the median run: {ends}", table,
    )  # fmt: skip


def _draw(axes: Axes, line: Line, load: Load) -> list[dict[str, object]]:
    """One load; the rows of its data."""
    bold = load is line.median
    at, got = load.line(whole=bold)
    width, alpha, size, order = (2.0, 1.0, 7, 3) if bold else (0.6, 0.45, 3, 2)
    name = line.name if bold else None
    axes.plot(at, got, label=name, linewidth=width, alpha=alpha, zorder=order, **line.look)
    marked = {
        "color": line.look["color"], "markersize": size, "alpha": alpha, "linestyle": "none", "zorder": order,
        "clip_on": False,
    }  # fmt: skip
    events = [(event, mark, moment, load.received(moment)) for event, mark, moment in load.events]
    for _, mark, moment, height in events:
        axes.plot(moment, height, marker=mark, **marked)
    of_run = {
        "point": line.row.point, **Count.of(line.row).fields, "repetition": load.repetition, "attempt": load.attempt,
        "median_run": bold,
    }  # fmt: skip
    moments = [("sample", float(moment), float(megabytes)) for moment, megabytes in zip(at, got, strict=True)]
    moments += [(event, moment, height) for event, _, moment, height in events]
    return [{**of_run, "event": event, "at_s": moment, "received_mb": height} for event, moment, height in moments]


def _end(line: Line) -> str:
    return f"{line.name} {line.median.page_load_s:.3g} s"
