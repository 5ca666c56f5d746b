"""What virtual time costs: processor seconds and memory of simulated bulk flows, against their limits.

A program of its own (`python -m bentpipe_lab.bench.virtual_time`): it needs no namespaces and no rights. Each
run is a process of its own, so that its processor time and its largest memory are what the kernel says of it.
Memory must not grow with simulated time, so ten minutes may not need much more than one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bentpipe_lab.errors import LabError, ProgramError
from bentpipe_lab.net import host

BULK_S = 180
"""How long the bulk flow lasts whose processor time is measured."""
SHORT_S, LONG_S = 60, 600
RUNS = 3
"""The best of so many runs counts: processor time only ever grows by what else the machine does."""
LOOK_S = 0.01
"""How often a run's memory is looked at."""

LINK = """
[link]
name = "geo"
forward = { rate = "20 Mbit/s", delay = "300 ms", queue = "1500 kB" }
return = { rate = "2 Mbit/s", delay = "300 ms", queue = "150 kB" }
"""
LEAN = 'name = "lean"\nuntil = "{seconds} s"\n' + LINK + '[flow]\ncontroller = "cubic"\nbytes = "100 GB"\n'
TUNNEL = (
    'name = "tunnel"\nthrough = "tunnel"\nuntil = "{seconds} s"\n'
    + LINK
    + '[transport]\ncontroller = "cubic"\nexpected_rate = "20 Mbit/s"\n'
    + '[[flow]]\nname = "bulk"\nstart = "0 s"\ndownload = "100 GB"\n'
)


@dataclass(frozen=True)
class Cost:
    """What one process has used."""

    user_s: float
    peak_mib: float


@dataclass(frozen=True)
class Reach:
    """A quantity and the most that it may be."""

    name: str
    value: float
    limit: float
    unit: str

    @property
    def kept(self) -> bool:
        """Whether the limit holds."""
        return self.value <= self.limit


def cost(plan: str, seconds: int) -> Cost:
    """Carry out a plan for so many simulated seconds."""
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as directory:
        path = Path(directory, "plan.toml")
        path.write_text(plan.replace("{seconds}", str(seconds)))
        argv = [str(host.binary()), "sim", str(path), "--out", directory]
        with Path(directory, "output").open("w") as output:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        peak = 0.0
        while True:
            peak = max(peak, _peak_mib(child.pid))
            done, status, usage = os.wait4(child.pid, os.WNOHANG)
            if done:
                break
            time.sleep(LOOK_S)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            printed = Path(directory, "output").read_text().strip()
            raise ProgramError(f"bentpipe sim ended with {child.returncode}: {printed}")
    return Cost(usage.ru_utime, peak)


def _peak_mib(process: int) -> float:
    """The most memory that a process has had so far; the kernel's sum for a child begins with its parent's."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def reach() -> list[Reach]:
    """Measure everything."""
    rows = []
    for name, plan, limit in (("QUIC alone", LEAN, 2.5), ("terminal and gateway", TUNNEL, 6.0)):
        user = min(cost(plan, BULK_S).user_s for _ in range(RUNS))
        rows.append(Reach(f"{BULK_S} s of 20 Mbit/s, {name}", user, limit, "CPU s"))
        short, long = cost(plan, SHORT_S).peak_mib, cost(plan, LONG_S).peak_mib
        # The allocator's own granularity, and what the records of ten minutes take in a table.
        rows.append(Reach(f"memory of {LONG_S} s, {name} ({SHORT_S} s: {short:.1f})", long, short * 1.1 + 2, "MiB"))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write `virtual-time.json`."""
    parser = argparse.ArgumentParser(description="Processor time and memory of virtual time.")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    out: Path = parser.parse_args(arguments).out
    try:
        rows = reach()
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    written = out / "virtual-time.json"
    written.write_text(json.dumps([{**asdict(row), "kept": row.kept} for row in rows], indent=2) + "\n")
    for row in rows:
        verdict = "ok" if row.kept else "SHORT"
        print(f"{row.name:<60} {row.value:>8.2f} {row.unit:<6} limit {row.limit:>7.2f}  {verdict}")
    print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
