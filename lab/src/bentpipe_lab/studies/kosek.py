"""Kosek et al.: the shape of goodput, the time to 90 % of it, the order of the systems, and why figures differ."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bentpipe_lab.analysis import over_time, published
from bentpipe_lab.analysis.campaign import MetricRow, PointRow
from bentpipe_lab.analysis.published import Pair
from bentpipe_lab.records import published as files
from bentpipe_lab.studies.measured import Measured
from bentpipe_lab.studies.section import Cell, Section, Table, number

GOODPUT = "kosek-goodput"
"""The file with their goodput over time."""
PLATEAU = 0.9
TO_PLATEAU = "to_90_percent_s"
FIRST_BYTE = "first_byte_s"
"""From when on their program for QUIC counts; ours counts from when its connection begins."""
ORDERED = {
    "received_by_10_s_mbyte": "received in 10 s",
    "first_contentful_paint_s": "First Contentful Paint",
    "page_load_s": "Page Load Time",
}
MORE_IS_BETTER = ("received_by_10_s_mbyte",)
APART = 0.05
"""Two of theirs that differ by less have no order."""


@dataclass(frozen=True)
class Cause:
    """Why figures differ that have some axes."""

    metrics: Sequence[str]
    axes: Mapping[str, str]
    text: str
    more: bool | None = None
    """Whether it explains that ours is more, or less; None where either."""

    def of(self, pair: Pair) -> bool:
        """Whether it is about this one."""
        axes = pair.ours.row.axes
        fits = all(axes.get(name) == value for name, value in self.axes.items())
        return pair.ours.metric in self.metrics and fits and self.more in (None, pair.difference > 0)


NO_LOSS = {"scenario": "kosek-geo"}
DIRECT_QUIC = {"system": "direct", "workload": "perf"}
QUIC_PEP_PAGE = {"system": "quic-pep", "workload.protocol": "HTTP/3"}
LOSSES = ("kosek-geo-loss-0.01", "kosek-geo-loss-0.1", "kosek-geo-loss-1")
CAUSES: Sequence[Cause] = (
    *(
        Cause(
            ("received_by_10_s_mbyte", "last_second_mbit_s"), {"scenario": scenario, "workload": "perf"},
            "NewReno of theirs (quicly) keeps 0.7 of its window after a loss, ours half, as RFC 9002 says; with 0.7"
            " ours are within 18 % without a PEP (150 seeds). Few runs beside a mean of 100 besides", more=False,
        )
        for scenario in LOSSES
    ),
    Cause(
        ("received_by_10_s_mbyte",), NO_LOSS | DIRECT_QUIC,
        "the clock: theirs begins with the first byte (it has 0.4 Mbit/s in a second in which none can have come), ours"
        " with the connection, 1.3 s sooner, which is 3.0 MB at this rate", more=False,
    ),
    Cause(
        ("last_second_mbit_s",), NO_LOSS | DIRECT_QUIC,
        "nothing but the link's queue of 6000 packets bounds slow start here, and it overflows at second 14 (3000"
        " packets lost, a round trip of 4.3 s); theirs falls there too, from 17.9 to 15.2 Mbit/s in the mean of 100",
        more=False,
    ),
    Cause(
        ("received_by_10_s_mbyte", "last_second_mbit_s"), {"scenario": "kosek-geo-loss-1"},
        "few runs beside a mean of 100, of what one lost packet of the first flights decides: no comparison; of 20"
        " runs without a PEP TCP has 0.38 MB (standard error 0.08) and 0.15 Mbit/s (0.04)",
    ),
    Cause(
        ("response_start_s", "first_contentful_paint_s"), {"workload.protocol": "HTTP/1.1"},
        "TLS, which theirs has not: a round trip more", more=True,
    ),
    Cause(
        ("page_load_s",), {"workload.protocol": "HTTP/1.1"},
        "TLS, which theirs has not: a round trip more, 0.61 s; the rest is not explained", more=True,
    ),
    Cause(
        ("response_start_s", "first_contentful_paint_s", "page_load_s"), QUIC_PEP_PAGE,
        "their proxies make their connections one after the other (2.1 s); ours keeps those between the proxies ready",
        more=False,
    ),
    Cause(
        ("page_load_s",), {"system": "direct", "workload.protocol": "HTTP/3"},
        "the server's QUIC begins with 32 packets, theirs with 10: 1.7 round trips of slow start, 1.0 s", more=False,
    ),
)  # fmt: skip
"""The first that fits is told; docs/studies.md says how each was found."""


def section(measured: Measured) -> Section:
    """Theirs beside ours."""
    pairs = published.pairs("kosek", measured.figures)
    orders = list(_orders(pairs))
    same, of = sum(each[2] for each in orders), sum(each[3] for each in orders)
    large = [pair for pair in pairs if pair.large]
    causes = [why(pair) for pair in large]
    return Section(
        "Beside the paper",
        [
            (
                "Theirs are averages (goodput) and medians (pages) of 100 runs. Of the pairs of systems that differ by"
                f" more than {APART:.0%} there, {same} of {of} stand in the same order here."
                f" {len(pairs) - len(large)} of {len(pairs)} figures agree within 15 %; of the other {len(large)},"
                f" {len(large) - causes.count(UNEXPLAINED)} have a known cause."
            )
        ],
        [
            Table(
                "Shape: goodput of the second that ends there, Mbit/s, means, theirs; ours; QUIC from its first byte",
                ["link and program", "by", "runs", *(f"{second} s" for second in _seconds())],
                list(_shape(measured)),
            ),
            Table(
                "Time to 90 % of the best second, s; theirs from the seconds of the table above",
                ["link and program", "by", "theirs", "ours, median", "from", "to"],
                list(_plateaus(measured.figures)),
            ),
            Table(
                "Order of the systems, the best first",
                ["link", "figure", "theirs", "ours", "pairs in the same order"],
                [[link, what, theirs, ours, _share(alike, some)] for link, what, alike, some, theirs, ours in orders],
            ),
            Table(
                "Differences above 15 %, and what they are from",
                ["link and program", "by", "figure", "theirs", "ours", "difference", "cause"],
                [_difference(pair, cause) for pair, cause in zip(large, causes, strict=True)],
            ),
        ],
    )  # fmt: skip


UNEXPLAINED = "not explained"


def _difference(pair: Pair, cause: str) -> list[Cell | str]:
    return [
        *_named(pair.ours.row), pair.ours.metric, number(pair.theirs, 3), number(pair.ours.interval.median, 3),
        f"{pair.difference:+.0%}", Cell(cause, "cause short" if cause == UNEXPLAINED else "cause"),
    ]  # fmt: skip


def why(pair: Pair) -> str:
    """The cause of a difference, as far as it is known."""
    for cause in CAUSES:
        if cause.of(pair):
            return cause.text
    interval = pair.ours.interval
    if interval.told and interval.low <= pair.theirs <= interval.high:
        return f"theirs lies within what our {interval.n} runs differ by"
    return UNEXPLAINED


def _named(row: PointRow) -> list[str]:
    words = [row.axes["scenario"], row.workload, row.axes.get("workload.protocol", "")]
    return [", ".join(word for word in words if word), row.axes["system"]]


def _theirs() -> Mapping[tuple[str, str, str], Mapping[int, float]]:
    """Goodput by second, of scenario, system and workload."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for line in files.table(GOODPUT):
        key = (line["scenario"], line["system"], line["workload"])
        found.setdefault(key, {})[int(line["second"])] = float(line["mbit_s"])
    return found


def _seconds() -> list[int]:
    return sorted({second for each in _theirs().values() for second in each})


def _key(row: PointRow) -> tuple[str, str, str]:
    return (row.axes["scenario"], row.axes["system"], row.workload)


def _shape(measured: Measured) -> Iterator[list[Cell | str]]:
    theirs = _theirs()
    rows = [row for row in measured.rows if _key(row) in theirs and row.good]
    runs = over_time.received(measured.samples, rows)
    first_byte = {
        each.row.point: each.interval.median
        for each in measured.figures
        if each.metric == FIRST_BYTE and each.row.workload == "perf"
    }
    for row in rows:
        if row.point not in runs:
            continue
        rates = over_time.each_second(runs[row.point], first_byte.get(row.point, 0.0)).mean(axis=0)
        yield [
            *_named(row), f"{row.n_ok} of {row.n_total}",
            *(
                f"{number(theirs[_key(row)][second])}; {number(rates[second - 1] if second <= len(rates) else None)}"
                for second in _seconds()
            ),
        ]  # fmt: skip


def _plateaus(figures: Sequence[MetricRow]) -> Iterator[list[Cell | str]]:
    theirs = _theirs()
    for each in figures:
        if each.metric == TO_PLATEAU and _key(each.row) in theirs:
            early, late = bracket(theirs[_key(each.row)])
            ours = each.interval
            within = early <= ours.median <= late
            yield [
                *_named(each.row), f"{early} to {late}", Cell(number(ours.median), "within" if within else "short"),
                *(number(end) if ours.told else "-" for end in (ours.low, ours.high)),
            ]  # fmt: skip


def bracket(goodput: Mapping[int, float]) -> tuple[int, int]:
    """Between which of some seconds goodput first reached 90 % of the best of them."""
    seconds = sorted(goodput)
    reached = next(second for second in seconds if goodput[second] >= PLATEAU * max(goodput.values()))
    return max((second for second in seconds if second < reached), default=0), reached


def _orders(pairs: Sequence[Pair]) -> Iterator[tuple[str, str, int, int, str, str]]:
    """Of each link and figure: how many pairs of systems stand in the same order, of how many, and both orders."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        if pair.ours.metric in ORDERED:
            groups.setdefault((pair.ours.row.axes["scenario"], pair.ours.metric), []).append(pair)
    for (link, metric), some in groups.items():
        best_first = metric in MORE_IS_BETTER
        apart = [
            (a, b)
            for a, b in itertools.combinations(some, 2)
            if abs(a.theirs - b.theirs) > APART * max(a.theirs, b.theirs)
        ]
        alike = sum(
            (a.theirs > b.theirs) == (a.ours.interval.median > b.ours.interval.median) for a, b in apart
        )  # fmt: skip
        theirs = sorted(some, key=lambda pair: pair.theirs, reverse=best_first)
        ours = sorted(some, key=lambda pair: pair.ours.interval.median, reverse=best_first)
        if len(some) > 1:
            yield link, ORDERED[metric], alike, len(apart), " > ".join(map(_by, theirs)), " > ".join(map(_by, ours))


def _by(pair: Pair) -> str:
    row = pair.ours.row
    what = {"iperf3": "TCP", "perf": "QUIC"}.get(row.workload) or row.axes.get("workload.protocol", row.workload)
    return f"{row.axes['system']} {what}"


def _share(alike: int, pairs: int) -> Cell:
    return Cell(f"{alike} of {pairs}", "within" if alike == pairs else "short")
