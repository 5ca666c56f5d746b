"""What a run's packets show: offset over time and the queue under it, packet number over time, data rate both ways,
sizes (figures 5.7 to 5.20 of the thesis), from the tables that `bentpipe trace` wrote."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bentpipe_lab.matrix import link_records, trace_tables
from bentpipe_lab.report.charts import COLOURS
from bentpipe_lab.report.style import FAINT, INK, MUTED

MIB = 1 << 20
BIN_S = 1.0
PLACES = {
    "height_ratios": [3, 1.6, 2, 2, 1.4],
    "left": 0.08,
    "right": 0.98,
    "top": 0.975,
    "bottom": 0.04,
    "hspace": 0.5,
}
DOTS = 130
"""Per inch: packets are drawn as dots of an image, a vector for each would be too much for a phone."""


def draw(run: Path, others: Sequence[Path]) -> bytes | None:
    """One image of a run (a directory with its tables), the other repetitions behind it; None without tables."""
    packets = trace_tables.packets(run)
    streams = trace_tables.streams(run)
    if packets is None or streams is None or streams.is_empty():
        return None
    # A layout that is computed draws everything twice.
    figure = Figure(figsize=(10, 13))
    offset, queue, number, rate, size = figure.subplots(5, 1, gridspec_kw=PLACES)
    for other in others:
        behind = trace_tables.streams(other)
        if behind is not None and not behind.is_empty():
            offset.plot(behind["at_s"], behind["end"] / MIB, ".", color=FAINT, markersize=1.5, zorder=1)
    new, again = streams.filter(pl.col("repeated") == 0), streams.filter(pl.col("repeated") > 0)
    offset.plot(new["at_s"], new["end"] / MIB, ".", color=COLOURS[0], markersize=1.8, label="first time", zorder=2)
    offset.plot(again["at_s"], again["end"] / MIB, "x", color=COLOURS[3], markersize=4, label="repeated", zorder=3)
    offset.set(ylabel="MiB of the stream", title="Stream offset over time, as the server sent it")
    offset.legend(frameon=False, fontsize=8, loc="lower right")
    _queue(queue, trace_tables.queue(run))
    for from_client, colour, label in ((False, COLOURS[0], "server"), (True, COLOURS[1], "client")):
        side = packets.filter((pl.col("from_client") == from_client) & (pl.col("kind") == "1RTT"))
        number.plot(side["at_s"], side["number"], ".", color=colour, markersize=1.5, label=label)
        edges = np.arange(0, float(packets["at_s"].max() or 0) + 2 * BIN_S, BIN_S)  # type: ignore[arg-type]
        counts, _ = np.histogram(side["at_s"], bins=edges, weights=side["size"].to_numpy() * 8 / 1e6 / BIN_S)
        rate.stairs(counts, edges, color=colour, label=f"from the {label}")
        size.hist(side["size"], bins=np.arange(0, 1600, 25), color=colour, alpha=0.6, label=label)
    number.set(ylabel="packet number", title="1-RTT packet numbers over time")
    rate.set(ylabel="Mbit/s", title=f"Rate of 1-RTT packets in steps of {BIN_S:g} s")
    size.set(ylabel="packets", xlabel="bytes", title="Sizes of 1-RTT packets", yscale="log")
    for axes in (offset, queue, number, rate, size):
        axes.grid(visible=True)
        axes.tick_params(colors=MUTED)
    for axes in (offset, queue, number, rate):
        axes.set_xlim(0, float(packets["at_s"].max() or 0))  # type: ignore[arg-type]
        axes.set_xlabel("seconds since the first packet", color=INK)
    for axes in (queue, number, rate, size):
        axes.legend(frameon=False, fontsize=8)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DOTS, facecolor="white", metadata={"Software": None})
    return image.getvalue()


def _queue(axes: Axes, packets: pl.DataFrame | None) -> None:
    """The emulator's queue as packets found it, and those that were dropped."""
    axes.set(ylabel="kB", title="Queue at the emulator, as packets found it; crosses were dropped")
    for direction, colour in (("forward", COLOURS[0]), ("return", COLOURS[1])):
        axes.plot([], [], ".", color=colour, label=direction)
        if packets is None:
            continue
        side = packets.filter(pl.col("direction") == direction)
        through = side.filter(pl.col("fate") == link_records.DELIVERED)
        dropped = side.filter(pl.col("fate") != link_records.DELIVERED)
        axes.plot(through["at_s"], through["queue_bytes"] / 1e3, ".", color=colour, markersize=1.2)
        axes.plot(dropped["at_s"], dropped["queue_bytes"] / 1e3, "x", color=COLOURS[3], markersize=4)
