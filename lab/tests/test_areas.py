"""Working areas and figures over time: which run they show, and what a dot is."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from bentpipe_lab.analysis.campaign import PointRow
from bentpipe_lab.analysis.statistics import median_interval
from bentpipe_lab.records.tables import SAMPLES_SCHEMA
from bentpipe_lab.report.areas import working_areas
from bentpipe_lab.report.charts import Chart, Looks, over_time
from bentpipe_lab.report.over_runs import over_runs

LENGTH_S = 60.0
FIRST = (1, 1)
"""Repetition and attempt."""


def row(point: str, system: str, *good: tuple[int, int]) -> PointRow:
    axes = {"system": system, "workload": "perf", "case": "one BDP"}
    return PointRow(
        point, "virtual", axes, system, {"case": "one BDP"}, "perf", [LENGTH_S] * len(good), [], LENGTH_S, 1,
        median_interval([LENGTH_S]), {"ok": len(good)}, 0, good,
    )  # fmt: skip


def run(point: str, attempt: int, mbit_s: Sequence[float], rtt_ms: Sequence[float], length_s: float = LENGTH_S,
        repetition: int = 1) -> pl.DataFrame:  # fmt: skip
    """Ten samples a second; rate and round-trip time change at equal parts of the run."""
    at = [step / 10 for step in range(int(length_s * 10) + 1)]
    part = [min(int(moment / length_s * len(mbit_s) - 1e-9), len(mbit_s) - 1) for moment in at]
    received, total = [], 0.0
    for step, which in enumerate(part):
        total += mbit_s[which] / 80 * 1e6 if step else 0.0
        received.append(round(total))
    columns = {
        "point": [point] * len(at), "repetition": [repetition] * len(at), "attempt": [attempt] * len(at), "at_s": at,
        "received_bytes": received, "rtt_s": [rtt_ms[which] / 1e3 for which in part],
    }  # fmt: skip
    return pl.DataFrame({name: columns.get(name, [None] * len(at)) for name in SAMPLES_SCHEMA}, schema=SAMPLES_SCHEMA)


def table(chart: Chart) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(chart.csv())))


def written(directory: Path, *runs: pl.DataFrame) -> Path:
    path = directory / "samples.parquet"
    pl.concat(runs).write_parquet(path)
    return path


def test_a_dot_is_a_second_of_one_run(tmp_path: Path) -> None:
    samples = written(tmp_path, run("a", 1, [5.0, 8.0], [60.0, 120.0]))
    (chart,) = working_areas([row("a", "quic", FIRST)], samples, {"a": [(61.0, 5.2), (119.0, 7.9)]})
    dots = [(float(each["rtt_ms"]), float(each["goodput_mbit_s"])) for each in table(chart)]
    assert len(dots) == LENGTH_S
    assert dots[:30] == [pytest.approx((60.0, 5.0), rel=1e-3)] * 30
    assert dots[30:] == [pytest.approx((120.0, 8.0), rel=1e-3)] * 30
    assert "Crosses: published means" in chart.caption
    (chart,) = working_areas([row("a", "quic", FIRST)], samples, {})
    assert "Crosses" not in chart.caption


def test_what_has_no_area_is_not_drawn(tmp_path: Path) -> None:
    unknown = run("b", 1, [5.0], [60.0]).with_columns(rtt_s=pl.lit(None, pl.Float64))
    samples = written(tmp_path, run("a", 1, [5.0], [60.0], length_s=19.0), unknown)
    assert working_areas([row("a", "quic", FIRST), row("b", "bentpipe", FIRST)], samples, {}) == []


def test_figures_over_time_show_a_run_that_counts(tmp_path: Path) -> None:
    """The first attempt was late, the second repetition is the first that ended well: the late one is not drawn."""
    late, failed, good = (
        run("a", 1, [1.0], [500.0]), run("a", 2, [2.0], [400.0]), run("a", 1, [5.0], [60.0], repetition=2),
    )  # fmt: skip
    base = run("b", 1, [10.0], [60.0])
    samples = written(tmp_path, late, failed, good, base)
    rows = [row("b", "direct", FIRST), row("a", "bentpipe", (2, 1))]
    (areas,) = working_areas(rows, samples, {})
    assert {round(float(each["rtt_ms"])) for each in table(areas) if each["point"] == "a"} == {60}
    looks = Looks(each.variant for each in rows)
    (over,) = over_time(rows, samples, looks)
    rates = [float(each["goodput_mbit_s"]) for each in table(over) if each["point"] == "a"]
    assert rates[1:] == [pytest.approx(5.0, rel=1e-3)] * (len(rates) - 1)
    ratio, goodput = over_runs(rows, samples, looks)
    assert {round(float(each["ratio"]), 2) for each in table(ratio)} == {0.5}
    assert {round(float(each["goodput_mbit_s"])) for each in table(goodput)} == {5, 10}


def test_nothing_is_a_multiple_of_nothing(tmp_path: Path) -> None:
    samples = written(tmp_path, run("a", 1, [5.0], [60.0]), run("b", 1, [0.0], [60.0]))
    rows = [row("b", "direct", FIRST), row("a", "bentpipe", FIRST)]
    charts = over_runs(rows, samples, Looks(each.variant for each in rows))
    assert [chart.name for chart in charts] == ["goodput-over-time-1"]


def test_all_runs_count_in_what_is_drawn_over_time(tmp_path: Path) -> None:
    """Medians of three runs each, and the ratio of the medians; a fourth, which did not end well, counts nowhere."""
    base = [run("b", 1, [rate], [60.0], repetition=number) for number, rate in enumerate((10.0, 8.0, 12.0), start=1)]
    ours = [run("a", 1, [rate], [60.0], repetition=number) for number, rate in enumerate((5.0, 2.0, 40.0), start=1)]
    samples = written(tmp_path, *base, *ours, run("a", 1, [900.0], [60.0], repetition=4))
    three = [(number, 1) for number in (1, 2, 3)]
    rows = [row("b", "direct", *three), row("a", "bentpipe", *three)]
    ratio, goodput = over_runs(rows, samples, Looks(each.variant for each in rows))
    assert {round(float(each["ratio"]), 2) for each in table(ratio)} == {0.5}
    assert {(each["n_ok"], each["n_total"]) for each in table(ratio)} == {("3", "3")}
    last = {each["point"]: each for each in table(goodput) if float(each["at_s"]) == LENGTH_S}
    middle = {point: float(each["goodput_mbit_s"]) for point, each in last.items()}
    assert middle == pytest.approx({"a": 5.0, "b": 10.0}, rel=1e-3)
    assert float(last["a"]["low"]) == pytest.approx(2.0, rel=1e-3)
    assert float(last["a"]["high"]) == pytest.approx(40.0, rel=1e-3)
    assert "bentpipe 0.5" in ratio.alternative


def test_a_point_of_which_no_run_ended_well_has_no_line(tmp_path: Path) -> None:
    samples = written(tmp_path, run("a", 1, [1.0], [500.0]))
    assert working_areas([row("a", "bentpipe")], samples, {}) == []
    assert over_time([row("a", "bentpipe")], samples, Looks(["bentpipe"])) == []
