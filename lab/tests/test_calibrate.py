"""How many paths a machine can measure side by side: the search, what is kept of it, and when that holds."""

import io
import json
import os
import platform
from pathlib import Path

import pytest
from rich.console import Console

from bentpipe_lab.campaign import calibrate, commands, load, preemption, side_by_side
from bentpipe_lab.campaign.calibrate import COUNTS, RUNS, most_paths, plan_of, shares
from bentpipe_lab.campaign.plan import Plan, parse
from bentpipe_lab.campaign.points import expand

REAL = """\
name = "x"
clock = "real"
[axes]
scenario = ["geo", "leo"]
system = "direct"
workload = "first byte"
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENTPIPE_LAB_CACHE", str(tmp_path))
    return tmp_path


def plan(fields: str = "") -> Plan:
    return parse(fields + REAL, Path())


@pytest.mark.parametrize(("room", "expected"), [(0, 0), (1, 1), (3, 3), (5, 4), (100, 32)])
def test_the_largest_number_before_runs_are_late(room: int, expected: int) -> None:
    out = io.StringIO()
    assert most_paths(shares(lambda count: 0.0 if count <= room else 0.5, Console(file=out))) == expected
    assert "1 side by side" in out.getvalue()


def test_what_was_found_holds_for_plans_that_say_nothing_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    before = side_by_side.choice(plan())
    assert (before.paths, "the default: `bentpipe-lab calibrate`" in before.why) == (side_by_side.DEFAULT, True)
    monkeypatch.setattr(calibrate, "share_late", lambda count: 0.0 if count <= 6 else 0.03)
    out = io.StringIO()
    assert calibrate.calibrate(Console(file=out)) == 0
    assert "parallel = 6, for plans that give none on this machine" in out.getvalue()
    kept = json.loads((cache / "calibration.json").read_text())
    assert (kept["host"], kept["processors"]) == (platform.node(), os.cpu_count())
    assert kept["late"] == {"1": 0.0, "2": 0.0, "3": 0.0, "4": 0.0, "6": 0.0, "8": 0.03}
    chosen = side_by_side.choice(plan())
    assert (chosen.paths, chosen.why) == (6, f"calibrated {kept['at']}, revision {kept['revision']}")
    assert side_by_side.choice(plan("parallel = 3\n")).paths == 3
    lines = commands.estimate(plan(), expand(plan()))
    assert any(f"6 paths side by side ({chosen.why})" in line for line in lines), lines


def test_a_machine_that_is_not_punctual_at_all_keeps_nothing(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(calibrate, "share_late", lambda _count: 1.0)
    assert calibrate.calibrate(Console(file=io.StringIO())) == 1
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"host": "elsewhere"}, "is of elsewhere with"),
        ({"processors": 96}, "with 96 processors, not of this machine"),
        ({"paths": 0}, "finds this machine's number"),
        ({"paths": "many"}, "finds this machine's number"),
        ({"schema": "bentpipe/lab/calibration/2"}, "finds this machine's number"),
        ({"more": 1}, "finds this machine's number"),
    ],
)
def test_what_is_of_another_machine_or_cannot_be_believed_does_not_hold(
    cache: Path, changed: dict[str, object], why: str
) -> None:
    file = cache / "calibration.json"
    side_by_side.Calibration(7, platform.node(), os.cpu_count() or 1, "abc", "now", {"7": 0.0}, 0.1).write(file)
    assert side_by_side.choice(plan()).paths == 7
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    chosen = side_by_side.choice(plan())
    assert (chosen.paths, why in chosen.why) == (side_by_side.DEFAULT, True), chosen
    for text in ("", "[]", "{"):
        file.write_text(text)
        assert side_by_side.choice(plan()).paths == side_by_side.DEFAULT


def test_before_a_campaign_begins_it_is_told_what_will_make_runs_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "now", lambda: 99.0)
    monkeypatch.setattr(preemption, "preemption", lambda: "none")
    lines = " ".join(commands.estimate(plan(), expand(plan())))
    assert "the machine has other work: its load is 99.0 on" in lines
    assert "the kernel's preemption is 'none'" in lines
    monkeypatch.setattr(load, "now", lambda: 0.0)
    monkeypatch.setattr(preemption, "preemption", lambda: "full")
    assert len(commands.estimate(plan(), expand(plan()))) == 1


@pytest.mark.parametrize("count", COUNTS)
def test_so_many_paths_have_so_many_links_and_enough_runs(count: int) -> None:
    plan = plan_of(count)
    points = expand(plan).points
    assert len({point.path for point in points}) == plan.parallel == count
    assert len(points) * plan.repetitions.least >= RUNS
