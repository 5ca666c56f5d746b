"""What the interactive plot of a run shows: stream offsets, and the emulator's queue, as arrays in a script.

A script and not JSON, because a page from a file system may load the one and not the other.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from bentpipe_lab.matrix import link_records, trace_tables

MIB = 1 << 20


def script(run: Path, name: str) -> str | None:
    """The script that sets the data of a run (a directory with its tables); None without tables."""
    streams = trace_tables.streams(run)
    if streams is None or streams.is_empty():
        return None
    streams = streams.sort("at_s")
    panels = [
        {
            "title": "Stream offset, as the server sent it",
            "unit": "MiB",
            "lines": [
                _line(
                    "first time", "first", streams["at_s"], streams["end"] / MIB, streams["repeated"] > 0,
                    ("repeated", "again"),
                )
            ],
        }
    ]  # fmt: skip
    packets = trace_tables.queue(run)
    if packets is not None and not packets.is_empty():
        lines = [
            _line(
                direction, colour, part["at_s"], part["queue_bytes"] / 1e3, part["fate"] != link_records.DELIVERED,
                (f"dropped, {direction}", "drop"),
            )
            for direction, colour in (("forward", "forward"), ("return", "back"))
            if not (part := packets.filter(pl.col("direction") == direction).sort("at_s")).is_empty()
        ]  # fmt: skip
        panels.append({"title": "Queue that a packet found at the emulator", "unit": "kB", "lines": lines})
    return f"window.packetData[{json.dumps(name)}] = {json.dumps({'panels': panels})};\n"


def _line(
    label: str, colour: str, x: pl.Series, y: pl.Series, flag: pl.Series, marked: tuple[str, str]
) -> dict[str, Any]:
    """One kind of marks; those that are flagged have a label and colour of their own."""
    return {
        "label": label, "colour": colour, "markedLabel": marked[0], "marked": marked[1],
        "x": _text(x.to_numpy().astype(np.float32)), "y": _text(y.to_numpy().astype(np.float32)),
        "flag": _text(flag.cast(pl.UInt8).to_numpy()),
    }  # fmt: skip


def _text(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()
