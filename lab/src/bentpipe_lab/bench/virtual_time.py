"""What virtual time costs: processor seconds and memory of simulated bulk flows, against their limits.

A program of its own (`python -m bentpipe_lab.bench.virtual_time`): it needs no namespaces and no rights. Each
run is a process of its own, so that its processor time and its largest memory are what the kernel says of it.
Memory must not grow with simulated time, so ten minutes may not need much more than one.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bentpipe_lab.bench import cost
from bentpipe_lab.bench.cost import Cost
from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host

BULK_S = 180
"""How long the bulk flow lasts whose processor time is measured."""
SHORT_S, LONG_S = 60, 600
RUNS = 3
"""The best of so many runs counts: processor time only ever grows by what else the machine does."""

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

    @property
    def line(self) -> str:
        """As it is told."""
        verdict = "ok" if self.kept else "SHORT"
        return f"{self.name:<60} {self.value:>8.2f} {self.unit:<6} limit {self.limit:>7.2f}  {verdict}"


def told(measure: Callable[[], Sequence[Reach]]) -> int:
    """Measure, print, and say whether the limits hold: the exit code of a program."""
    try:
        found = measure()
    except LabError as error:
        print(f"cannot go on: {error}", file=sys.stderr)
        return 1
    for each in found:
        print(each.line)
    return 0 if all(each.kept for each in found) else 1


def cost_of(plan: str, seconds: int) -> Cost:
    """Carry out a plan for so many simulated seconds."""
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as directory:
        path = Path(directory, "plan.toml")
        path.write_text(plan.replace("{seconds}", str(seconds)))
        return cost.of([host.binary(), "sim", path, "--out", directory])


def reach() -> list[Reach]:
    """Measure everything."""
    rows = []
    for name, plan, limit in (("QUIC alone", LEAN, 2.5), ("terminal and gateway", TUNNEL, 6.0)):
        user = min(cost_of(plan, BULK_S).user_s for _ in range(RUNS))
        rows.append(Reach(f"{BULK_S} s of 20 Mbit/s, {name}", user, limit, "CPU s"))
        short, long = cost_of(plan, SHORT_S).peak_mib, cost_of(plan, LONG_S).peak_mib
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
        print(row.line)
    print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
