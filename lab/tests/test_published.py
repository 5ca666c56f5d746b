"""Published figures beside a campaign's, and the quick form of a plan."""

from pathlib import Path

import pytest

from bentpipe_lab.analysis import published as beside
from bentpipe_lab.analysis.campaign import MetricRow, PointRow
from bentpipe_lab.analysis.statistics import median_interval
from bentpipe_lab.campaign import plan, schedule, side_by_side
from bentpipe_lab.campaign.directory import State
from bentpipe_lab.campaign.points import expand
from bentpipe_lab.errors import LabError, PlanError
from bentpipe_lab.net import host
from bentpipe_lab.records import published

PLAN = """\
name = "study"
published = "kosek"
repetitions = 10
[axes]
scenario = ["geo", "leo"]
system = "quic"
workload = "download"
"workload.size" = ["1 MB", "2 MB"]
"""
QUICK = '[quick]\nrepetitions = 2\n[quick.axes]\nscenario = "geo"\n"workload.size" = "none"\n'


def row(axes: dict[str, str], metric: str, values: list[float]) -> MetricRow:
    point = PointRow(
        "a", "real", axes, axes["system"], {}, axes["workload"], values, [], 1.0, 1, median_interval(values),
        {"ok": len(values)}, 0,
    )  # fmt: skip
    return MetricRow(point, metric, median_interval(values), values)


def test_a_published_figure_stands_beside_the_point_with_its_axes() -> None:
    axes = {"scenario": "kosek-geo", "system": "direct", "workload": "web page", "workload.protocol": "HTTP/3"}
    (pair,) = beside.pairs("kosek", [row(axes, "page_load_s", [7.0, 7.1])])
    assert (pair.theirs, pair.their_runs) == (7.669, 100)
    assert pair.difference == pytest.approx(7.05 / 7.669 - 1)
    assert not pair.large
    (far,) = beside.pairs("kosek", [row(axes, "page_load_s", [3.0])])
    assert far.large


def test_what_nobody_published_stands_beside_nothing() -> None:
    axes = {"scenario": "kosek-geo", "system": "bentpipe", "workload": "web page", "workload.protocol": "HTTP/3"}
    assert beside.pairs("kosek", [row(axes, "page_load_s", [7.0])]) == []
    other = {**axes, "system": "direct", "workload.page": "chain"}
    assert beside.pairs("kosek", [row(other, "page_load_s", [7.0])]) == []


def test_every_published_file_says_where_it_is_from() -> None:
    for name in published.names():
        assert len(published.source(name)) > 40
        assert all(float(line["value"]) > 0 for line in published.figures(name))


def test_the_quick_form_replaces_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN + QUICK)
    whole, quick = plan.read(file), plan.read(file, quick=True)
    assert (whole.name, whole.repetitions.least, len(expand(whole).points)) == ("study", 10, 4)
    assert (quick.name, quick.repetitions.least, len(expand(quick).points)) == ("study-quick", 2, 1)
    assert plan.parse(quick.text, tmp_path).axes == quick.axes, "a campaign that was begun can be read again"


@pytest.mark.parametrize("quick", [False, True])
def test_what_is_wrong_in_the_quick_form_is_told_in_either(tmp_path: Path, *, quick: bool) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN + QUICK.replace("repetitions", "repetitons"))
    with pytest.raises(PlanError, match=r"\[quick\]: there is no field 'repetitons'; did you mean 'repetitions'"):
        plan.read(file, quick=quick)


def test_a_plan_without_a_quick_form_says_so(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    with pytest.raises(PlanError, match="has no quick form"):
        plan.read(file, quick=True)


def test_an_unknown_publication_is_told() -> None:
    with pytest.raises(LabError, match="no study 'kosec'; did you mean 'kosek'"):
        plan.parse(PLAN.replace('"kosek"', '"kosec"'), Path())


CAMPAIGNS = sorted(
    path.stem for path in (host.REPOSITORY / "campaigns").glob("*.toml") if "\n[axes]\n" in path.read_text()
)


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_every_campaign_of_ours_is_a_plan_that_the_simulator_takes(name: str) -> None:
    from bentpipe_lab.campaign.commands import prepared

    file = host.REPOSITORY / "campaigns" / f"{name}.toml"
    for quick in {False, "\n[quick" in file.read_text()}:
        _, expansion = prepared(file, quick=quick)
        assert expansion.points


@pytest.mark.parametrize(
    "name",
    ["kosek", "qpep", "qpep-loss-systems", "qpep-pages", "qpep-iridium", "ka-sat", "beyond", "bujari-tcp"],
)
def test_the_quick_form_of_a_study_is_expected_to_take_ten_minutes_at_most(name: str) -> None:
    plan_ = plan.read(host.REPOSITORY / "campaigns" / f"{name}.toml", quick=True)
    points = expand(plan_).points
    real = [point for point in points if point.clock == "real"]
    units = schedule.units(plan_, real, schedule.open_runs(plan_, real, State()))
    paths = plan_.parallel or side_by_side.DEFAULT
    # The middle of the range: kosek took 617 s (docs/limitations.md).
    assert 0 < schedule.takes({point.id: point for point in real}, units, paths).middle < 600
