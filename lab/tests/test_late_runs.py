"""Runs in which the emulator was late: repeated as often as the plan allows, each attempt kept, none believed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from bentpipe_lab.campaign import emulate, plan, points, schedule
from bentpipe_lab.campaign.directory import State
from bentpipe_lab.campaign.unit import Run, Unit
from bentpipe_lab.errors import DiskFullError, ProgramError
from bentpipe_lab.net.topology import Certificate, Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.contract import Workload

TEXT = """\
name = "late"
clock = "real"
repetitions = 1
late_repeats = 2
[axes]
scenario = "geo"
system = "direct"
workload = "first byte"
"""


class LatePath:
    """A path whose emulator was late in the first attempts."""

    def __init__(self, late: int) -> None:
        self._certificates = [self._certificate(valid=number >= late) for number in range(9)]
        self._asked = 0

    def certify_interval(self) -> Certificate:
        """Asked before and after an attempt."""
        self._asked += 1
        return self._certificates[(self._asked - 1) // 2]

    @staticmethod
    def _certificate(*, valid: bool) -> Certificate:
        return Certificate(valid, () if valid else ("p99.9 lateness 4 ms",), {"links": []})


def unit_of(tmp_path: Path) -> Unit:
    its_plan = plan.parse(TEXT, tmp_path)
    its_points = points.expand(its_plan).points
    (unit,) = schedule.units(its_plan, its_points, schedule.open_runs(its_plan, its_points, State()))
    return unit


def measured(tmp_path: Path, capsys: pytest.CaptureFixture[str], late: int, outcome: Outcome) -> list[dict[str, Any]]:
    return done(tmp_path, capsys, late, lambda _workload: outcome)


def done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], late: int, run: Callable[[Workload], Outcome]
) -> list[dict[str, Any]]:
    unit = unit_of(tmp_path)
    emulate._measure(unit, unit.runs[0], emulate.Place(cast(Topology, LatePath(late)), run, None, dict))
    return [json.loads(line)["result"] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("late", "verdicts"),
    [(0, ["ok"]), (1, ["emulator late", "ok"]), (2, ["emulator late"] * 2 + ["ok"]), (9, ["emulator late"] * 3)],
)
def test_a_late_run_is_repeated_as_often_as_the_plan_allows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], late: int, verdicts: list[str]
) -> None:
    results = measured(tmp_path, capsys, late, Outcome(Verdict.OK, seconds=0.7, bytes_received=100))
    assert [result["verdict"] for result in results] == verdicts
    assert [result["attempt"] for result in results] == list(range(1, len(verdicts) + 1))
    assert all("p99.9" in result["detail"] for result in results if result["verdict"] == "emulator late")


def test_a_run_that_failed_is_a_failure_however_late_the_emulator_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,) = measured(tmp_path, capsys, 9, Outcome(Verdict.REFUSED, detail="refused"))
    assert result["verdict"] == "refused"


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ProgramError("iperf3 ended with 1"), "iperf3 ended with 1"),
        (json.JSONDecodeError("Expecting value", "junk", 0), "JSONDecodeError: Expecting value"),
    ],
    ids=["a program ended", "it printed junk"],
)
def test_what_breaks_a_run_is_its_verdict_and_costs_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception, detail: str
) -> None:
    def broken(_workload: Workload) -> Outcome:
        raise error

    (result,) = done(tmp_path, capsys, 0, broken)
    assert result["verdict"] == "failed"
    assert result["detail"].startswith(detail)


def test_a_full_disk_is_no_verdict_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def full(_workload: Workload) -> Outcome:
        raise DiskFullError("no room")

    with pytest.raises(DiskFullError):
        done(tmp_path, capsys, 0, full)


def test_a_resumed_campaign_goes_on_with_the_attempt_that_is_left(tmp_path: Path) -> None:
    its_plan = plan.parse(TEXT, tmp_path)
    its_points = points.expand(its_plan).points
    state = State()
    name = its_points[0].id
    for attempt in (1, 2):
        state.add(Run(name, 1, attempt), Verdict.EMULATOR_LATE, None)
        assert schedule.open_runs(its_plan, its_points, state) == [Run(name, 1, attempt + 1)]
    state.add(Run(name, 1, 3), Verdict.EMULATOR_LATE, None)
    assert schedule.open_runs(its_plan, its_points, state) == []
