"""Drawings of runs and the packets behind them, those that are not there yet, on all processors."""

import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.matrix import packet_data, trace_plots
from bentpipe_lab.room import whole

FEW = 8
"""So many are drawn before another process has begun."""


@dataclass(frozen=True)
class Drawing:
    """What is to be drawn of a run."""

    run: Path
    """The run's directory, with its tables."""
    others: Sequence[Path]
    """Of the other repetitions, which are drawn behind it."""
    name: Path
    """Where the files go, without their suffix."""

    @property
    def image(self) -> Path:
        """The picture."""
        return self.name.with_name(f"{self.name.name}.png")

    @property
    def packets(self) -> Path:
        """What the page's button loads."""
        return self.name.with_name(f"{self.name.name}.js")


def draw(wanted: Iterable[Drawing]) -> None:
    """Draw what is missing; a run without tables has neither."""
    missing = [each for each in wanted if not (each.image.exists() and each.packets.exists())]
    processors = len(os.sched_getaffinity(0))
    if len(missing) <= FEW or processors == 1:
        for each in missing:
            _draw(each)
        return
    # Not by fork: libraries here have threads, and locks that these may hold.
    with ProcessPoolExecutor(processors, mp_context=multiprocessing.get_context("spawn")) as pool:
        for _ in pool.map(_draw, missing, chunksize=4):
            pass


def _draw(wanted: Drawing) -> None:
    if not wanted.image.exists() and (picture := trace_plots.draw(wanted.run, wanted.others)) is not None:
        with whole(wanted.image) as part:
            part.write_bytes(picture)
    if not wanted.packets.exists() and (script := packet_data.script(wanted.run, wanted.name.name)) is not None:
        with whole(wanted.packets) as part:
            part.write_text(script)
