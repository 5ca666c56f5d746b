"""The studies: figures of parts of a run, what was published, and what the reports say of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from selenium import webdriver

from bentpipe_lab.analysis.campaign import MetricRow, PointRow
from bentpipe_lab.analysis.statistics import median_interval
from bentpipe_lab.campaign import directory, plan, points
from bentpipe_lab.errors import UnknownNameError
from bentpipe_lab.records import parts, published
from bentpipe_lab.report import campaign as report
from bentpipe_lab.studies import controllers, endres, kuhn, run
from bentpipe_lab.studies.section import Cell
from screens import WIDTHS, show


def steady(mbit_s: float, rtt_s: float, begin_s: float, end_s: float, before: int = 0) -> list[dict[str, Any]]:
    """Looks every 100 ms at a flow that gets the same all the time."""
    count = round((end_s - begin_s) * 10)
    return [
        {
            "at_s": begin_s + step / 10, "received_bytes": 0, "rtt_s": rtt_s,
            "arrived_udp_bytes": before + int(mbit_s * 1e6 / 8 * step / 10),
        }
        for step in range(1, count + 1)
    ]  # fmt: skip


def test_a_leg_is_what_arrived_and_waited_on_it() -> None:
    first = steady(9.0, 0.08, 0, 90)
    samples = first + steady(5.0, 0.13, 90, 180, first[-1]["arrived_udp_bytes"])
    switches = parts.switches_s({"switch": [{"at": "90 s", "new_address": True}]})
    found = parts.of_fixed_length(samples, switches)
    assert found["leg_1_udp_payload_mbit_s"] == pytest.approx(9.0, rel=1e-4)
    assert found["leg_2_udp_payload_mbit_s"] == pytest.approx(5.0, rel=1e-4)
    assert [found["leg_1_rtt_s"], found["leg_2_rtt_s"]] == pytest.approx([0.08, 0.13])
    assert found["leg_1_udp_payload_sd_mbit_s"] == pytest.approx(0.0, abs=1e-3)


def test_a_run_over_one_link_has_a_second_half() -> None:
    first = steady(2.0, 0.9, 0, 10)
    found = parts.of_fixed_length([*first, *steady(8.0, 0.6, 10, 20, first[-1]["arrived_udp_bytes"])], [])
    assert found["second_half_udp_payload_mbit_s"] == pytest.approx(8.0, rel=1e-4)
    assert found["second_half_rtt_s"] == pytest.approx(0.6)
    assert parts.of_fixed_length([], []) == {}


def test_what_was_published_is_whole() -> None:
    rows = published.figures("bujari")
    assert len({(row["case"], row["controller"], row["metric"]) for row in rows}) == 4 * 2 * 2 * 2
    assert "Tables 2" in published.source("bujari")
    assert {row["case"] for row in published.table("endres")} == {"SAT", "SATLOSS"}
    assert published.figures("endres") == []
    assert len(published.figures("kuhn")) == 18


@pytest.mark.parametrize("name", ["bujari", "kuhn", "endres"])
def test_the_cases_of_a_publication_are_those_of_its_plan(name: str) -> None:
    its_plan = plan.read(run.CAMPAIGNS / f"{name}.toml")
    assert {row["case"] for row in published.table(name)} <= {case.name for case in its_plan.cases}


def test_their_packets_are_counted() -> None:
    """No stream gets 9.77 Mbit/s through 10 Mbit/s at the IP level; 1200-byte datagrams do, to the hundredth."""
    rows = published.figures("bujari")
    most = max(float(row["value"]) for row in rows if row["metric"].endswith("_udp_payload_mbit_s"))
    assert most == pytest.approx(10 * 1200 / 1228, abs=0.005)


def test_amounts_count_from_the_beginning_of_a_transfer() -> None:
    samples = [{"at_s": float(at), "received_bytes": at * 2_000_000} for at in range(1, 51)]
    assert parts.amounts(samples, 100_000_000, 49.5) == {
        "received_2_mb_s": 1.0, "received_10_mb_s": 5.0, "received_100_mb_s": 49.5,
    }  # fmt: skip
    assert parts.amounts(samples, 2_000_001, 1.01) == {"received_2_mb_s": 1.0}


def test_a_target_can_lie_at_the_bound() -> None:
    """2 MB over 10 Mbit/s and 650 ms: two round trips and 1.67 s on the wire, against a target of 3 s."""
    small = kuhn.bound(2, 10, 0.65, 0.0, 32, again=False)
    assert small.physics_s == pytest.approx(2.97, abs=0.005)
    again = kuhn.bound(2, 10, 0.65, 0.5, 32, again=True)
    assert again.physics_s == again.start_s == pytest.approx(0.65 + 2 * 1.67, abs=0.005)


def test_who_knows_nothing_waits_for_the_first_acknowledgement() -> None:
    """32 packets take 38.4 ms of the first 650 ms at 10 Mbit/s; a window that fills the round trip costs nothing."""
    small = kuhn.bound(2, 10, 0.65, 0.0, 32, again=False)
    assert small.start_s - small.physics_s == pytest.approx(0.65 - 0.0384)
    full = kuhn.bound(2, 10, 0.65, 0.0, 542, again=False)
    assert full.start_s == full.physics_s


def test_a_missed_target_says_whether_it_could_be_kept() -> None:
    bound = kuhn.Bound(physics_s=2.0, start_s=2.6)
    assert kuhn.why(1.9, bound, 3.0) == "nobody can: less than physics allows"
    assert kuhn.why(2.5, bound, 3.0).startswith("not from that window: 0.10 s short")
    assert kuhn.why(2.7, bound, 3.0) == "reachable; missed by 0.30 s"
    assert kuhn.why(2.7, bound, None) == "reachable; not reached"


def figure(axes: dict[str, str], metric: str, value: float) -> MetricRow:
    interval = median_interval([value])
    point = PointRow("a", "virtual", axes, "quic", {}, "download", [1.0], [], 1.0, 1, interval, {"ok": 1}, 0)
    return MetricRow(point, metric, interval, [value])


def test_endres_has_the_mean_and_the_best_of_ours_beside_his() -> None:
    figures = [
        figure({"case": "SAT", "controller": name, "scenario.forward.queue": queue}, endres.METRIC, value)
        for queue, name, value in (
            ("25 packets", "cubic", 4.0), ("25 packets", "hybla", 8.0), ("1 BDP", "hybla", 15.0),
        )
    ]  # fmt: skip
    (row,) = endres.section(figures).tables[0].rows
    assert row[:5] == ["SAT", "4.88", "6.00", "12.0", "8.00 (hybla)"]


def test_kuhn_counts_targets_and_tells_which_are_missed() -> None:
    figures = [
        figure({"case": "4.2 medium", "controller": name}, f"received_{size}_mb_s", value)
        for name, values in (("satellite", (2.5, 5.5, 19.0)), ("cubic", (3.5, 4.5, 19.5)))
        for size, value in zip(kuhn.SIZES_MB, values, strict=True)
    ]
    section = kuhn.section(figures)
    assert "satellite 2, cubic 2" in section.paragraphs[0]
    times, misses = section.tables
    assert times.rows[0][:4] == ["4.2 medium", "2 MB", "3 s", "1.63"]
    assert [cell.mark for cell in times.rows[1][4:] if isinstance(cell, Cell)] == ["short", "within"]
    (miss,) = misses.rows
    assert miss[:3] == ("4.2 medium", "10 MB", "5 s")
    assert miss[-1] == "reachable; missed by 0.50 s"


def test_controllers_are_judged_by_median_and_worst_run() -> None:
    axes = {"case": "GEO", "workload.flows": "17", "neighbours": "6", "session": "cold"}
    figures = [
        replace(figure({**axes, "controller": name}, "goodput_mbit_s", 0.0), interval=median_interval(got), values=got)
        for name, got in (
            ("satellite", [16.0, 10.0, 17.0]), ("cubic", [15.0, 12.0, 15.5]), ("bbr3-library", [16.0, 4.0, 16.5]),
        )
    ]  # fmt: skip
    section = controllers.section(figures)
    assert "in 0 of 1 cells" in section.paragraphs[0]
    ((cell, ours, *_, median, worst),) = section.tables[0].rows
    assert (cell, ours) == ("GEO, 6 busy beside, 17 flows, cold", "16.0, 10.0 (3 of 1)")
    assert (median, worst) == (Cell("1.00", "within"), Cell("0.83", "short"))


def test_every_study_has_its_campaigns() -> None:
    for campaigns in run.STUDIES.values():
        for campaign in campaigns:
            assert plan.read(run.CAMPAIGNS / f"{campaign}.toml").name == campaign
            assert plan.read(run.CAMPAIGNS / f"{campaign}.toml", quick=True).name == f"{campaign}-quick"


def test_a_study_that_nobody_has_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no study 'bujary'; did you mean 'bujari'"):
        run.studies(tmp_path, ["bujary"], Console(), quick=True, virtual=True)


def test_the_page_that_leads_to_the_reports_says_when_and_on_what_they_were_measured(
    tmp_path: Path, browser: webdriver.Chrome
) -> None:
    text = 'name = "small"\nsource = "nobody"\n[axes]\nscenario = "geo"\nsystem = "quic"\nworkload = "download 2 MB"\n'
    its_plan = plan.parse(text, tmp_path)
    campaign = directory.begin(its_plan, points.expand(its_plan), tmp_path / "small", None)
    report.write(campaign)
    run._contents(tmp_path)
    page = (tmp_path / "index.html").read_text()
    provenance = directory.provenance_of(campaign.directory)
    for needed in (provenance["begun"], provenance["revision"], provenance["machine"]["host"], campaign.store_url):
        assert needed in page
    assert 'href="small/report/index.html"' in page
    for width in WIDTHS:
        show(browser, tmp_path / "index.html", width)
