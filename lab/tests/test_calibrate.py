"""The search for how many paths a machine can measure side by side."""

import io

import pytest
from rich.console import Console

from bentpipe_lab.campaign.calibrate import COUNTS, RUNS, most_paths, plan_of
from bentpipe_lab.campaign.points import expand


@pytest.mark.parametrize(("room", "expected"), [(0, 0), (1, 1), (3, 3), (5, 4), (100, 32)])
def test_the_largest_number_before_runs_are_late(room: int, expected: int) -> None:
    out = io.StringIO()
    assert most_paths(lambda count: 0.0 if count <= room else 0.5, Console(file=out)) == expected
    assert "1 side by side" in out.getvalue()


@pytest.mark.parametrize("count", COUNTS)
def test_so_many_paths_have_so_many_links_and_enough_runs(count: int) -> None:
    plan = plan_of(count)
    points = expand(plan).points
    assert len({point.path for point in points}) == plan.parallel == count
    assert len(points) * plan.repetitions.least >= RUNS
