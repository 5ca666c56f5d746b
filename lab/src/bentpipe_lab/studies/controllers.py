"""The tunnel's controllers beside each other in real time: median and worst run of each cell."""

from collections.abc import Mapping, Sequence

from bentpipe_lab.analysis.campaign import MetricRow
from bentpipe_lab.studies.section import Cell, Section, Table, number

METRIC = "goodput_mbit_s"
OURS = "satellite"
"""The controller that is held against the best of the others."""
SHARE = 0.95
"""Of the best of the others: neither median nor worst run is to be below it."""


def section(figures: Sequence[MetricRow]) -> Section:
    """A line for each cell: link, neighbours, connections, session."""
    cells: dict[str, dict[str, MetricRow]] = {}
    for each in figures:
        if each.metric == METRIC:
            cells.setdefault(_cell(each.row.axes), {})[each.row.axes["controller"]] = each
    controllers = list(dict.fromkeys(name for found in cells.values() for name in found))
    rows: list[list[Cell | str]] = []
    kept = judged = 0
    for name, found in cells.items():
        shares = [_share(found, median=True), _share(found, median=False)]
        judged += None not in shares
        kept += all(share is not None and share >= SHARE for share in shares)
        rows.append([name, *(_figures(found.get(each)) for each in controllers), *map(_marked, shares)])
    return Section(
        "Each controller in each cell",
        [
            (
                f"Goodput of a fixed time by iperf3. {OURS}'s median and its worst run, as shares of the best median"
                f" and of the best worst run of the others: both at least {SHARE} in {kept} of {judged} cells."
            )
        ],
        [
            Table(
                "Goodput, Mbit/s: median, worst run, runs that count",
                ["cell", *controllers, "share of the best median", "share of the best worst run"],
                rows,
            )
        ],
    )


def _cell(axes: Mapping[str, str]) -> str:
    link = axes.get("case") or axes["scenario"]
    flows, neighbours = axes.get("workload.flows", "1"), axes.get("neighbours", "0")
    beside = "quiet" if neighbours == "0" else f"{neighbours} busy beside"
    return f"{link}, {beside}, {flows} flow{'' if flows == '1' else 's'}, {axes.get('session', 'warm')}"


def _share(found: Mapping[str, MetricRow], *, median: bool) -> float | None:
    """Ours over the best of the others; None where either is missing."""
    of = {name: each.interval.median if median else _worst(each) for name, each in found.items()}
    best = max((value for name, value in of.items() if name != OURS), default=0.0)
    return of[OURS] / best if OURS in of and best > 0 else None


def _worst(each: MetricRow) -> float:
    """Of all runs that count; one that did not end well has nothing."""
    return min(each.values) if each.interval.n >= each.row.n_total else 0.0


def _figures(each: MetricRow | None) -> str:
    if each is None:
        return "-"
    return f"{number(each.interval.median, 1)}, {number(_worst(each), 1)} ({each.interval.n} of {each.row.n_total})"


def _marked(share: float | None) -> Cell:
    return Cell(number(share), "" if share is None else "within" if share >= SHARE else "short")
