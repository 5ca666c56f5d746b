"""CoDel and other queue management on GEO: what an interval far below the round trip costs."""

from pathlib import Path

import numpy as np

from bentpipe_lab.studies import plots, records
from bentpipe_lab.studies.records import Run
from bentpipe_lab.studies.section import Drawing, Section, Table, number

SETTLED_S = 20.0
"""The start is over by then."""


def settled(run: Run) -> tuple[float, float]:
    """Payload in Mbit/s and mean round-trip time in ms once the start is over."""
    samples = [sample for sample in run.samples if sample.at_s >= SETTLED_S]
    spent = samples[-1].at_s - samples[0].at_s
    rate = (samples[-1].received - samples[0].received) * 8e-6 / spent
    return rate, float(np.mean([sample.rtt_ms for sample in samples]))


def section(directory: Path) -> Section:
    """Goodput and round-trip time under each queue."""
    found = {(run.axes["case"], run.axes["flow.controller"]): settled(run) for run in records.runs(directory)}
    queues = list(dict.fromkeys(queue for queue, _ in found))
    controllers = list(dict.fromkeys(controller for _, controller in found))
    rows = [
        [
            controller,
            *[f"{number(found[queue, controller][0])} / {number(found[queue, controller][1], 0)}" for queue in queues],
        ]
        for controller in controllers
    ]
    return Section(
        "CoDel on GEO",
        "RFC 8289, section 4.2: the interval is to be about the longest round trip of the connections; its default of"
        " 100 ms is a sixth of GEO's.",
        [
            (
                f"20/2 Mbit/s, 600 ms, one flow of 120 s, figures from {SETTLED_S:g} s on; the best is 19.2 Mbit/s."
                " With an interval of 100 ms CoDel takes a queue for a standing one before a sender can have heard of"
                " its first drop, and drops again: senders that halve lose much of the link. With one of a round trip"
                " they get most of it back. A sender that keeps no queue does not notice."
            ),
        ],
        [Table("Payload, Mbit/s / mean round-trip time, ms", ["controller", *queues], rows)],
        [
            Drawing(
                plots.bars(
                    {queue: {name: found[queue, name][0] for name in controllers} for queue in queues}, "Mbit/s"
                ),
                "Payload by queue once the start is over.",
            )
        ],
    )
