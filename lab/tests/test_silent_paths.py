"""A path's program that comes to no end, in what it is at and altogether; programs that stand in for it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bentpipe_lab.campaign import emulate, plan, points, schedule
from bentpipe_lab.campaign.directory import State
from bentpipe_lab.campaign.store import Store
from bentpipe_lab.campaign.unit import Unit
from bentpipe_lab.errors import ProgramError

TEXT = """\
name = "silent"
clock = "real"
repetitions = 3
[axes]
scenario = "leo"
system = "direct"
workload = "first byte"
"""
STAND_IN = """\
#!{python}
import json, os, pathlib, signal, sys, time
task = json.loads(sys.stdin.readline())
directory = pathlib.Path(task["directory"])
def at(doing, run):
    (directory / "doing.json").write_text(json.dumps({{"doing": doing, "run": run}}))
def silent():
    {deaf}
    pathlib.Path("{pids}").open("a").write(f"{{os.getpid()}}\\n")
    time.sleep(600)
at("starting direct", None)
if {at!r} == "start":
    silent()
for run in task["runs"]:
    at("measuring first byte", [run["point"], run["repetition"]])
    if run["repetition"] == {at!r}:
        silent()
    result = {{"schema": "bentpipe/lab/run/1", "verdict": "ok", "detail": "", "seconds": 0.1, **run}}
    line = {{"result": result, "samples": [], "provenance": {{}}, "objects": [], "files": {{}}}}
    print(json.dumps(line), flush=True)
"""


def unit_of(tmp_path: Path) -> Unit:
    its_plan = plan.parse(TEXT, tmp_path)
    its_points = points.expand(its_plan).points
    (unit,) = schedule.units(its_plan, its_points, schedule.open_runs(its_plan, its_points, State()))
    return replace(unit, patience_s=1.0, points={name: {**each, "limit_s": 0.5} for name, each in unit.points.items()})


def executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: object, deaf: str = ""
) -> tuple[list[dict[str, Any]], list[int]]:
    """Results, and the programs that had to be ended."""
    stand_in, pids = tmp_path / "python", tmp_path / "pids"
    stand_in.write_text(STAND_IN.format(python=sys.executable, at=at, deaf=deaf or "pass", pids=pids))
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    monkeypatch.setattr(emulate, "BESIDE_S", 0.5)
    monkeypatch.setattr(emulate, "KILL_S", 1.0)
    store = Store(str(tmp_path / "runs"))
    results = emulate.execute(unit_of(tmp_path), store, threading.Event())
    assert [store.result(run) for run in unit_of(tmp_path).runs] == results, "all are kept"
    return results, [int(each) for each in pids.read_text().split()]


@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGINT, signal.SIG_IGN)"])
def test_a_run_that_comes_to_no_end_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: str) -> None:
    unit = unit_of(tmp_path)
    at = unit.runs[1].repetition
    results, (ended,) = executed(tmp_path, monkeypatch, at, deaf)
    assert [result["verdict"] for result in results] == ["ok", "failed", "ok"]
    assert results[1]["repetition"] == at
    assert results[1]["detail"] == ("measuring first byte: nothing more came of it for 2 s, and the path was removed")
    assert not Path("/proc", str(ended)).exists()


def test_a_path_that_is_never_there_is_the_verdict_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, ended = executed(tmp_path, monkeypatch, "start")
    assert len(ended) == 1, "it is not tried for each run"
    assert {result["verdict"] for result in results} == {"failed"}
    assert all(result["detail"].startswith("starting direct: nothing more came of it for") for result in results)


def test_what_a_path_is_built_with_ends_it_in_time(tmp_path: Path) -> None:
    cleaned_up = []

    @contextmanager
    def path() -> Iterator[Any]:
        try:
            emulate._at(tmp_path, "warming up openvpn")
            signal.pause()
            yield
        finally:
            cleaned_up.append(True)

    message = "warming up openvpn was not done after 0 s; there is no path to measure over"
    with pytest.raises(ProgramError, match=message), emulate._in_time(path(), tmp_path, 0.2):
        pass
    assert cleaned_up == [True]
