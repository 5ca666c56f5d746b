"""What the report of a large campaign costs, against its limits.

A program of its own (`python -m bentpipe_lab.bench.report`): it makes some ten thousand runs in virtual time, of a
thousand points with samples of each, and measures the process that writes tables, figures and pages of them.
"""

import sys
import tempfile
from pathlib import Path

from bentpipe_lab.bench import cost
from bentpipe_lab.bench.virtual_time import Reach, told

PLAN = """\
name = "many-runs"
repetitions = 10
sample_every = "100 ms"
[axes]
scenario = ["geo", "leo"]
system = "quic"
workload = "download"
"workload.size" = "100 kB"
controller = ["satellite", "cubic", "bbr3", "newreno"]
"scenario.forward.loss" = { from = "0.01 %", to = "1 %", steps = 126, scale = "log" }
"""


def reach() -> list[Reach]:
    """Run the campaign, then measure its report."""
    lab = [sys.executable, "-m", "bentpipe_lab"]
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as place:
        plan, campaign = Path(place, "plan.toml"), Path(place, "campaign")
        plan.write_text(PLAN)
        cost.of([*lab, "run", plan, "--out", campaign])
        report = cost.of([*lab, "report", campaign])
    return [
        Reach("report of 10,080 runs, processor time", report.user_s + report.system_s, 60, "s"),
        Reach("report of 10,080 runs, memory", report.peak_mib, 2048, "MiB"),
    ]


if __name__ == "__main__":
    sys.exit(told(reach))
