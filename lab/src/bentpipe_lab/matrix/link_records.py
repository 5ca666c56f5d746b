"""What the emulator wrote down of each packet, of the time of one run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bentpipe_lab.net import host, netns
from bentpipe_lab.net.topology import Topology

DELIVERED = "delivered"
TABLE = "link.parquet"


def since(records: Path, begun_ns: int) -> pl.DataFrame:
    """The packets of the satellite hop that came in since a moment (nanoseconds since 1970).

    A row a packet: `time_ns` when it came in, `direction` (forward, return), `queue_bytes` that waited before it,
    `length`, and `fate`: delivered, or why it was dropped.
    """
    with records.open("rb") as file:
        header: Mapping[str, Any] = json.loads(file.readline())
        form = np.dtype([tuple(field) for field in header["record"]])
        held = file.read()
    found = np.frombuffer(held, dtype=form, count=len(held) // form.itemsize)
    found = found[found["entered_ns"].astype(np.int64) + header["begun_ns"] >= begun_ns]
    directions = [each["name"] if each["link"] == "satellite" else None for each in header["directions"]]
    return (
        pl.DataFrame({name: found[name] for name in ("entered_ns", "queue_bytes", "length", "direction", "fate")})
        .with_columns(
            (pl.col("entered_ns").cast(pl.Int64) + header["begun_ns"]).alias("time_ns"),
            pl.col("direction").replace_strict(dict(enumerate(directions)), return_dtype=pl.String),
            pl.col("fate").replace_strict(dict(enumerate(header["fates"])), return_dtype=pl.String),
        )
        .filter(pl.col("direction").is_not_null())
        .select("time_ns", "direction", "queue_bytes", "length", "fate")
    )


def handed_over(path: Topology) -> None:
    """Have the emulator write down what it still holds: whoever asks it how it does may read its records."""
    if path.records is not None and path.emulator is not None:
        control = f"/run/bentpipe/emulate-{path.emulator.pid}.sock"
        netns.checked([str(host.binary()), "link", "show", "--json", "--control", control])
