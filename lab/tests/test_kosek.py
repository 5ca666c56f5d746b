"""What the study of Kosek et al. says beside the paper: shape, time to 90 %, order of the systems, causes."""

import csv
from pathlib import Path

import polars as pl
import pytest

from bentpipe_lab.analysis import published
from bentpipe_lab.analysis.campaign import MetricRow, PointRow
from bentpipe_lab.analysis.statistics import Interval, median_interval
from bentpipe_lab.net import host
from bentpipe_lab.records import published as files
from bentpipe_lab.records.tables import SAMPLES_SCHEMA
from bentpipe_lab.studies import kosek
from bentpipe_lab.studies.measured import Measured
from bentpipe_lab.studies.section import Cell

RESULTS = host.REPOSITORY / "results" / "kosek-quick.csv"


def point(system: str, workload: str, scenario: str = "kosek-geo", runs: int = 2) -> PointRow:
    axes = {"scenario": scenario, "system": system, "workload": workload}
    return PointRow(
        f"{scenario} {system} {workload}", "real", axes, system, {}, workload, [15.0] * runs, [], 15.0, 1,
        median_interval([15.0]), {"ok": runs}, 0, [(number, 1) for number in range(1, runs + 1)],
    )  # fmt: skip


def figure(row: PointRow, metric: str, *values: float) -> MetricRow:
    return MetricRow(row, metric, median_interval(values), values)


def samples(directory: Path, row: PointRow, *mbit_s: float) -> Path:
    """Runs of an even rate each."""
    path = directory / "samples.parquet"
    frames = []
    for number, rate in enumerate(mbit_s, start=1):
        at = [step / 10 for step in range(1, 151)]
        columns = {
            "point": [row.point] * 150, "repetition": [number] * 150, "attempt": [1] * 150, "at_s": at,
            "received_bytes": [round(moment * rate / 8e-6) for moment in at],
        }  # fmt: skip
        frames.append(
            pl.DataFrame({name: columns.get(name, [None] * 150) for name in SAMPLES_SCHEMA}, schema=SAMPLES_SCHEMA)
        )
    pl.concat(frames).write_parquet(path)
    return path


def test_the_shape_is_the_mean_of_all_runs_beside_theirs(tmp_path: Path) -> None:
    row = point("direct", "iperf3")
    section = kosek.section(Measured([row], [], samples(tmp_path, row, 10.0, 14.0)))
    (line,) = section.tables[0].rows
    assert line[:3] == ["kosek-geo, iperf3", "direct", "2 of 2"]
    assert line[3] == "0.62; 12.00"
    assert line[-1] == "18.03; 12.00"


def test_quic_counts_from_the_first_byte_on_as_theirs(tmp_path: Path) -> None:
    """A connection of 1.5 s before the first byte, then an even rate: the first second of theirs has all of it."""
    row = point("direct", "perf", runs=1)
    path = samples(tmp_path, row, 10.0)
    late = pl.read_parquet(path).with_columns(received_bytes=(pl.col("at_s") - 1.5).clip(0) * 10 / 8e-6)
    late.with_columns(pl.col("received_bytes").cast(pl.Int64)).write_parquet(path)
    (line,) = kosek.section(Measured([row], [figure(row, kosek.FIRST_BYTE, 1.5)], path)).tables[0].rows
    assert line[3:] == ["0.42; 10.00", "1.50; 10.00", "2.09; 10.00", "15.18; 10.00", "17.88; 10.00", "15.15; -"]


def test_a_time_to_90_percent_lies_between_two_of_their_seconds(tmp_path: Path) -> None:
    assert kosek.bracket({1: 1.0, 2: 5.0, 5: 17.0, 10: 18.0}) == (2, 5)
    assert kosek.bracket({1: 18.0, 2: 17.0}) == (0, 1)
    rows = [point("tcp-pep", "iperf3"), point("direct", "iperf3")]
    figures = [figure(row, kosek.TO_PLATEAU, value) for row, value in zip(rows, (4.5, 4.5), strict=True)]
    soon, late = kosek.section(Measured(rows, figures, tmp_path / "none")).tables[1].rows
    assert soon[2:4] == ["3 to 5", Cell("4.50", "within")]
    assert late[2:4] == ["5 to 10", Cell("4.50", "short")]


def test_the_order_of_systems_is_told_where_theirs_have_one(tmp_path: Path) -> None:
    metric = "received_by_10_s_mbyte"
    rows = [point("direct", "iperf3"), point("direct", "perf"), point("tcp-pep", "iperf3"), point("quic-pep", "perf")]
    figures = [figure(row, metric, value) for row, value in zip(rows, (13.0, 12.0, 19.0, 18.0), strict=True)]
    section = kosek.section(Measured(rows, figures, tmp_path / "none"))
    (line,) = section.tables[2].rows
    assert line[2] == "quic-pep QUIC > tcp-pep TCP > direct QUIC > direct TCP"
    assert line[3] == "tcp-pep TCP > quic-pep QUIC > direct TCP > direct QUIC"
    assert line[4] == Cell("4 of 6", "short")
    assert "4 of 6 stand in the same order" in section.paragraphs[0]


def test_every_large_difference_has_its_cause_or_says_that_it_has_none(tmp_path: Path) -> None:
    row = point("direct", "iperf3")
    figures = [figure(row, "received_by_10_s_mbyte", 5.0, 6.0), figure(row, "last_second_mbit_s", 10.0, 30.0)]
    section = kosek.section(Measured([row], figures, tmp_path / "none"))
    assert [line[2] for line in section.tables[3].rows] == ["received_by_10_s_mbyte"]
    assert section.tables[3].rows[0][-1] == Cell(kosek.UNEXPLAINED, "cause short")
    figures = [figure(row, "received_by_10_s_mbyte", 5.0, 15.0)]
    section = kosek.section(Measured([row], figures, tmp_path / "none"))
    assert section.tables[3].rows[0][-1] == Cell("theirs lies within what our 2 runs differ by", "cause")


def test_what_quic_loses_by_losses_is_told_from_what_tcp_does() -> None:
    """A window that is halved explains less, not more, and nothing of TCP's."""
    causes = []
    for workload, rate in (("perf", 0.1), ("perf", 0.4), ("iperf3", 0.05)):
        ours = figure(point("direct", workload, "kosek-geo-loss-1"), "last_second_mbit_s", rate)
        (pair,) = published.pairs("kosek", [ours])
        causes.append(kosek.why(pair))
    assert ["quicly" in cause for cause in causes] == [True, False, False]


def test_every_large_difference_of_our_results_is_explained() -> None:
    with RESULTS.open() as file:
        lines = list(csv.DictReader(line for line in file if not line.startswith("#")))
    rows = []
    for line in lines:
        if not line["median"]:
            continue
        axes = {
            "scenario": line["scenario"], "system": line["system"], "workload": line["workload"],
            **{f"workload.{name}": line[name] for name in ("protocol", "page") if line[name]},
        }  # fmt: skip
        median = float(line["median"])
        ends = [float(line[name]) if line[name] else median for name in ("low", "high")]
        row = PointRow("a", "real", axes, "", {}, line["workload"], [], [], 1.0, 1, None, {"ok": int(line["n"])}, 0)
        rows.append(MetricRow(row, line["metric"], Interval(int(line["n"]), median, *ends), []))
    large = [pair for pair in published.pairs("kosek", rows) if pair.large]
    assert len(large) >= 10
    assert [pair for pair in large if kosek.why(pair) == kosek.UNEXPLAINED] == []


@pytest.mark.parametrize("metric", kosek.ORDERED)
def test_what_is_ordered_was_published(metric: str) -> None:
    assert metric in {line["metric"] for line in files.figures("kosek")}
