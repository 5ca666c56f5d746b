"""Bujari et al.: a handover from a terrestrial link to LEO, tables 2 and 3 and the working areas.

Their goodput counts UDP payload in packets of 1200 bytes: their highest mean, 9.77 Mbit/s, is 10 Mbit/s x 1200/1228,
more than any stream could get (QUIC's headers leave 9.5). Ours is counted in the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bentpipe_lab.records import published
from bentpipe_lab.studies import plots, records
from bentpipe_lab.studies.records import FlowSample, Run
from bentpipe_lab.studies.section import Cell, Drawing, Section, Table, number, percent

HANDOVER_S = 90.0
END_S = 180.0
GOODPUT_WITHIN = 0.05
RTT_WITHIN = 0.10
QUEUES = {"half": "FIFO, half a BDP", "one": "FIFO, one BDP", "two": "FIFO, two BDP", "codel": "CoDel, 100 ms, 5 ms"}
THEIR_NAME = {"newreno": "newreno", "bbr3": "bbr"}
"""Their BBR is ngtcp2's BBRv2; ours is version 3."""


@dataclass(frozen=True)
class Leg:
    """What a flow got on one of the two links."""

    goodput_mbit_s: float
    goodput_sd_mbit_s: float
    """Over seconds."""
    rtt_ms: float
    rtt_sd_ms: float


@dataclass(frozen=True)
class Comparison:
    """One cell of their tables 2 and 3 beside ours."""

    queue: str
    controller: str
    leg: int
    theirs: Leg | None
    ours: Leg
    """The median of the runs, figure by figure."""

    @property
    def goodput_difference(self) -> float | None:
        """Relative to theirs."""
        return None if self.theirs is None else self.ours.goodput_mbit_s / self.theirs.goodput_mbit_s - 1

    @property
    def rtt_difference(self) -> float | None:
        """Relative to theirs."""
        return None if self.theirs is None else self.ours.rtt_ms / self.theirs.rtt_ms - 1

    @property
    def within(self) -> bool | None:
        """Whether both differences are within what the comparison allows; None where there is nothing to compare."""
        if self.goodput_difference is None or self.rtt_difference is None:
            return None
        return abs(self.goodput_difference) <= GOODPUT_WITHIN and abs(self.rtt_difference) <= RTT_WITHIN


def legs(run: Run) -> tuple[Leg, Leg]:
    """What the run's flow got before and after the handover."""
    return (_leg(run.samples, 0.0, HANDOVER_S), _leg(run.samples, HANDOVER_S, END_S))


def rates(
    samples: Sequence[FlowSample], begin_s: float, end_s: float, step_s: float = 1.0
) -> Sequence[tuple[float, float]]:
    """Goodput in Mbit/s and mean round-trip time in ms, for each step of the time between."""
    edges = np.arange(begin_s, end_s + step_s / 2, step_s)
    at = np.array([sample.at_s for sample in samples])
    arrived = np.interp(edges, at, [sample.arrived_udp for sample in samples], left=0.0)
    found = []
    for step in range(len(edges) - 1):
        inside = [sample.rtt_ms for sample in samples if edges[step] < sample.at_s <= edges[step + 1]]
        rate = (arrived[step + 1] - arrived[step]) * 8e-6 / step_s
        if inside:
            found.append((float(rate), float(np.mean(inside))))
    return found


def compare(runs: Iterable[Run]) -> Sequence[Comparison]:
    """Every queue, controller and leg: their figures, and the medians of ours."""
    found: dict[tuple[str, str], list[tuple[Leg, Leg]]] = {}
    for run in runs:
        found.setdefault((run.axes["case"], run.axes["flow.controller"]), []).append(legs(run))
    theirs = _published()
    return [
        Comparison(queue, controller, number + 1, theirs.get((queue, THEIR_NAME.get(controller, ""), number + 1)),
                   _median([pair[number] for pair in pairs]))
        for (queue, controller), pairs in found.items()
        for number in (0, 1)
    ]  # fmt: skip


def _published() -> Mapping[tuple[str, str, int], Leg]:
    return {
        (row["queue"], row["controller"], int(row["leg"])): Leg(
            float(row["goodput_mbit_s"]),
            float(row["goodput_sd_mbit_s"]),
            float(row["rtt_ms"]),
            float(row["rtt_sd_ms"]),
        )
        for row in published.table("bujari")
    }


def _leg(samples: Sequence[FlowSample], begin_s: float, end_s: float) -> Leg:
    seconds = np.array([rate for rate, _ in rates(samples, begin_s, end_s)])
    rtts = np.array([sample.rtt_ms for sample in samples if begin_s < sample.at_s <= end_s])
    return Leg(float(seconds.mean()), float(seconds.std()), float(rtts.mean()), float(rtts.std()))


def _median(found: Sequence[Leg]) -> Leg:
    def of(name: str) -> float:
        return float(np.median([getattr(leg, name) for leg in found]))

    return Leg(of("goodput_mbit_s"), of("goodput_sd_mbit_s"), of("rtt_ms"), of("rtt_sd_ms"))


VERDICTS = {True: Cell("within", "within"), False: Cell("outside", "short"), None: Cell("")}
BASE_RTTS_MS = (60.0, 120.0)
CAPACITY_MBIT_S = 10 * 1200 / 1228


def section(directory: Path) -> Section:
    """Tables 2 and 3 side by side, and the working areas of figures 7, 10, 11 and 12."""
    runs = list(records.runs(directory))
    found = compare(runs)
    compared = [each for each in found if each.within is not None]
    within = sum(1 for each in compared if each.within)
    reno = [each for each in compared if each.controller == "newreno"]
    return Section(
        "Bujari: from a terrestrial link to LEO",
        published.source("bujari"),
        [
            (
                f"10 Mbit/s, a change of address at {HANDOVER_S:g} s, {END_S:g} s, medians of the seeds. Of"
                f" {len(compared)} cells {within} are within {GOODPUT_WITHIN:.0%} of the published goodput and"
                f" {RTT_WITHIN:.0%} of the published round-trip time; of NewReno's {len(reno)},"
                f" {sum(1 for each in reno if each.within)}."
            ),
            (
                "Goodput is UDP payload in packets of 1200 bytes, as in the publication, whose most is 9.77 Mbit/s ="
                " 10 x 1200 / 1228. Their BBR is ngtcp2's version 2, ours is version 3. docs/studies.md has the"
                " differences."
            ),
        ],
        [_table("Beside the publication", compared), _table("Ours alone", [e for e in found if e.within is None])],
        [
            Drawing(
                _areas(runs, found, controller),
                f"Working areas of {controller}: a dot is a second; best is up and left. Broken: the link's own"
                " round-trip time; crosses: published means.",
            )
            for controller in dict.fromkeys(each.controller for each in found)
        ],
    )


def _table(caption: str, found: Sequence[Comparison]) -> Table:
    head = [
        "queue", "controller", "RTT", "theirs, Mbit/s", "ours", "difference", "theirs, ms", "ours", "difference",
        "verdict",
    ]  # fmt: skip
    return Table(caption, head, [_row(each) for each in found])


def _row(each: Comparison) -> Sequence[Cell | str]:
    theirs, ours = each.theirs, each.ours
    return [
        QUEUES[each.queue],
        each.controller,
        f"{BASE_RTTS_MS[each.leg - 1]:g} ms",
        "-" if theirs is None else f"{theirs.goodput_mbit_s:.2f} ± {theirs.goodput_sd_mbit_s:.2f}",
        f"{ours.goodput_mbit_s:.2f} ± {ours.goodput_sd_mbit_s:.2f}",
        percent(each.goodput_difference),
        "-" if theirs is None else f"{theirs.rtt_ms:.1f} ± {theirs.rtt_sd_ms:.1f}",
        f"{number(ours.rtt_ms, 1)} ± {number(ours.rtt_sd_ms, 1)}",
        percent(each.rtt_difference),
        VERDICTS[each.within],
    ]


def _areas(runs: Sequence[Run], found: Sequence[Comparison], controller: str) -> str:
    first = {run.axes["case"]: run for run in reversed(runs) if run.axes["flow.controller"] == controller}
    panels = {
        QUEUES[queue]: [
            [(rtt, rate) for rate, rtt in rates(first[queue].samples, begin, end)]
            for begin, end in ((0.0, HANDOVER_S), (HANDOVER_S, END_S))
        ]
        for queue in QUEUES
        if queue in first
    }
    theirs = {
        QUEUES[queue]: [
            (each.theirs.rtt_ms, each.theirs.goodput_mbit_s)
            for each in found
            if each.theirs and (each.queue, each.controller) == (queue, controller)
        ]
        for queue in QUEUES
    }
    return plots.working_areas(panels, BASE_RTTS_MS, CAPACITY_MBIT_S, theirs)
