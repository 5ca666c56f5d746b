"""Bytes of a page load as they arrive at the client: a capture there while the block runs, and what it says.

Of both transports the same is counted, new bytes of the servers' streams: of TCP by sequence number, with what TLS adds
to them, of QUIC by stream offset. What is sent again counts once.
"""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net import host
from bentpipe_lab.programs import Debian

TCPDUMP = Debian("tcpdump")
STEP_S = 0.025
"""Of what arrives within one step, the first and the last packet are kept: pauses between rounds stay pauses."""
BUFFER_KIB = 8192
"""Room for more than two seconds at 25 Mbit/s. The kernel clears it when a capture begins, and lets no other thread in
meanwhile: 3 ms."""
MOST_CAPTURED = 256 << 20
"""Bytes of one capture."""
START_S = 15.0
TRACE_S = 60.0
"""How long reading a capture may take."""
SETTLE_S = 0.1
"""For tcpdump to write the last packets."""


@contextmanager
def captured(device: str, port: int, file: Path) -> Iterator[None]:
    """Capture what passes a device to and from a port, TCP and UDP, while the block runs."""
    log = file.with_suffix(".log")
    argv = [
        "prlimit", f"--fsize={MOST_CAPTURED}", "--core=0", str(TCPDUMP.found()), "-i", device, "-n", "-s", "0",
        "-B", str(BUFFER_KIB), "--time-stamp-precision=nano", "--immediate-mode", "-Z", "root", "-w", str(file),
        "port", str(port),
    ]  # fmt: skip
    with log.open("w") as said, subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as tcpdump:
        try:
            deadline = time.monotonic() + START_S
            while "listening on" not in log.read_text():
                if tcpdump.poll() is not None or time.monotonic() > deadline:
                    raise ProgramError(f"tcpdump does not listen: {log.read_text().strip()[-400:]}")
                time.sleep(0.02)
            yield
            time.sleep(SETTLE_S)
        finally:
            tcpdump.send_signal(signal.SIGINT)


def samples(file: Path, keys: Path, least: int) -> list[dict[str, float | int]]:
    """Seconds since the client's first packet, and the bytes that had arrived by then; a `ProgramError` tells why not.

    `least` bytes there must be: fewer mean that packets could not be decrypted, or were missed.
    """
    dropped = re.search(r"(\d+) packets? dropped by kernel", file.with_suffix(".log").read_text())
    if dropped is None or int(dropped[1]):
        raise ProgramError(f"the capture missed {'packets' if dropped is None else f'{dropped[1]} packets'}")
    out = file.with_suffix(".trace")
    argv = [str(host.binary()), "trace", str(file), "--out", str(out), "--json"]
    argv += ["--keys", str(keys)] if keys.is_file() else []
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TRACE_S, check=False)
    except subprocess.TimeoutExpired:
        raise ProgramError(f"the capture was not read within {TRACE_S:.0f} s") from None
    damage = json.loads(done.stdout.splitlines()[0])["damage"] if done.stdout else done.stderr.strip()[-400:]
    if done.returncode != 0:
        raise ProgramError(f"the capture was not read: {damage}")
    tables = [pl.read_parquet(out / file.name / f"{name}.parquet") for name in ("packets", "streams")]
    found = arrivals(tables[0], tables[1])
    whole = found[-1]["received_bytes"] if found else 0
    if whole < least:
        raise ProgramError(f"the capture tells of {whole} bytes of at least {least}")
    return found


def arrivals(packets: pl.DataFrame, streams: pl.DataFrame) -> list[dict[str, float | int]]:
    """What the tables of a trace of the client's side say, all connections together."""
    begun = packets.filter("from_client")["time_ns"].min()
    new = streams.filter(~pl.col("from_client") & (pl.col("length") > pl.col("repeated"))).sort("time_ns")
    if begun is None or new.is_empty():
        return []
    steps = (
        new.select(
            at_s=(pl.col("time_ns") - pl.lit(begun)) / 1e9,
            received_bytes=(pl.col("length") - pl.col("repeated")).cum_sum(),
        )
        .group_by("at_s", maintain_order=True)
        .last()
        .with_columns(step=(pl.col("at_s") / STEP_S).floor())
    )
    ends = pl.col("step").is_first_distinct() | pl.col("step").is_last_distinct()
    kept = steps.filter(ends).select(pl.col("at_s").round(6), "received_bytes")
    return [{"at_s": 0.0, "received_bytes": 0}, *kept.to_dicts()]
