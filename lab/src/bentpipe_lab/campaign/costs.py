"""What paths and runs in real time take beside the time that counts, and how far above their bounds runs are.

For estimates: ranges that hold for most of the runs that were measured, with browsers on the same two processors as the
path (docs/campaigns.md, "What it takes"). What is not listed has the range of `ELSE`. `python -m
bentpipe_lab.bench.estimates DIRECTORY...` tells what the runs of finished campaigns took beside what is expected here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from bentpipe_lab.net.link import Link

ELSE = "else"


@dataclass(frozen=True)
class Range:
    """Seconds, or multiples, between which most of what was measured lies."""

    low: float
    high: float

    def __add__(self, other: "Range | float") -> Self:
        """Both, one after the other."""
        added = _range(other)
        return type(self)(self.low + added.low, self.high + added.high)

    def __mul__(self, other: "Range | float") -> Self:
        """So many times."""
        times = _range(other)
        return type(self)(self.low * times.low, self.high * times.high)

    def at_most(self, limit: float) -> Self:
        """Cut off at a limit."""
        return type(self)(min(self.low, limit), min(self.high, limit))

    @property
    def middle(self) -> float:
        """Half-way."""
        return (self.low + self.high) / 2


PATH_S: Mapping[str, Range] = {
    ELSE: Range(2.0, 6.0),
    "direct": Range(1.5, 3.0),
    "tcp-pep": Range(1.5, 3.5),
    "quic-pep": Range(4.0, 7.0),
    "bentpipe": Range(3.0, 5.0),
}
"""To build a path, to start the system, to stop and remove them; without warming up."""

WARM_UP: Mapping[str, Range] = {
    ELSE: Range(1.7, 2.3),
    "bentpipe": Range(1.3, 1.8),
}
"""Warming up, as a multiple of the bounds of its transfers."""

BESIDE_S: Mapping[str, Range] = {
    ELSE: Range(0.2, 0.8),
    "iperf3": Range(3.0, 16.0),
    "perf": Range(0.8, 5.0),
    "web page": Range(4.0, 14.0),
}
"""Beside what a run measures, each time that it does it: starts and ends of programs, queues that are emptied."""

SLOWER: Mapping[str, Range] = {
    ELSE: Range(1.3, 3.5),
    "bentpipe": Range(1.05, 1.5),
}
"""The time that counts as a multiple of its bound, of runs whose length is not fixed."""

LOSSES = 50.0
"""By losses, at the slow end, of all but the tunnel: with 1 % of them half as long again."""

REPEATED = Range(0.0, 0.3)
"""Share of runs in real time that are repeated because the emulator was late: on a quiet machine none."""


def of(table: Mapping[str, Range], name: str) -> Range:
    """What a table says of a system or a workload."""
    return table.get(name, table[ELSE])


def slower(system: str, link: Link) -> Range:
    """How many times its bound a run takes over a link."""
    usual = of(SLOWER, system)
    lost = 0.0 if system == "bentpipe" else max(link.forward.loss, link.back.loss)
    return Range(usual.low, usual.high * (1 + LOSSES * lost))


def _range(value: "Range | float") -> Range:
    return value if isinstance(value, Range) else Range(value, value)
