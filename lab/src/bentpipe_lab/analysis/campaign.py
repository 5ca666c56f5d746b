"""What a campaign's runs amount to: a row per point, and points beside each other."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import polars as pl

from bentpipe_lab.analysis import statistics
from bentpipe_lab.analysis.statistics import Comparison, Interval
from bentpipe_lab.campaign.plan import TCP_AXES
from bentpipe_lab.records.tables import AXIS, axes
from bentpipe_lab.systems import baseline
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.contract import Metric

TIME = Metric("time", "s")
"""What counts of most workloads."""
VARIANT_AXES = ("system", "controller", "initial_window", *TCP_AXES)
"""Axes that say by what something is done; the others say what is done, and where."""
SESSION = "session"
"""Says by what where it tells systems apart that have sessions from those that have none."""
MOST_BESIDE = 12
"""Variants that a reader can tell apart in one panel."""


@dataclass(frozen=True)
class PointRow:
    """All runs of one point."""

    point: str
    clock: str
    axes: Mapping[str, str]
    variant: str
    """By what: the system with its settings."""
    setting: Mapping[str, str]
    """The other axes: what is done, and where; without those that are alike everywhere or that a case sets."""
    workload: str
    times: Sequence[float]
    """Of the runs that ended well, seconds."""
    censored: Sequence[float]
    """Limits of the runs that did not, seconds."""
    bound_s: float
    bytes_received: int
    """Median of the runs that ended well."""
    interval: Interval | None
    """Of the median time, seconds; None when no run ended well."""
    verdicts: Mapping[str, int]
    late: int
    """Attempts in which the emulator was late; they count nowhere."""
    good: Sequence[tuple[int, int]] = ()
    """Repetition and attempt of each run that ended well."""
    counted: Sequence[float] = ()
    """Of the runs that ended well, what counts: their times again, unless these are of a fixed length."""
    goodput: Interval | None = None
    """Payload over time, Mbit/s; None when no run ended well."""

    @property
    def counts(self) -> Metric:
        """What is counted."""
        return counts(self.workload) or TIME

    @property
    def shown(self) -> tuple[int, int] | None:
        """The first run that ended well: the one that figures of single runs are of."""
        return self.good[0] if self.good else None

    @property
    def n_ok(self) -> int:
        """Runs that ended well."""
        return len(self.times)

    @property
    def n_total(self) -> int:
        """Runs that count."""
        return sum(self.verdicts.values())

    @property
    def x_bound(self) -> float | None:
        """The median as a multiple of the physical bound; a time of a fixed length has none to speak of."""
        return None if self.interval is None or counts(self.workload) else self.interval.median / self.bound_s


@dataclass(frozen=True)
class MetricRow:
    """One further figure of all runs of one point that ended well."""

    row: PointRow
    metric: str
    interval: Interval
    values: Sequence[float]


@dataclass(frozen=True)
class Beside:
    """A point beside the one that it is compared with."""

    reference: PointRow
    row: PointRow
    comparison: Comparison
    p: float | None
    """Mann and Whitney's, corrected by Holm for all comparisons of the table."""

    @property
    def of(self) -> str:
        """Runs that are compared, of all of the reference and of the point."""
        counts = zip(self.comparison.n, (self.reference.n_total, self.row.n_total), strict=True)
        return ", ".join(f"{n} of {total}" for n, total in counts)


def counts(workload: str) -> Metric | None:
    """What counts of a workload whose time is its length and tells nothing; None where the time counts."""
    if workload not in WORKLOADS:
        return None
    its = WORKLOADS[workload]
    return None if its.counts is None else its.metrics[its.counts]


def _goodput(good: Sequence[Mapping[str, Any]], interval: Interval | None, *, fixed: bool) -> Interval | None:
    """Of runs of a fixed length their own; of transfers, the payload over the median time."""
    if interval is None:
        return None
    if fixed:
        return statistics.median_interval([each["bytes_received"] * 8e-6 / each["seconds"] for each in good])
    bits = median(each["bytes_received"] for each in good) * 8e-6
    return Interval(interval.n, bits / interval.median, bits / interval.high, bits / interval.low)


def rows(runs: pl.DataFrame) -> list[PointRow]:
    """A row per point, in the plan's order."""
    names = axes(runs)
    told = _telling(names, runs)
    by_what = {name for name in told if is_variant(name)} | _sessions_beside_none(told, runs)
    found = []
    attempts: dict[int, list[dict[str, Any]]] = {}
    for attempt in runs.iter_rows(named=True):
        attempts.setdefault(attempt["place"], []).append(attempt)
    for of_point in attempts.values():
        first = of_point[0]
        counting = [each for each in of_point if each["counts"]]
        good = [each for each in counting if each["verdict"] == "ok" and each["seconds"] is not None]
        times = [each["seconds"] for each in good]
        interval = statistics.median_interval(times) if times else None
        its_axes = {name: first[f"{AXIS}{name}"] for name in names if first[f"{AXIS}{name}"] is not None}
        found.append(
            PointRow(
                point=first["point"],
                clock=first["clock"],
                axes=its_axes,
                variant=variant({name: value for name, value in its_axes.items() if name in by_what}),
                setting={name: value for name, value in its_axes.items() if name in told - by_what},
                workload=first["workload"],
                times=times,
                censored=[each["limit_s"] for each in counting if each["verdict"] != "ok"],
                bound_s=first["bound_s"],
                bytes_received=int(median(each["bytes_received"] for each in good)) if good else 0,
                interval=interval,
                counted=[each["figure"] for each in good if each["figure"] is not None],
                goodput=_goodput(good, interval, fixed=counts(first["workload"]) is not None),
                verdicts=dict(Counter(each["verdict"] for each in counting)),
                late=sum(each["verdict"] == "emulator late" for each in of_point),
                good=[(each["repetition"], each["attempt"]) for each in good],
            )
        )
    return found


def _telling(names: Sequence[str], runs: pl.DataFrame) -> set[str]:
    """Axes that a reader needs to tell points apart, and those that say what they are about."""
    points = runs.unique("point", keep="first", maintain_order=True)
    values = {name: points[f"{AXIS}{name}"].to_list() for name in names}
    about = {name for name in names if name in ("system", "controller", "scenario", "workload")}
    told = about | {name for name in names if name != "case" and len(set(values[name])) > 1}
    if "case" not in names or _cases_part_what_belongs_together(points, told):
        return told
    cases = values["case"]
    named = {name for name in told if len(set(zip(cases, values[name], strict=True))) == len(set(cases)) > 1}
    return {"case", "system", "controller"} & set(names) | (told - named)


def _cases_part_what_belongs_together(points: pl.DataFrame, told: set[str]) -> bool:
    """Whether cases only keep those apart that do the same over the same link, by other systems or controllers."""
    place = ["clock", *(f"{AXIS}{name}" for name in sorted(told) if not is_variant(name))]
    by_what = [f"{AXIS}{name}" for name in sorted(told) if name in VARIANT_AXES]
    cases = pl.col(f"{AXIS}case").n_unique()
    all_differ = points.group_by([*place, *by_what]).len().height == points.height
    return all_differ and bool(points.group_by(place).agg(cases.alias("cases"))["cases"].gt(1).any())


def _sessions_beside_none(told: set[str], runs: pl.DataFrame) -> set[str]:
    """The axis of sessions, where some of what does the same has none, direct TCP for one: it says by what, then."""
    if SESSION not in told:
        return set()
    place = ["clock", *(f"{AXIS}{name}" for name in sorted(told) if name != SESSION and not is_variant(name))]
    without = pl.col(f"{AXIS}{SESSION}").is_null().any().alias("without")
    groups = runs.unique("point", keep="first").group_by(place).agg(pl.len(), without)
    few = max(groups["len"].to_list()) <= MOST_BESIDE
    return {SESSION} if few and groups["without"].any() else set()


def variant(axes: Mapping[str, str]) -> str:
    """By what something is done, in a few words: the system with its settings."""
    words = [axes["system"]]
    for name, value in axes.items():
        node, _, last = name.rpartition(".")
        if name == "initial_window":
            words.append(f"iw{value}")
        elif name == "controller":
            words.append(value)
        elif name in TCP_AXES:
            said = f"iw{value}" if last == "tcp_initial_window" else value.replace(" ", "")
            words.append(f"{node or 'tcp'}:{said}")
        elif name == SESSION:
            words.append(value)
        elif name.startswith("transport."):
            words.append(f"{last}={value}")
    return " ".join(words)


def variant_without(row: PointRow, axis: str) -> str:
    """By what a point is done, but for one axis: what the points of a sweep over it have in common."""
    if axis not in row.axes or not is_variant(axis):
        return row.variant
    (word,) = variant({"system": "", axis: row.axes[axis]}).split(" ")[1:]
    return " ".join(each for each in row.variant.split(" ") if each != word)


def metric_rows(points: Sequence[PointRow], runs: pl.DataFrame, metrics: pl.DataFrame) -> list[MetricRow]:
    """The further figures of runs that count and ended well, by point, in the plan's order."""
    good = runs.filter("counts", pl.col("verdict") == "ok").select("point", "repetition", "attempt")
    found = (
        metrics.join(good, on=["point", "repetition", "attempt"], how="inner")
        .group_by("point", "metric", maintain_order=True)
        .agg(pl.col("value"))
    )
    by_point = {row.point: row for row in points}
    order = {row.point: place for place, row in enumerate(points)}
    rows = [
        MetricRow(by_point[point], metric, statistics.median_interval(values), values)
        for point, metric, values in found.rows()
    ]
    return sorted(rows, key=lambda each: order[each.row.point])


def is_variant(axis: str) -> bool:
    """Whether an axis says by what something is done."""
    return axis in VARIANT_AXES or axis.startswith("transport.")


def settings(points: Sequence[PointRow]) -> Iterator[tuple[PointRow, list[PointRow]]]:
    """Points that do the same over the same link on the same clock: the reference, then the others.

    What has no sessions, direct TCP for one, is the reference of all sessions.
    """
    groups: dict[tuple[object, ...], list[PointRow]] = {}
    sessions = all(SESSION in row.setting for row in points)
    for row in points:
        same = (item for item in row.setting.items() if sessions or item[0] != SESSION)
        groups.setdefault((row.clock, *sorted(same)), []).append(row)
    for group in groups.values():
        base = next((row for row in group if row.axes["system"] == baseline().name), group[0])
        yield base, [row for row in group if row is not base]


def beside(points: Sequence[PointRow]) -> list[Beside]:
    """Every variant beside the baseline, or beside the first of the plan where there is no baseline."""
    pairs = [(base, row) for base, others in settings(points) for row in others]
    return _compared(pairs)


def clocks(points: Sequence[PointRow]) -> list[Beside]:
    """Virtual time beside real time, where a plan has both."""
    groups: dict[tuple[object, ...], dict[str, PointRow]] = {}
    for row in points:
        groups.setdefault(tuple(sorted(row.axes.items())), {})[row.clock] = row
    return _compared([(each["real"], each["virtual"]) for each in groups.values() if len(each) == 2])


def campaigns(first: Sequence[PointRow], second: Sequence[PointRow]) -> list[Beside]:
    """The points that two campaigns have in common."""
    known = {row.point: row for row in first}
    return _compared([(known[row.point], row) for row in second if row.point in known])


def _compared(pairs: Sequence[tuple[PointRow, PointRow]]) -> list[Beside]:
    pairs = [(base, row) for base, row in pairs if base.counted and row.counted]
    compared = [
        statistics.compare(
            base.counted, row.counted, failed=(base.n_total - base.n_ok, row.n_total - row.n_ok),
            better=row.counts.better,
        )
        for base, row in pairs
    ]  # fmt: skip
    corrected = statistics.holm([each.mann_whitney_p for each in compared])
    return [
        Beside(base, row, comparison, p) for (base, row), comparison, p in zip(pairs, compared, corrected, strict=True)
    ]
