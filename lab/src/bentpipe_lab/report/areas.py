"""Working areas: goodput against round-trip time, a dot per second, as Bujari et al. draw them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from bentpipe_lab.analysis.campaign import PointRow
from bentpipe_lab.report.charts import (
    MOST_PANELS,
    Chart,
    Count,
    Looks,
    entitle,
    finish,
    grid,
    panels_of,
    sampled,
    shown_samples,
    together,
)
from bentpipe_lab.report.style import INK
from bentpipe_lab.report.style import svg as drawing

LEAST_S = 20
"""A shorter run has too few seconds to fill an area."""
Means = Mapping[str, Sequence[tuple[float, float]]]
"""Published means by point: round-trip time in ms, goodput in Mbit/s."""


def working_areas(rows: Sequence[PointRow], samples: Path, means: Means) -> list[Chart]:
    """A figure of runs that ended well, a panel for each setting; none where no run tells round-trip times."""
    panels = panels_of(sampled(samples, rows))[:MOST_PANELS]
    by_point = shown_samples(samples, [row for _, some in panels for row in some])
    dots = {row.point: _seconds(by_point[row.point]) for _, some in panels for row in some if row.point in by_point}
    panels = [(title, [row for row in some if dots.get(row.point)]) for title, some in panels]
    panels = [(title, some) for title, some in panels if some]
    if not panels:
        return []
    looks = Looks(row.variant for row in rows)
    figure, cells = grid(len(panels))
    table: list[dict[str, object]] = []
    for axes, (title, some) in zip(cells, panels, strict=False):
        for row in some:
            colour = looks.colour(row.variant)
            rtts, rates = zip(*dots[row.point], strict=True)
            axes.scatter(rtts, rates, s=7, alpha=0.5, linewidths=0, color=colour, label=row.variant)
            count = Count.of(row).fields
            table += [
                {"point": row.point, **count, "rtt_ms": rtt, "goodput_mbit_s": rate} for rtt, rate in dots[row.point]
            ]
            for rtt, rate in means.get(row.point, ()):
                axes.plot(rtt, rate, marker="x", markersize=9, markeredgewidth=4, color=INK, linestyle="none")
                axes.plot(rtt, rate, marker="x", markersize=8, markeredgewidth=2, color=colour, linestyle="none")
        entitle(axes, title, f"the first of {together(map(Count.of, some))}")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("round-trip time, ms")
        axes.grid(visible=True)
        axes.set_axisbelow(True)
    finish(figure, cells, "Mbit/s")
    crosses = " Crosses: published means." if means else ""
    return [
        Chart(
            "working-areas", drawing(figure),
            f"Working areas: a dot is a second of the first run that ended well; best is up and left.{crosses}",
            f"Goodput against round-trip time in {len(panels)} panels", table,
        )
    ]  # fmt: skip


def _seconds(frame: pl.DataFrame) -> list[tuple[float, float]]:
    """Mean round-trip time in ms and goodput in Mbit/s of each second of a run."""
    frame = frame.filter(pl.col("rtt_s").is_not_null())
    if frame.height < 2 or frame["at_s"][-1] < LEAST_S:
        return []
    edges = np.arange(0.0, frame["at_s"][-1] + 0.5, 1.0)
    at, rtt = frame["at_s"].to_numpy(), frame["rtt_s"].to_numpy()
    received = np.interp(edges, at, frame["received_bytes"].to_numpy(), left=0.0)
    place = np.searchsorted(edges, at, side="left")
    return [
        (float(rtt[place == second].mean()) * 1e3, float(received[second] - received[second - 1]) * 8e-6)
        for second in range(1, len(edges))
        if (place == second).any()
    ]
