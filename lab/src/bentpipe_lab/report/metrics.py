"""Figures of what runs measured beside their time: a distribution for each, and box plots by load."""

import re
from collections.abc import Mapping, Sequence

from bentpipe_lab.analysis import statistics
from bentpipe_lab.analysis.campaign import MetricRow
from bentpipe_lab.report.charts import (
    LEAST_OF_A_DISTRIBUTION,
    MOST_PANELS,
    MOST_VARIANTS,
    Chart,
    Count,
    Looks,
    entitle,
    finish,
    grid,
    together,
)
from bentpipe_lab.report.style import INK
from bentpipe_lab.report.style import svg as drawing
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.contract import Metric

MOST_CHARTS = 12
LEAST_OF_A_BOX = 5
"""Fewer values are dots."""
_UNITS = {"_s": "s", "_mbit_s": "Mbit/s"}
_WORDS = {"rtt": "round-trip time", "udp": "UDP", "sd": "standard deviation", "mb": "MB"}
_OF_A_LOAD = re.compile(r"(.+)_(\d+)_s")


def described(each: MetricRow) -> Metric:
    """What the workload says of a figure; of one that it does not list, its name."""
    known = WORKLOADS[each.row.workload].metrics if each.row.workload in WORKLOADS else {}
    if each.metric in known:
        return known[each.metric]
    ending = max((end for end in _UNITS if each.metric.endswith(end)), key=len, default="")
    words = each.metric.removesuffix(ending).split("_")
    return Metric(" ".join(_WORDS.get(word, word) for word in words), _UNITS.get(ending, ""))


def metric_charts(rows: Sequence[MetricRow]) -> list[Chart]:
    """Box plots of the loads of a profile, and a distribution for each other figure."""
    looks = Looks(each.row.variant for each in rows)
    by_metric: dict[str, list[MetricRow]] = {}
    loads: dict[str, list[MetricRow]] = {}
    for each in rows:
        match = _OF_A_LOAD.fullmatch(each.metric)
        if match:
            loads.setdefault(match[1], []).append(each)
        else:
            by_metric.setdefault(each.metric, []).append(each)
    charts = [boxes(name, some, looks) for name, some in loads.items() if _panels(some)]
    drawn = [some for some in by_metric.values() if any(each.interval.n >= LEAST_OF_A_DISTRIBUTION for each in some)]
    return charts + [distributions(some, looks) for some in drawn[:MOST_CHARTS] if _panels(some)]


def boxes(name: str, rows: Sequence[MetricRow], looks: Looks) -> Chart:
    """Times by the index of the load since the profile was made, a box per variant."""
    panels = _panels(rows)
    figure, cells = grid(len(panels))
    table: list[dict[str, object]] = []
    for axes, (title, some) in zip(cells, panels.items(), strict=False):
        variants = list(dict.fromkeys(each.row.variant for each in some))
        width = 0.8 / len(variants)
        indices = set()
        for each in some:
            index = int(each.metric.rsplit("_", 2)[1])
            indices.add(index)
            place = index + (variants.index(each.row.variant) - (len(variants) - 1) / 2) * width
            colour = looks.colour(each.row.variant)
            if len(each.values) < LEAST_OF_A_BOX:
                axes.plot(
                    [place] * len(each.values), each.values, marker="o", markersize=5, linestyle="none", color=colour,
                    label=each.row.variant,
                )  # fmt: skip
            else:
                drawn = axes.boxplot(
                    [each.values], positions=[place], widths=width * 0.8, patch_artist=True, manage_ticks=False,
                    medianprops={"color": INK}, flierprops={"markersize": 2},
                )  # fmt: skip
                drawn["boxes"][0].set(facecolor=colour, alpha=0.6, label=each.row.variant)
            table += [
                {"point": each.row.point, **_count(each).fields, "load": index, "seconds": value}
                for value in each.values
            ]
        axes.set_xticks(sorted(indices))
        entitle(axes, title, together(map(_count, some)))
        axes.set_xlabel("load since the profile was made")
        axes.set_ylim(0, 1.1 * max(max(each.values) for each in some) or 1)
        axes.grid(visible=True, axis="y")
    finish(figure, cells, f"{name.replace('_', ' ')}, s")
    return Chart(
        f"loads-{name.replace('_', '-')}", drawing(figure),
        f"{name.replace('_', ' ')} by the index of the load; boxes are quartiles, fewer than {LEAST_OF_A_BOX} runs are"
        " dots.",
        f"Box plots of {name.replace('_', ' ')} in {len(panels)} panels", table,
    )  # fmt: skip


def distributions(rows: Sequence[MetricRow], looks: Looks) -> Chart:
    """The share of runs that were at or below a value."""
    metric = described(rows[0])
    panels = _panels(rows)
    figure, cells = grid(len(panels))
    table: list[dict[str, object]] = []
    for axes, (title, some) in zip(cells, panels.items(), strict=False):
        for each in some:
            found = statistics.distribution(each.values, [])
            axes.plot(
                [found.times[0], *found.times], [0, *found.shares], drawstyle="steps-post", label=each.row.variant,
                linewidth=1.5, **looks.of(each.row.variant),
            )  # fmt: skip
            table += [
                {"point": each.row.point, **_count(each).fields, "value": value, "share": share}
                for value, share in zip(found.times, found.shares, strict=True)
            ]
        entitle(axes, title, together(map(_count, some)))
        axes.set_ylim(0, 1.02)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{metric.title}, {metric.unit}".rstrip(", "))
        axes.grid(visible=True)
    finish(figure, cells, "share of runs")
    return Chart(
        f"metric-{rows[0].metric.replace('_', '-')}", drawing(figure),
        f"{metric.title}: share of the runs that ended well.",
        f"Distributions of {metric.title} in {len(panels)} panels", table,
    )  # fmt: skip


def _count(each: MetricRow) -> Count:
    """Runs that have a figure."""
    return Count(each.interval.n, each.row.n_total)


def _panels(rows: Sequence[MetricRow]) -> Mapping[str, list[MetricRow]]:
    groups: dict[str, list[MetricRow]] = {}
    for each in rows:
        groups.setdefault(f"{each.row.clock}: {', '.join(each.row.setting.values())}", []).append(each)
    few = [(title, some) for title, some in groups.items() if len({each.row.point for each in some}) <= MOST_VARIANTS]
    return dict(few[:MOST_PANELS])
