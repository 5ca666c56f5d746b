"""The search for how many paths a machine can measure side by side."""

import io

import pytest
from rich.console import Console

from bentpipe_lab.campaign.calibrate import most_paths


@pytest.mark.parametrize(("room", "expected"), [(0, 0), (1, 1), (3, 3), (5, 4), (100, 32)])
def test_the_largest_number_before_runs_are_late(room: int, expected: int) -> None:
    out = io.StringIO()
    assert most_paths(lambda count: 0.0 if count <= room else 0.5, Console(file=out)) == expected
    assert "1 side by side" in out.getvalue()
