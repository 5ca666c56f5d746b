"""Figures of what runs measured beside their time: box plots by load and distributions."""

import csv
import io

import pytest

from bentpipe_lab.analysis.campaign import MetricRow, PointRow
from bentpipe_lab.analysis.statistics import median_interval
from bentpipe_lab.report.charts import Count, together
from bentpipe_lab.report.metrics import metric_charts
from bentpipe_lab.systems import SYSTEMS

LOADS = {
    "HTTP/2": {1: [9.0, 9.4, 9.2, 10.0, 9.1], 2: [8.0, 8.1, 8.3, 8.2, 8.0], 3: [8.0, 8.2, 8.1, 8.0, 7.9]},
    "HTTP/3": {1: [7.0, 7.1, 7.4, 7.2, 7.0], 2: [6.0, 6.1, 6.0, 6.2, 6.3], 3: [6.0, 6.1, 6.0, 6.2, 6.1]},
}


def rows() -> list[MetricRow]:
    found = []
    for protocol, loads in LOADS.items():
        axes = {"scenario": "ka-sat", "system": "direct", "workload": "web page", "workload.protocol": protocol}
        for load, values in loads.items():
            point = PointRow(
                f"point {protocol}", "real", axes, "direct", {"workload.protocol": protocol}, "web page", values, [],
                1.0, 1, median_interval(values), {"ok": len(values)}, 0,
            )  # fmt: skip
            found.append(MetricRow(point, f"page_load_{load}_s", median_interval(values), values))
            found.append(MetricRow(point, "response_start_s", median_interval(values), values))
    return found


def test_the_loads_of_a_profile_are_boxes_by_index() -> None:
    charts = {chart.name: chart for chart in metric_charts(rows())}
    boxes = charts["loads-page-load"]
    table = list(csv.DictReader(io.StringIO(boxes.csv())))
    assert {(line["point"], line["load"]) for line in table} == {
        (f"point {protocol}", str(load)) for protocol, loads in LOADS.items() for load in loads
    }
    third = [float(line["seconds"]) for line in table if (line["point"], line["load"]) == ("point HTTP/3", "3")]
    assert third == LOADS["HTTP/3"][3]
    assert "HTTP/2" in boxes.svg, "a panel for each protocol"
    assert "2 panels" in boxes.alternative


def test_what_is_no_load_has_a_distribution() -> None:
    names = [chart.name for chart in metric_charts(rows())]
    assert "metric-response-start-s" in names
    assert not any(name.startswith("metric-page-load") for name in names)


def test_few_loads_are_dots_in_the_colour_of_their_variant() -> None:
    """A box of one value is a line in the colour of medians."""
    few = [
        MetricRow(each.row, each.metric, median_interval(each.values[:1]), each.values[:1])
        for each in rows()
        if each.metric.startswith("page_load")
    ]
    drawn, boxes = metric_charts(few)[0].svg, metric_charts(rows())[0].svg
    colour = f"fill: {SYSTEMS['direct'].colour}"
    assert colour in drawn
    assert "opacity: 0.6" not in drawn
    assert boxes.count("opacity: 0.6") >= 6


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([(5, 5)], "5 of 5 runs"),
        ([(5, 5), (5, 5)], "5 of 5 runs each"),
        ([(3, 5), (5, 5)], "3 to 5 of 5 runs each"),
        ([(1, 1), (2, 2)], "1 to 2 runs each, none left out"),
        ([(1, 2), (3, 3)], "2 to 3 runs each, up to 1 left out"),
    ],
)
def test_of_how_many_runs_a_panel_is(counts: list[tuple[int, int]], said: str) -> None:
    assert together(Count(*each) for each in counts) == said
