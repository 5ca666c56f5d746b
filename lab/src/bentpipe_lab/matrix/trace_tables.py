"""The tables of a run, with seconds since its first packet."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from bentpipe_lab.matrix import link_records


def packets(run: Path) -> pl.DataFrame | None:
    """What the client's capture has; None where there is none. `run` is a directory with its tables."""
    return _quic(run / "client-packets.parquet", ["time_ns", "from_client", "kind", "number", "size", "protocol"])


def streams(run: Path) -> pl.DataFrame | None:
    """What the server sent on streams that the client opened for both directions."""
    table = _quic(
        run / "server-streams.parquet", ["time_ns", "from_client", "stream", "offset", "length", "repeated", "protocol"]
    )
    if table is None:
        return None
    return table.filter(~pl.col("from_client") & (pl.col("stream") % 4 == 0)).with_columns(
        end=pl.col("offset") + pl.col("length")
    )


def queue(run: Path) -> pl.DataFrame | None:
    """What each packet found at the emulator, and what became of it."""
    return _timed(run / link_records.TABLE, ["time_ns", "direction", "queue_bytes", "fate"])


def _quic(file: Path, columns: Sequence[str]) -> pl.DataFrame | None:
    table = _timed(file, columns)
    return None if table is None else table.filter(pl.col("protocol") == "quic")


def _timed(file: Path, columns: Sequence[str]) -> pl.DataFrame | None:
    """The rows with seconds since the first packet of the run."""
    begin = file.with_name("client-packets.parquet")
    if not file.is_file() or not begin.is_file():
        return None
    first = pl.read_parquet(begin, columns=["time_ns"])["time_ns"].min()
    table = pl.read_parquet(file, columns=list(columns))
    return table.with_columns(at_s=(pl.col("time_ns").cast(pl.Int64) - int(first or 0)) / 1e9)  # type: ignore[arg-type]
