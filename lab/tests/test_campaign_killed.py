"""Campaigns whose process, or whose paths, are killed: nothing of theirs goes on, and they can be gone on with."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.campaign import directory, engine
from bentpipe_lab.net import host
from bentpipe_lab.records.verdict import Verdict
from processes import PATIENCE_S, children_of, command_of, descendants, is_running, program, until
from rights import needs_root
from test_campaign_engine import begun, execute, noted


@contextlib.contextmanager
def in_mid_run(campaign: directory.Campaign, begun_: Callable[[int], Any]) -> Iterator["subprocess.Popen[bytes]"]:
    """The process that does a campaign, once that has begun what is waited for."""
    with program("bentpipe_lab", "resume", str(campaign.directory)) as child:
        until(lambda: begun_(child.pid) or child.poll() is not None)
        assert child.poll() is None, "it ended before anybody could kill it"
        yield child


def paths_of(process: int) -> list[str]:
    """The names of the paths that a campaign's process has now."""
    return [lock.stem for path in children_of(process) for lock in host.STATE.glob(f"bp{path}-*.lock")]


def measuring(process: int) -> list[int]:
    """The iperf3 clients and servers that run over paths of a campaign's process."""
    return [each for each in descendants(process) if "iperf3" in " ".join(command_of(each)[:2])]


def simulations_of(process: int) -> list[int]:
    """The simulators that a process has started."""
    return [child for child in children_of(process) if "sim" in command_of(child)]


def test_killed_it_leaves_no_simulation_running(tmp_path: Path) -> None:
    hour = """
name = "hour"
[axes]
scenario = "geo"
system = "quic"
workload = "perf"
"workload.seconds" = 3600
"""
    campaign = begun(tmp_path, hour)
    with in_mid_run(campaign, simulations_of) as child:
        running = simulations_of(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    try:
        until(lambda: not any(is_running(process) for process in running))
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.mark.long
@needs_root
def test_killed_in_real_time_its_paths_go_with_it_and_it_goes_on(tmp_path: Path) -> None:
    text = """
name = "paths"
clock = "real"
repetitions = 2
parallel = 1
late_repeats = 0
[axes]
scenario = "leo"
system = "tcp-pep"
workload = "iperf3"
"workload.seconds" = [1, 30]
"""
    campaign = begun(tmp_path, text.replace("[1, 30]", "[1, 3]"))
    # The longer one takes longer than the path may take to go away.
    long = begun(tmp_path, text.replace("[1, 30]", "30"), "long")
    with in_mid_run(long, measuring) as child:
        runs, programs = paths_of(child.pid), descendants(child.pid)
        assert any(host.namespaces_of(run) for run in runs)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    at = time.monotonic()
    until(lambda: not any(is_running(process) for process in programs))
    assert time.monotonic() - at < 20
    assert not [name for run in runs for name in host.namespaces_of(run)]

    with in_mid_run(campaign, lambda _: noted(campaign)) as child:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    before = set(noted(campaign))
    assert before
    assert execute(campaign) is engine.Ending.DONE
    assert before <= set(noted(campaign))
    assert set(noted(campaign).values()) == {1}
    assert len(campaign.state().done) == 4


@needs_root
def test_a_path_whose_own_process_is_killed_is_removed_and_told(tmp_path: Path) -> None:
    text = """
name = "path"
clock = "real"
parallel = 1
[axes]
scenario = "leo"
system = "direct"
workload = "iperf3"
"workload.seconds" = 30
"""
    campaign = begun(tmp_path, text)
    with in_mid_run(campaign, measuring) as child:
        runs, programs = paths_of(child.pid), descendants(child.pid)
        for path in children_of(child.pid):
            os.kill(path, signal.SIGKILL)
        assert child.wait(PATIENCE_S) == 0
    assert not [name for run in runs for name in host.namespaces_of(run)]
    assert not any(is_running(process) for process in programs)
    (done,) = campaign.state().done.values()
    assert done.verdict is Verdict.FAILED
