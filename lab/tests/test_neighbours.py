"""Busy neighbours end with whoever asked for them."""

import subprocess
import sys
import time
from pathlib import Path

from bentpipe_lab.net import neighbours

OWNER = """\
import pathlib, time
from bentpipe_lab.net import neighbours
with neighbours.busy(2):
    print(pathlib.Path("/proc/thread-self/children").read_text(), flush=True)
    time.sleep(60)
"""


def busy(pid: str) -> bool:
    status = Path("/proc", pid, "stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def children() -> set[str]:
    return set(Path("/proc/thread-self/children").read_text().split())


def test_neighbours_end_with_the_block() -> None:
    before = children()
    with neighbours.busy(3):
        mine = children() - before
        assert len(mine) == 3
        assert all(map(busy, mine))
    assert not any(map(busy, mine))


def test_neighbours_end_with_an_owner_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = owner.stdout.readline().split()
        assert len(pids) == 2
        owner.kill()
    deadline = time.monotonic() + 30
    while any(map(busy, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
