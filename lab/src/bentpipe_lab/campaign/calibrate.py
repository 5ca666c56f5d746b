"""How many paths this machine can measure side by side in real time: tried out, by the emulator's certificates."""

import io
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console

from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign import engine, load, preemption, provenance, side_by_side
from bentpipe_lab.campaign.plan import Plan, parse
from bentpipe_lab.campaign.points import expand
from bentpipe_lab.campaign.progress import Progress
from bentpipe_lab.campaign.side_by_side import Calibration
from bentpipe_lab.net import host
from bentpipe_lab.records.verdict import Verdict

MOST_LATE = 0.02
"""Share of runs that may be late."""
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
PLAN = """\
name = "calibrate"
clock = "real"
repetitions = {repetitions}
parallel = {parallel}
late_repeats = 0
[axes]
scenario = "leo"
system = "bentpipe"
workload = "download 2 MB"
"scenario.seed" = {seeds}
"""
RUNS = 60
"""At least so many runs tell a share of 2 %."""


def calibrate(console: Console) -> int:
    """Try more and more paths side by side, print the share of late runs, and keep how many are punctual; 0 if any."""
    busy = load.now()
    for advised in (preemption.advice(preemption.preemption()), load.advice(busy, os.cpu_count() or 1)):
        if advised:
            console.print(advised, highlight=False)
    late = shares(share_late, console)
    best = most_paths(late)
    if best == 0:
        console.print("not even one path is punctual: the machine has other work, or too few processors")
        return 1
    found = Calibration(
        best, platform.node(), os.cpu_count() or 1, provenance.revision(), provenance.now(),
        {str(count): share for count, share in late.items()}, busy,
    )  # fmt: skip
    found.write(side_by_side.file())
    console.print(
        f"parallel = {best}, for plans that give none on this machine ({side_by_side.file()})",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return 0


def shares(late: Callable[[int], float], console: Console) -> Mapping[int, float]:
    """The share of late runs by the number of paths, up to the first at which too many are."""
    found: dict[int, float] = {}
    for count in COUNTS:
        found[count] = late(count)
        console.print(f"{count} side by side: {found[count]:.1%} of the runs late", highlight=False)
        if found[count] > MOST_LATE:
            break
    return found


def most_paths(late: Mapping[int, float]) -> int:
    """The largest number of paths at which few runs are late; 0 where there is none."""
    return max((count for count, share in late.items() if share <= MOST_LATE), default=0)


def share_late(count: int) -> float:
    """The share of runs that are late when so many paths are measured side by side."""
    plan = plan_of(count)
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as place:
        campaign = directories.begin(plan, expand(plan), Path(place, "campaign"), None)
        engine.execute(campaign, Progress(Console(file=io.StringIO())))
        verdicts = campaign.state().verdicts()
    return verdicts[Verdict.EMULATOR_LATE] / max(1, verdicts.total())


def plan_of(count: int) -> Plan:
    """So many paths side by side, and enough runs to tell a share by."""
    text = PLAN.format(repetitions=max(5, -(-RUNS // count)), parallel=count, seeds=list(range(1, count + 1)))
    return parse(text, host.REPOSITORY)
