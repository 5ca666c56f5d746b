"""What a run's packets show: offset over time, packet number over time, data rate both ways, sizes (figures 5.7 to
5.20 of the thesis), from the tables that `bentpipe trace` wrote."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from bentpipe_lab.report.charts import COLOURS
from bentpipe_lab.report.style import FAINT, INK, MUTED

MIB = 1 << 20
BIN_S = 1.0
DOTS = 130
"""Per inch: packets are drawn as dots of an image, a vector for each would be too much for a phone."""


def draw(run: Path, others: Sequence[Path]) -> bytes | None:
    """One image of a run (a directory with its tables), the other repetitions behind it; None without tables."""
    packets = _packets(run)
    streams = _streams(run)
    if packets is None or streams is None or streams.is_empty():
        return None
    figure = Figure(figsize=(10, 11), layout="constrained")
    offset, number, rate, size = figure.subplots(4, 1, gridspec_kw={"height_ratios": [3, 2, 2, 1.4]})
    for other in others:
        behind = _streams(other)
        if behind is not None and not behind.is_empty():
            offset.plot(behind["at_s"], behind["end"] / MIB, ".", color=FAINT, markersize=1.5, zorder=1)
    new, again = streams.filter(pl.col("repeated") == 0), streams.filter(pl.col("repeated") > 0)
    offset.plot(new["at_s"], new["end"] / MIB, ".", color=COLOURS[0], markersize=1.8, label="first time", zorder=2)
    offset.plot(again["at_s"], again["end"] / MIB, "x", color=COLOURS[3], markersize=4, label="repeated", zorder=3)
    offset.set(ylabel="MiB of the stream", title="Stream offset over time, as the server sent it")
    offset.legend(frameon=False, fontsize=8, loc="lower right")
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
    for axes in (offset, number, rate, size):
        axes.grid(visible=True)
        axes.tick_params(colors=MUTED)
    for axes in (offset, number, rate):
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds since the first packet", color=INK)
    for axes in (number, rate, size):
        axes.legend(frameon=False, fontsize=8)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DOTS, facecolor="white", metadata={"Software": None})
    return image.getvalue()


def _packets(run: Path) -> pl.DataFrame | None:
    return _timed(run / "client-packets.parquet", ["time_ns", "from_client", "kind", "number", "size", "protocol"])


def _streams(run: Path) -> pl.DataFrame | None:
    """What the server sent on streams that the client opened for both directions."""
    table = _timed(
        run / "server-streams.parquet", ["time_ns", "from_client", "stream", "offset", "length", "repeated", "protocol"]
    )
    if table is None:
        return None
    return table.filter(~pl.col("from_client") & (pl.col("stream") % 4 == 0)).with_columns(
        end=pl.col("offset") + pl.col("length")
    )


def _timed(file: Path, columns: Sequence[str]) -> pl.DataFrame | None:
    """The rows of QUIC packets with seconds since the first packet of the run."""
    if not file.is_file():
        return None
    table = pl.read_parquet(file, columns=list(columns)).filter(pl.col("protocol") == "quic")
    first = pl.read_parquet(file.with_name("client-packets.parquet"), columns=["time_ns"])["time_ns"].min()
    return table.with_columns(at_s=(pl.col("time_ns").cast(pl.Int64) - int(first or 0)) / 1e9)  # type: ignore[arg-type]
