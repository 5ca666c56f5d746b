"""What `plan` says of the time that real time takes, beside what campaigns took."""

import pytest

from bentpipe_lab.campaign import commands, costs, plan, progress, schedule, side_by_side
from bentpipe_lab.campaign.costs import Range
from bentpipe_lab.campaign.directory import State
from bentpipe_lab.campaign.points import expand
from bentpipe_lab.net import host
from bentpipe_lab.net.link import Direction, Link
from bentpipe_lab.workloads import WORKLOADS

TOOK_S = {"kosek": 615, "qpep": 184, "http3-page": 261}
"""Quick forms, two paths side by side on two processors at load 3 to 8, on 2026-11-25; of all 6 runs were repeated."""


def expected(name: str, *, paths: int | None = None) -> Range:
    plan_ = plan.read(host.REPOSITORY / "campaigns" / f"{name}.toml", quick=True)
    points = [point for point in expand(plan_).points if point.clock == "real"]
    units = schedule.units(plan_, points, schedule.open_runs(plan_, points, State()))
    paths = paths or plan_.parallel or side_by_side.DEFAULT
    return schedule.takes({point.id: point for point in points}, units, paths)


@pytest.mark.parametrize("name", TOOK_S)
def test_what_a_campaign_took_lies_within_what_was_expected(name: str) -> None:
    range_ = expected(name)
    assert range_.low < TOOK_S[name] < range_.high
    assert range_.high < 3.5 * range_.low


def test_paths_side_by_side_take_less_but_never_less_than_the_longest_unit() -> None:
    alone, two, many = (expected("qpep", paths=paths) for paths in (1, 2, 200))
    assert alone.low > two.low > alone.low / 2.5
    assert many.low == expected("qpep", paths=100).low > 0


def test_units_are_begun_as_soon_as_a_path_is_free() -> None:
    assert schedule.side_by_side_s([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert schedule.side_by_side_s([1.0, 1.0, 3.0], 2) == 4.0
    assert schedule.side_by_side_s([], 2) == 0.0


def test_a_system_or_a_workload_that_nobody_has_measured_has_an_estimate() -> None:
    assert costs.of(costs.PATH_S, "toy") == costs.PATH_S[costs.ELSE]
    assert costs.of(costs.BESIDE_S, "toy") == costs.BESIDE_S[costs.ELSE]


def test_losses_slow_all_but_the_tunnel() -> None:
    way = Direction(20e6, 0.25, 0.01, 4e-7)
    link = Link("name", "", "", way, way, 0.5, 0.08, 0.58)
    assert costs.slower("direct", link).high > costs.SLOWER[costs.ELSE].high
    assert costs.slower("bentpipe", link) == costs.SLOWER["bentpipe"]


def test_three_loads_of_a_page_take_three_times_as_long_as_one() -> None:
    page = WORKLOADS["web page"]
    assert (page.with_options({}).loads, page.with_options({"visit": "three loads"}).loads) == (1, 3)


@pytest.mark.parametrize(
    ("low_s", "high_s", "said"),
    [
        (200.0, 500.0, "3 to 8 min"),
        (60.0, 300.0, "60 s to 5 min"),
        (61.0, 61.2, "about 61 s"),
        (3000, 9000, "50 min to 2.5 h"),
    ],
)
def test_a_range_is_told_as_people_tell_it(low_s: float, high_s: float, said: str) -> None:
    assert progress.spans(low_s, high_s) == said


def test_plan_tells_the_range() -> None:
    plan_ = plan.read(host.REPOSITORY / "campaigns" / "qpep.toml", quick=True)
    (line,) = [line for line in commands.estimate(plan_, expand(plan_)) if line.startswith("real time")]
    assert " to " in line
    assert "late and repeated" in line
