"""How all runs of a point went over time: what had arrived, and the goodput of each second."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from bentpipe_lab.analysis.campaign import PointRow

Numbers = npt.NDArray[np.float64]
Run = tuple[Numbers, Numbers]
"""Moments in seconds since the run began, and the bytes that had arrived until then."""
_NEARLY = 0.05
"""Seconds by which the last sample of a run may come too early."""


def received(samples: Path, rows: Sequence[PointRow]) -> Mapping[str, Sequence[Run]]:
    """The runs of some points that ended well, by point; points without samples are left out."""
    return {point: list(runs.values()) for point, runs in received_by_run(samples, rows).items()}


def received_by_run(samples: Path, rows: Sequence[PointRow]) -> Mapping[str, Mapping[tuple[int, int], Run]]:
    """The same, each run by its repetition and attempt."""
    if not samples.exists():
        return {}
    names = {"point": pl.String, "repetition": pl.Int64, "attempt": pl.Int64}
    wanted = pl.LazyFrame([(row.point, *run) for row in rows for run in row.good], schema=names, orient="row")
    found = pl.scan_parquet(samples).select(*names, "at_s", "received_bytes").join(wanted, on=list(names))
    by_point: dict[str, dict[tuple[int, int], Run]] = {}
    for key, frame in found.sort(*names, "at_s").collect().group_by(*names, maintain_order=True):
        at, got = (frame[name].cast(pl.Float64).to_numpy() for name in ("at_s", "received_bytes"))
        point, repetition, attempt = key
        run = (np.append(0.0, at), np.append(0.0, got))
        by_point.setdefault(str(point), {})[int(repetition), int(attempt)] = run
    return by_point


def until(runs: Sequence[Run], moments: Numbers) -> Numbers:
    """Bytes that had arrived until some moments, a row per run; after a run's end all that it brought."""
    return np.array([np.interp(moments, at, got) for at, got in runs])


def each_second(runs: Sequence[Run], begin_s: float = 0.0) -> Numbers:
    """Goodput in Mbit/s in each whole second, from a moment on, that all runs lasted for, a row per run."""
    lasted = int(min(at[-1] for at, _ in runs) - begin_s + _NEARLY)
    return np.diff(until(runs, begin_s + np.arange(lasted + 1.0)), axis=1) * 8e-6
