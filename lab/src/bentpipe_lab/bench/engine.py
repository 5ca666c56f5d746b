"""What the engine of campaigns costs beside the runs, against its limit.

A program of its own (`python -m bentpipe_lab.bench.engine`). In virtual time it is processor time of the engine, its
workers and what they write, as a share of the simulator's; in real time, which wants namespaces, it is time on the
clock in which no run was measured, paths built and removed, as a share of the runs.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bentpipe_lab.bench.virtual_time import Reach, told
from bentpipe_lab.campaign import commands, directory, engine
from bentpipe_lab.campaign.directory import Campaign
from bentpipe_lab.campaign.progress import Progress
from bentpipe_lab.campaign.store import PROVENANCE
from bentpipe_lab.errors import LabError

LIMIT = 5.0
"""Per cent of the runs."""
VIRTUAL = """\
name = "engine"
repetitions = {repetitions}
[axes]
scenario = "geo"
system = "quic"
workload = "download"
"workload.size" = "10 MiB"
"scenario.forward.loss" = {{ from = "0.01 %", to = "1 %", steps = 8, scale = "log" }}
"""
REAL = """\
name = "engine"
clock = "real"
repetitions = {repetitions}
parallel = 1
late_repeats = 0
[axes]
scenario = "geo"
system = "direct"
workload = "iperf3"
"workload.seconds" = 10
"""


def virtual(repetitions: int) -> Reach:
    """Eight points, so often."""
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as place:
        campaign = _begun(Path(place), VIRTUAL.format(repetitions=repetitions))
        ours, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        _execute(campaign)
        engine_s, simulator_s = (
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            for before, after in (
                (ours, resource.getrusage(resource.RUSAGE_SELF)), (theirs, resource.getrusage(resource.RUSAGE_CHILDREN))
            )
        )  # fmt: skip
    return Reach("engine beside the simulator, processor time", 100 * engine_s / simulator_s, LIMIT, "%")


def real(repetitions: int) -> Reach:
    """So many runs over one path."""
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as place:
        campaign = _begun(Path(place), REAL.format(repetitions=repetitions))
        began = time.monotonic()
        _execute(campaign)
        took_s = time.monotonic() - began
        store = campaign.store
        runs_s = sum(json.loads(store.text(run, PROVENANCE))["took_s"] for run in store.complete())
    return Reach("engine and path beside the runs, on the clock", 100 * (took_s / runs_s - 1), LIMIT, "%")


def _begun(place: Path, text: str) -> Campaign:
    file = place / "plan.toml"
    file.write_text(text)
    plan, expansion = commands.prepared(file)
    return directory.begin(plan, expansion, place / "campaign", None)


def _execute(campaign: Campaign) -> None:
    engine.execute(campaign, Progress(Console(quiet=True)))
    verdicts = campaign.state().verdicts()
    if set(verdicts) - {"ok", "emulator late"}:
        raise LabError(f"runs did not end well: {dict(verdicts)}")


def main() -> int:
    """Measure both, print them, and say whether their limits hold."""
    parser = argparse.ArgumentParser(description="What the engine of campaigns costs beside its runs.")
    parser.add_argument("--repetitions", type=int, default=40, help="of eight points in virtual time")
    parser.add_argument("--real", type=int, default=9, help="runs of ten seconds in real time; 0 leaves them out")
    arguments = parser.parse_args()

    def measure() -> list[Reach]:
        found = [virtual(arguments.repetitions)]
        if arguments.real and os.geteuid() == 0:
            found.append(real(arguments.real))
        return found

    return told(measure)


if __name__ == "__main__":
    sys.exit(main())
