"""Endres: 10 MiB over SAT and SATLOSS with every controller, and the effect of the initial window."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bentpipe_lab.records import published
from bentpipe_lab.studies import plots, records
from bentpipe_lab.studies.records import Line, Run
from bentpipe_lab.studies.section import Cell, Drawing, Section, Table, number, percent

BYTES = 10 << 20


def section(directory: Path, window_directory: Path) -> Section:
    """Times and goodput beside table 5.1, and times over the initial window beside figure 5.10."""
    lines = records.lines(directory)
    windows = records.lines(window_directory)
    goodputs = _all_goodputs(directory)
    theirs = {row["case"]: row for row in published.table("endres")}
    return Section(
        "Endres: SAT and SATLOSS",
        published.source("endres"),
        [
            (
                "20/2 Mbit/s, 600 ms, 10 MiB, initial window of 10 packets; SATLOSS loses 1 % in both directions. The"
                " publication has 25 packets of queue and gives means and maxima over all pairs of implementations. Its"
                " goodput counts from the first byte, so here too; times are from the first packet."
            ),
            (
                "Initial window: from 10 to 50 packets, the publication saw aioquic's time fall by 30 % on SAT. There"
                " the start was everything: more than 80 s, in which the window hardly grew. Here slow start doubles,"
                " so that 50 packets instead of 10 save two to three of its round trips."
            ),
        ],
        [_times(lines), _goodput(goodputs), _windows(windows)],
        [
            Drawing(
                plots.bars(
                    {
                        f"{case},\n{queue}": _median_goodputs(goodputs, case, queue)
                        for case in theirs
                        for queue in _values(lines, "link.forward.queue")
                    },
                    "Mbit/s",
                    {f"{case}: best pair published": float(row["maximum_mbit_s"]) for case, row in theirs.items()},
                ),
                "Goodput of 10 MiB as the publication counts it, from the first byte on.",
            ),
            Drawing(
                plots.curves(
                    {
                        f"queue of {queue}": {
                            controller: [
                                (float(line.axes["flow.initial_window"]), line.median_s)
                                for line in windows
                                if line.axes["link.forward.queue"] == queue
                                and line.axes["flow.controller"] == controller
                                and line.median_s is not None
                            ]
                            for controller in _values(windows, "flow.controller")
                        }
                        for queue in _values(windows, "link.forward.queue")
                    },
                    "initial window, packets",
                    "seconds",
                    log_x=True,
                ),
                "Time of 10 MiB over SAT by initial window, as in figure 5.10.",
            ),
        ],
    )


def _times(lines: Sequence[Line]) -> Table:
    queues = _values(lines, "link.forward.queue")
    rows: list[list[Cell | str]] = [
        [
            case,
            controller,
            *[_time(_line(lines, case, controller, queue)) for queue in queues],
        ]
        for case in _values(lines, "case")
        for controller in _values(lines, "flow.controller")
    ]
    return Table("Median time of 10 MiB, runs that ended well", ["scenario", "controller", *queues], rows)


Goodputs = Mapping[tuple[str, str, str], Sequence[float]]
"""Of every run in Mbit/s, by case, queue and controller."""


def goodput_mbit_s(run: Run) -> float:
    """As QUIC Interop Runner counts: without handshake and first round trip; 0 for a transfer that is not whole."""
    transfer = run.transfers[-1]
    if transfer["done_ns"] is None:
        return 0.0
    return float(BYTES * 8e3 / (transfer["done_ns"] - transfer["first_byte_ns"]))


def _all_goodputs(directory: Path) -> Goodputs:
    found: dict[tuple[str, str, str], list[float]] = {}
    for run in records.runs(directory):
        key = (run.axes["case"], run.axes["link.forward.queue"], run.axes["flow.controller"])
        found.setdefault(key, []).append(goodput_mbit_s(run))
    return found


def _median_goodputs(goodputs: Goodputs, case: str, queue: str) -> dict[str, float]:
    return {
        controller: float(np.median(found))
        for (its_case, its_queue, controller), found in goodputs.items()
        if (its_case, its_queue) == (case, queue)
    }


def _goodput(goodputs: Goodputs) -> Table:
    rows = []
    for row in published.table("endres"):
        ours = _median_goodputs(goodputs, row["case"], "25 packets")
        best = max(ours, key=lambda controller: ours[controller])
        mean = sum(ours.values()) / len(ours)
        rows.append(
            [row["case"], row["mean_mbit_s"], number(mean), row["maximum_mbit_s"], f"{number(ours[best])} ({best})",
             f"{row['failed_percent']} %"]
        )  # fmt: skip
    head = ["scenario", "their mean, Mbit/s", "mean of ours", "their best", "best of ours", "theirs that failed"]
    return Table("Goodput with their queue of 25 packets", head, rows)


def _windows(lines: Sequence[Line]) -> Table:
    sizes = _values(lines, "flow.initial_window")
    rows = []
    for queue in _values(lines, "link.forward.queue"):
        for controller in _values(lines, "flow.controller"):
            times = {
                line.axes["flow.initial_window"]: line.median_s
                for line in lines
                if line.axes["link.forward.queue"] == queue and line.axes["flow.controller"] == controller
            }
            few, many = times.get("10"), times.get("50")
            gain = many / few - 1 if few and many else None
            rows.append([queue, controller, *[number(times.get(size), 2, " s") for size in sizes], percent(gain)])
    head = ["queue", "controller", *[f"{size} packets" for size in sizes], "10 to 50 (theirs -30 %)"]
    return Table("Median time of 10 MiB over SAT by initial window", head, rows)


def _line(lines: Sequence[Line], case: str, controller: str, queue: str) -> Line:
    wanted = {"case": case, "flow.controller": controller, "link.forward.queue": queue}
    return next(line for line in lines if wanted.items() <= dict(line.axes).items())


def _time(line: Line) -> str:
    return f"{number(line.median_s, 2, ' s')} ({line.n_ok}/{line.n_total})"


def _values(lines: Sequence[Line], axis: str) -> Sequence[str]:
    return list(dict.fromkeys(line.axes[axis] for line in lines))
