"""The figures of a campaign: each as SVG, with its data as a table."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bentpipe_lab.analysis import statistics
from bentpipe_lab.analysis.campaign import MOST_BESIDE, PointRow, counts, is_variant, settings, variant_without
from bentpipe_lab.analysis.statistics import Interval
from bentpipe_lab.campaign.ranges import in_one_unit
from bentpipe_lab.report.style import INK, MUTED
from bentpipe_lab.report.style import svg as drawing
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.workloads import WORKLOADS

COLOURS = (
    "#1668b8", "#d9822b", "#1a7f4b", "#b3261e", "#6b4fa0", "#5c6875", "#a8771a", "#0f8b8d", "#c2548d", "#3b3b3b",
)  # fmt: skip
DASHES: Sequence[Any] = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1, 1, 1)))
MOST_LINES = 36
"""Rows of one figure of medians; more go to a further figure."""
MOST_PANELS = 8
"""Of one figure; more go to a further figure."""
MOST_FIGURES = 8
"""Of one kind; the table has all points."""
MOST_VARIANTS = MOST_BESIDE
"""Lines of one panel; where a setting has more, a sweep shows them."""
LOG_FROM = 40
"""A sweep over more than this ratio is drawn with a logarithmic axis."""
LEAST_OF_A_SWEEP = 3
LEAST_OF_A_DISTRIBUTION = 5
"""Fewer runs are steps and no distribution."""


@dataclass(frozen=True)
class Chart:
    """A figure with what it shows."""

    name: str
    """Of its files."""
    svg: str
    caption: str
    alternative: str
    """What it shows, for who does not see it."""
    table: Sequence[Mapping[str, object]]

    def csv(self) -> str:
        """Its data."""
        text = io.StringIO()
        if self.table:
            writer = csv.DictWriter(text, list(self.table[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.table)
        return text.getvalue()


@dataclass(frozen=True)
class Count:
    """How many runs ended well, of how many."""

    n_ok: int
    n_total: int

    @classmethod
    def of(cls, row: PointRow) -> "Count":
        """Of a point."""
        return cls(row.n_ok, row.n_total)

    def __str__(self) -> str:
        """For a person."""
        return f"{self.n_ok} of {self.n_total}"

    @property
    def fields(self) -> dict[str, object]:
        """For a figure's data."""
        return {"n_ok": self.n_ok, "n_total": self.n_total}


def together(counts_: Iterable[Count], unit: str = "runs") -> str:
    """Counts of several lines in a few words: where they differ, the least and the most."""
    found = list(counts_)
    each = " each" if len(found) > 1 else ""
    ok, total = _span(one.n_ok for one in found), _span(one.n_total for one in found)
    if len({one.n_total for one in found}) == 1:
        return f"{ok} of {total} {unit}{each}"
    most = max(one.n_total - one.n_ok for one in found)
    return f"{total} {unit}{each}, {f'up to {most}' if most else 'none'} left out"


def _span(numbers: Iterable[int]) -> str:
    known = set(numbers)
    return f"{min(known)} to {max(known)}" if len(known) > 1 else f"{min(known)}"


def entitle(axes: Axes, title: str, counts_: str) -> None:
    """The title of a panel, and below it of how many runs it is."""
    axes.set_title(f"{title}\n", fontsize=8)
    axes.annotate(
        counts_, (0, 1), xycoords="axes fraction", xytext=(0, 6), textcoords="offset points", fontsize=8, color=MUTED
    )


class Looks:
    """A colour and a dash for each variant, the same in every figure; a system without settings has its own colour."""

    def __init__(self, variants: Iterable[str]) -> None:
        self._place = {name: place for place, name in enumerate(dict.fromkeys(variants))}

    def of(self, variant: str) -> dict[str, Any]:
        """Arguments of a line."""
        place = 0 if variant in SYSTEMS else self._place[variant]
        return {"color": self.colour(variant), "linestyle": DASHES[place // len(COLOURS) % len(DASHES)]}

    def colour(self, variant: str) -> str:
        """Of a dot or a bar."""
        return SYSTEMS[variant].colour if variant in SYSTEMS else COLOURS[self._place[variant] % len(COLOURS)]


def all_charts(rows: Sequence[PointRow], samples: Path) -> list[Chart]:
    """Every figure for which there is something to draw."""
    drawn = [row for row in rows if row.times]
    if not drawn:
        return []
    looks = Looks(row.variant for row in rows)
    timed = [row for row in rows if counts(row.workload) is None]
    return [
        *sweeps([row for row in rows if row.n_total], looks),
        *medians(timed, looks),
        *distributions(timed, looks),
        *transports_over_time(drawn, samples),
        *over_time(drawn, samples, looks),
    ]


def medians(rows: Sequence[PointRow], looks: Looks) -> list[Chart]:
    """Medians as multiples of the physical bound, with their intervals."""
    charts = []
    ordered = [row for base, others in settings(rows) for row in (base, *others)]
    shown = ordered[: MOST_FIGURES * MOST_LINES]
    left_out = _left_out(ordered[len(shown) :], "points")
    for number_, first in enumerate(range(0, len(shown), MOST_LINES), start=1):
        some = shown[first : first + MOST_LINES]
        figure = Figure(figsize=(9, 0.26 * len(some) + 1.1), layout="constrained")
        axes = figure.subplots()
        for place, row in enumerate(some):
            if row.interval is None:
                continue
            low, high = row.interval.low / row.bound_s, row.interval.high / row.bound_s
            colour = looks.colour(row.variant)
            axes.plot([low, high], [place, place], color=colour, linewidth=3, alpha=0.4, solid_capstyle="butt")
            axes.plot(row.interval.median / row.bound_s, place, marker="o", color=colour, markersize=5)
        axes.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        words, alike = _short_labels(some)
        numbers = [Count.of(row) for row in some]
        if len(set(numbers)) > 1:
            words = [f"{word}  ({number})" for word, number in zip(words, numbers, strict=True)]
        axes.set_yticks(range(len(some)), words, fontsize=8)
        entitle(axes, ", ".join(alike), "in brackets: runs" if len(set(numbers)) > 1 else together(numbers))
        axes.set_ylim(len(some) - 0.4, -0.6)
        axes.set_xlabel("median time as a multiple of the physical bound, with its 95 % interval")
        axes.set_xlim(left=0 if max(row.x_bound or 0 for row in some) < LOG_FROM else None)
        axes.grid(visible=True, axis="x")
        axes.set_axisbelow(True)
        table = [
            {
                "point": row.point, "n_ok": row.n_ok, "n_total": row.n_total, "bound_s": row.bound_s,
                **_ends(row.interval),
            }
            for row in some
        ]  # fmt: skip
        charts.append(
            Chart(
                f"medians-{number_}", drawing(figure),
                "Median times of n of N runs as multiples of the least that physics allows; bars are 95 % intervals"
                f" of the median; without a dot: no run ended well.{left_out}",
                f"{len(some)} medians between {min((row.x_bound for row in some if row.x_bound), default=0):.2f} and"
                f" {max(row.x_bound or 0 for row in some):.2f} times their bounds",
                table,
            )
        )  # fmt: skip
    return charts


def _left_out(what: Sequence[object], name: str) -> str:
    """The end of a caption of what is drawn only in part."""
    return f" {len(what)} further {name} are in the table." if what else ""


def _ends(interval: Interval | None) -> dict[str, object]:
    """Of a median in seconds; nothing where no run ended well."""
    ends = (None, None, None) if interval is None else (interval.median, interval.low, interval.high)
    return dict(zip(("median_s", "low_s", "high_s"), ends, strict=True))


def distributions(rows: Sequence[PointRow], looks: Looks) -> list[Chart]:
    """Distributions of times; runs that did not end well are censored at their limit."""
    panels = [
        (title, some) for title, some in panels_of(rows) if any(row.n_total >= LEAST_OF_A_DISTRIBUTION for row in some)
    ]
    charts = []
    shown = panels[: MOST_FIGURES * MOST_PANELS]
    left_out = _left_out(panels[len(shown) :], "settings")
    for number_, first in enumerate(range(0, len(shown), MOST_PANELS), start=1):
        some = shown[first : first + MOST_PANELS]
        figure, cells = grid(len(some))
        table: list[dict[str, object]] = []
        for axes, (title, group) in zip(cells, some, strict=False):
            for row in group:
                found = statistics.distribution(row.times, row.censored)
                if not found.times:
                    continue
                axes.plot(
                    [found.times[0], *found.times], [0, *found.shares], drawstyle="steps-post", label=row.variant,
                    linewidth=1.5, **looks.of(row.variant),
                )  # fmt: skip
                table += [
                    {"point": row.point, **Count.of(row).fields, "seconds": time, "share": share}
                    for time, share in zip(found.times, found.shares, strict=True)
                ]
            axes.axvline(group[0].bound_s, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
            entitle(axes, title, together(map(Count.of, group)))
            axes.set_ylim(0, 1.02)
            axes.set_xlabel("seconds")
            axes.grid(visible=True)
        finish(figure, cells, "share of runs done")
        charts.append(
            Chart(
                f"distributions-{number_}", drawing(figure),
                "Share of runs that were done by a time; dashed: the physical bound. Runs that did not end well are"
                f" counted as not done until their limit.{left_out}",
                f"Distributions of times in {len(some)} panels", table,
            )
        )  # fmt: skip
    return charts


def sweeps(rows: Sequence[PointRow], looks: Looks) -> list[Chart]:
    """Goodput over every axis that has enough numbers; of pages and the like, which are no plain transfers, times."""
    charts = []
    for axis in dict.fromkeys(axis for row in rows for axis in row.axes):
        found = in_one_unit(row.axes[axis] for row in rows if axis in row.axes)
        if axis in ("scenario", "case", "system", "workload") or found is None:
            continue
        for timed in (False, True):
            some = [row for row in rows if axis in row.axes and _is_timed(row) == timed]
            if len({found[0][row.axes[axis]] for row in some}) >= LEAST_OF_A_SWEEP:
                charts.append(_sweep(axis, *found, some, looks, timed=timed))
    return charts


def _is_timed(row: PointRow) -> bool:
    """Whether its time says more than its goodput: a page's, for example."""
    return row.workload in WORKLOADS and counts(row.workload) is None and WORKLOADS[row.workload].transfer is None


def is_page(row: PointRow) -> bool:
    """Whether it is a page, of many objects."""
    return row.workload in WORKLOADS and WORKLOADS[row.workload].timeline


def _sweep(
    axis: str, numbers: Mapping[str, float], unit: str, rows: Sequence[PointRow], looks: Looks, *, timed: bool
) -> Chart:
    panels: dict[str, dict[str, list[PointRow]]] = {}
    for row in rows:
        if axis in row.axes:
            rest = {name: value for name, value in row.setting.items() if name != axis}
            line = variant_without(row, axis)
            panels.setdefault(f"{row.clock}: {', '.join(rest.values())}", {}).setdefault(line, []).append(row)
    some = dict(list(panels.items())[:MOST_PANELS])
    if is_variant(axis):
        looks = Looks(line for lines in some.values() for line in lines)
    figure, cells = grid(len(some))
    table: list[dict[str, object]] = []
    for axes, (title, lines) in zip(cells, some.items(), strict=False):
        for variant, points in lines.items():
            sorted_points = sorted(points, key=lambda row: numbers[row.axes[axis]])
            at = [numbers[row.axes[axis]] for row in sorted_points]
            found = [row.interval if timed else row.goodput for row in sorted_points]
            nothing = math.nan if timed else 0.0
            middle, low, high = (
                [getattr(each, end) if each else nothing for each in found] for end in ("median", "low", "high")
            )
            axes.plot(at, middle, marker="o", markersize=3, label=variant, linewidth=1.5, **looks.of(variant))
            axes.fill_between(at, low, high, color=looks.colour(variant), alpha=0.15, linewidth=0)
            table += [
                {
                    "point": row.point,
                    **Count.of(row).fields,
                    axis: value,
                    "seconds" if timed else "goodput_mbit_s": median,
                    "low": least,
                    "high": most,
                }
                for row, value, median, least, most in zip(sorted_points, at, middle, low, high, strict=True)
            ]
        positive = [numbers[row.axes[axis]] for line in lines.values() for row in line]
        if min(positive) > 0 and max(positive) / min(positive) > LOG_FROM:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        entitle(axes, title, together(Count.of(row) for line in lines.values() for row in line))
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"{axis}{f', {unit}' if unit else ''}")
        axes.grid(visible=True)
    finish(figure, cells, "seconds" if timed else "goodput, Mbit/s")
    what, name = ("Times", f"sweep-{axis}-seconds") if timed else ("Goodput", f"sweep-{axis}")
    told = "" if timed else ": payload over time"
    nothing_said = "without a dot: no run ended well" if timed else "zero: no run ended well"
    return Chart(
        name.replace(".", "-"), drawing(figure),
        f"{what} over {axis}{told}, medians of n of N runs; bands are 95 % intervals; {nothing_said}.",
        f"{what} over {axis} in {len(some)} panels: {_extremes(table)}", table,
    )  # fmt: skip


def _extremes(table: Sequence[Mapping[str, Any]]) -> str:
    """The least and the most of what a figure shows, for who does not see it."""
    for name, unit in (("seconds", "s"), ("goodput_mbit_s", "Mbit/s")):
        known = [row[name] for row in table if name in row and row[name] == row[name]]
        if known:
            return f"{min(known):.3g} to {max(known):.3g} {unit}"
    return "nothing"


def sampled(samples: Path, rows: Sequence[PointRow]) -> list[PointRow]:
    """Points of which something over time is known."""
    if not samples.exists():
        return []
    known = set(pl.scan_parquet(samples).select(pl.col("point").unique()).collect()["point"])
    return [row for row in rows if row.good and row.point in known]


def shown_samples(samples: Path, rows: Sequence[PointRow]) -> dict[str, pl.DataFrame]:
    """How the run that is shown of each point went, by point; without those of which next to nothing is known."""
    if not samples.exists():
        return {}
    names = {"point": pl.String, "repetition": pl.Int64, "attempt": pl.Int64}
    wanted = {(row.point, *row.shown) for row in rows if row.shown is not None}
    shown = pl.LazyFrame(sorted(wanted), schema=names, orient="row")
    found = pl.scan_parquet(samples).join(shown, on=list(names), maintain_order="left").collect()
    grouped = found.group_by("point", maintain_order=True)
    return {str(key[0]): frame for key, frame in grouped if frame.height > 2}


def over_time(rows: Sequence[PointRow], samples: Path, looks: Looks) -> list[Chart]:
    """Goodput, window and round-trip time of the first run that ended well, over time; of pages `sequence` draws it."""
    panels = panels_of([row for row in sampled(samples, rows) if not is_page(row)])[:MOST_PANELS]
    by_point = shown_samples(samples, [row for _, group in panels for row in group])
    charts = []
    for number_, (title, group) in enumerate(panels, start=1):
        drawn = [(row.variant, row, by_point[row.point]) for row in group if row.point in by_point]
        if drawn:
            charts.append(_stacked(f"over-time-{number_}", title, drawn, looks))
    return charts


def transports_over_time(rows: Sequence[PointRow], samples: Path) -> list[Chart]:
    """The same of what is done by several workloads over one link for a fixed time: TCP beside QUIC, for example."""
    groups: dict[str, list[PointRow]] = {}
    for row in rows:
        if counts(row.workload) is not None:
            groups.setdefault(row.axes["scenario"], []).append(row)
    charts: list[Chart] = []
    for scenario, group in groups.items():
        by_point = shown_samples(samples, group) if len(group) <= MOST_VARIANTS else {}
        some = [row for row in group if row.point in by_point]
        if len({row.workload for row in some}) > 1:
            words, _ = _short_labels(some)
            drawn = [(word, row, by_point[row.point]) for word, row in zip(words, some, strict=True)]
            charts.append(_stacked(f"transports-{len(charts) + 1}", scenario, drawn, Looks(words)))
    return charts


def _stacked(name: str, title: str, drawn: Sequence[tuple[str, PointRow, pl.DataFrame]], looks: Looks) -> Chart:
    """What arrives, the window, the round-trip time and the queue below each other, a line for each run."""
    queued = any(frame["waited_s"].drop_nulls().len() for _, _, frame in drawn)
    names = ["Mbit/s", "window, MB", "RTT, ms", *(["queue, ms"] if queued else [])]
    figure = Figure(figsize=(9, 1.9 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True)
    table: list[dict[str, object]] = []
    for words, row, frame in drawn:
        at = frame["at_s"].to_list()
        window, rtt, waited = (frame[column].to_list() for column in ("window_bytes", "rtt_s", "waited_s"))
        look = looks.of(words)
        goodput = _rates(at, frame["received_bytes"].to_list())
        panels[0].plot(at, goodput, label=words, linewidth=1.3, **look)
        _line(panels[1], at, window, 1e6, look)
        _line(panels[2], at, rtt, 1e-3, look)
        if queued:
            _line(panels[3], at, waited, 1e-3, look)
        table += [
            {
                "point": row.point,
                **Count.of(row).fields,
                "at_s": a,
                "goodput_mbit_s": g,
                "window_bytes": w,
                "rtt_s": r,
                "waited_s": q,
            }
            for a, g, w, r, q in zip(at, goodput, window, rtt, waited, strict=True)
        ]
    for axes, text in zip(panels, names, strict=True):
        axes.set_ylabel(text)
        axes.grid(visible=True)
    entitle(panels[0], title, f"the first of {together(Count.of(row) for _, row, _ in drawn)}")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    panels[-1].set_xlabel("seconds since the run began")
    return Chart(
        name, drawing(figure),
        "The first run of each that ended well: what arrives in order, the sender's window, the round-trip time it sees"
        f"{', and how long packets wait in the queue' if queued else ''}.",
        f"{', '.join(names)} over time, {title}", table,
    )  # fmt: skip


def _short_labels(rows: Sequence[PointRow]) -> tuple[list[str], list[str]]:
    """Labels of points without the words that are alike in all, and these words."""
    words = [_words(row) for row in rows]
    alike = [word for word in words[0] if len(rows) > 1 and all(word in each for each in words)]
    return [", ".join(word for word in each if word not in alike) or ", ".join(each) for each in words], alike


def label(row: PointRow) -> str:
    """A point in a few words."""
    return ", ".join(_words(row))


def _words(row: PointRow) -> list[str]:
    return [row.variant, *row.setting.values(), *(["real"] if row.clock == "real" else [])]


def panels_of(rows: Sequence[PointRow]) -> list[tuple[str, list[PointRow]]]:
    """What is done and where, each with all by which it is done, where these are few enough to be told apart."""
    groups: dict[str, list[PointRow]] = {}
    for row in rows:
        groups.setdefault(f"{row.clock}: {', '.join(row.setting.values())}", []).append(row)
    return [(title, some) for title, some in groups.items() if len(some) <= MOST_VARIANTS]


def grid(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, two beside each other."""
    columns = min(count, 2)
    lines = math.ceil(count / columns)
    figure = Figure(figsize=(9, 2.7 * lines + 0.4), layout="constrained")
    grid = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in grid[:count]:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_size(8)
    for unused in grid[count:]:
        unused.set_axis_off()
    return figure, grid


def finish(figure: Figure, grid: Sequence[Axes], y_label: str) -> None:
    """One legend below all panels, without a name twice."""
    handles: dict[str, Any] = {}
    for axes in grid:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    grid[0].set_ylabel(y_label)
    if handles:
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=3, frameon=False, fontsize=8
        )


def _rates(at: Sequence[float], received: Sequence[int]) -> list[float]:
    """Mbit/s between each moment and the one before it."""
    rates = [0.0]
    for place in range(1, len(at)):
        gap = at[place] - at[place - 1]
        rates.append(max(0.0, (received[place] - received[place - 1]) * 8 / gap / 1e6) if gap > 0 else 0.0)
    return rates


def _line(axes: Axes, at: Sequence[float], values: Sequence[float | None], unit: float, look: dict[str, Any]) -> None:
    known = [(time, value / unit) for time, value in zip(at, values, strict=True) if value is not None]
    if known:
        axes.plot([time for time, _ in known], [value for _, value in known], linewidth=1.3, **look)
