"""What a program costs: processor time and memory of a process of its own, as the kernel says."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.errors import ProgramError

LOOK_S = 0.01
"""How often a run's memory is looked at."""


@dataclass(frozen=True)
class Cost:
    """What one process has used."""

    user_s: float
    system_s: float
    peak_mib: float


def of(argv: Sequence[str | Path]) -> Cost:
    """Run a program to its end."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        peak = 0.0
        while True:
            peak = max(peak, _peak_mib(child.pid))
            done, status, usage = os.wait4(child.pid, os.WNOHANG)
            if done:
                break
            time.sleep(LOOK_S)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            output.seek(0)
            printed = output.read()[-2000:].decode(errors="replace").strip()
            raise ProgramError(f"{argv[0]} ended with {child.returncode}: {printed}")
    return Cost(usage.ru_utime, usage.ru_stime, peak)


def _peak_mib(process: int) -> float:
    """The most memory that a process has had so far; the kernel's sum for a child begins with its parent's."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0
