"""Endres: goodput of 10 MiB over SAT and SATLOSS, beside means and maxima over all pairs of implementations."""

from collections.abc import Sequence

from bentpipe_lab.analysis.campaign import MetricRow
from bentpipe_lab.records import published
from bentpipe_lab.studies.section import Section, Table, number

METRIC = "from_first_byte_mbit_s"
QUEUE = "25 packets"
"""His."""


def section(figures: Sequence[MetricRow]) -> Section:
    """Table 5.1 beside the medians of our controllers."""
    rows = []
    for theirs in published.table("endres"):
        ours = {
            each.row.axes["controller"]: each.interval.median
            for each in figures
            if each.metric == METRIC
            and (each.row.axes.get("case"), each.row.axes.get("scenario.forward.queue")) == (theirs["case"], QUEUE)
        }
        if not ours:
            continue
        best = max(ours, key=lambda controller: ours[controller])
        rows.append(
            [theirs["case"], theirs["mean_mbit_s"], number(sum(ours.values()) / len(ours)), theirs["maximum_mbit_s"],
             f"{number(ours[best])} ({best})", f"{theirs['failed_percent']} %"]
        )  # fmt: skip
    head = ["scenario", "their mean, Mbit/s", "mean of ours", "their best", "best of ours", "theirs that failed"]
    return Section(
        "All pairs of implementations, and our controllers",
        [
            (
                "The publication gives means and maxima over all pairs of implementations, with a queue of 25 packets;"
                " its goodput counts from the first byte, so here too. A controller of which no transfer came to its"
                " end is left out of the mean."
            )
        ],
        [Table("Goodput of 10 MiB with a queue of 25 packets", head, rows)],
    )
