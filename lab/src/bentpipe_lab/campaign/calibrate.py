"""How many paths this machine can measure side by side in real time: tried out, by the emulator's certificates."""

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bentpipe_lab.campaign import directory as directories
from bentpipe_lab.campaign import engine
from bentpipe_lab.campaign.plan import Plan, parse
from bentpipe_lab.campaign.points import expand
from bentpipe_lab.campaign.preemption import advice, preemption
from bentpipe_lab.campaign.progress import Progress
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
    """Try more and more paths side by side, print the share of late runs, and the number for `parallel`; 0 if any."""
    best = most_paths(share_late, console)
    advised = advice(preemption())
    if advised:
        console.print(advised, highlight=False)
    if best == 0:
        console.print("not even one path is punctual: the machine has other work, or too few processors")
        return 1
    console.print(f"parallel = {best}", highlight=False)
    return 0


def most_paths(late: Callable[[int], float], console: Console) -> int:
    """The largest number of paths before one at which too many runs are late."""
    best = 0
    for count in COUNTS:
        share = late(count)
        console.print(f"{count} side by side: {share:.1%} of the runs late", highlight=False)
        if share > MOST_LATE:
            return best
        best = count
    return best


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
