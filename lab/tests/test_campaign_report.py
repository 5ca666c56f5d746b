"""A campaign's tables, analysis and report, from runs that are made up."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import polars as pl
import pytest
from rich.console import Console
from selenium import webdriver
from selenium.webdriver.common.by import By

from bentpipe_lab.analysis import campaign as analysis
from bentpipe_lab.campaign import directory, plan, points
from bentpipe_lab.campaign.store import PROVENANCE, RESULT, SAMPLES
from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.errors import CampaignError, UnknownNameError
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.programs import Debian, Program
from bentpipe_lab.records import tables
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.report import campaign as report
from bentpipe_lab.report import charts, commands
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.contract import Settings, System
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.contract import Workload
from screens import WIDTHS, show

TEXT = """\
name = "made-up"
source = "<script>alert('nobody')</script>"
clock = "real"
repetitions = 8
[axes]
scenario = ["geo", "leo"]
system = ["direct", "bentpipe"]
workload = ["first byte", "page HTTP/2"]
controller = ["satellite", "cubic"]
"scenario.forward.loss" = ["0.01 %", "0.1 %", "1 %"]
"""


def made_up(directory_: Path, text: str = TEXT, *, factor: float = 1.0, samples: int = 20) -> directory.Campaign:
    """A campaign whose runs took as long as their bounds and a little more, with one of each kind of trouble."""
    its_plan = plan.parse(text, directory_.parent)
    campaign = directory.begin(its_plan, points.expand(its_plan), directory_, None)
    store = campaign.store
    for place, point in enumerate(campaign.points()):
        for repetition in range(1, its_plan.repetitions.least + 1):
            slow = {"direct": 2.0}.get(point["system"], 1.2) * factor
            seconds = point["bound_s"] * (slow + 0.01 * repetition + 0.002 * (place % 5))
            verdict, detail = "ok", ""
            if repetition == 2 and place % 4 == 0:
                verdict, detail = "stalled", "curl 28 at byte 5 of 10: <b>nothing</b> " + "any more " * 20
            if repetition == 3 and place % 4 == 1:
                put(store, point, Run(point["id"], repetition, 1), "emulator late", "p99.9 is 4 ms", 99.0, 0)
                put(store, point, Run(point["id"], repetition, 2), verdict, detail, seconds, samples)
                continue
            put(store, point, Run(point["id"], repetition, 1), verdict, detail, seconds, samples)
    return campaign


def put(
    store: Any, point: Mapping[str, Any], run: Run, verdict: str, detail: str, seconds: float, count: int,
    **metrics: float,
) -> None:  # fmt: skip
    result = {
        "schema": "bentpipe/lab/run/1", "point": run.point, "repetition": run.repetition, "attempt": run.attempt,
        "verdict": verdict, "detail": detail, "seconds": seconds if verdict in ("ok", "emulator late") else None,
        "bytes_received": 2_000_000, "bound_s": point["bound_s"], "metrics": metrics,
    }  # fmt: skip
    samples = [
        {
            "at_s": step * seconds / count, "received_bytes": step * 2_000_000 // count,
            "window_bytes": 1000 * step, "rtt_s": 0.6,
        }
        for step in range(count)
    ]  # fmt: skip
    lines = "".join(f"{json.dumps(sample)}\n" for sample in samples)
    store.put(run, {RESULT: json.dumps(result), SAMPLES: lines, PROVENANCE: json.dumps({"load": [1.5, 1.0, 0.5]})})


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> directory.Campaign:
    made = made_up(tmp_path_factory.mktemp("reported") / "campaign")
    report.write(made)
    return made


@pytest.mark.long
def test_late_attempts_count_nowhere_and_failures_are_not_averaged(campaign: directory.Campaign) -> None:
    rows = analysis.rows(tables.read(campaign.directory))
    assert len(rows) == 36, "direct has no controller"
    assert sum(row.late for row in rows) == 9
    assert sum(row.verdicts.get("stalled", 0) for row in rows) == 9
    assert {row.n_total for row in rows} == {8}
    assert all(row.x_bound is not None and 1 < row.x_bound < 2.2 for row in rows)
    assert {len(row.censored) for row in rows} == {0, 1}


def test_systems_are_compared_with_direct_over_the_same_link(campaign: directory.Campaign) -> None:
    beside = analysis.beside(analysis.rows(tables.read(campaign.directory)))
    assert len(beside) == 24
    assert {each.reference.variant for each in beside} == {"direct"}
    assert all(each.reference.setting == each.row.setting for each in beside)
    assert all(each.comparison.ratio < 0.7 for each in beside)
    # One of eight runs that did not end well is worse than all others, and like one of the reference's.
    assert {each.comparison.effect for each in beside} <= {-1.0, (8 - 7 * 8) / 64, (7 - 7 * 8) / 64}


def test_the_same_runs_give_the_same_tables(campaign: directory.Campaign) -> None:
    before = [path.read_bytes() for path in tables.write(campaign)]
    assert [path.read_bytes() for path in tables.write(campaign)] == before


@pytest.mark.long
def test_figures_come_with_their_data_and_can_be_drawn_without_the_runs(
    campaign: directory.Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory.Campaign, "store", property(lambda _: pytest.fail("a run was read")))
    page = report.draw(campaign)
    drawings = sorted(path.stem for path in (page.parent / report.FIGURES).iterdir())
    assert any(name.startswith("medians") for name in drawings)
    assert "sweep-scenario-forward-loss" in drawings
    for name in drawings:
        data = pl.read_csv(page.parent / report.DATA / f"{name}.csv")
        assert data.height > 1
        assert {"n_ok", "n_total"} <= set(data.columns), name
        assert set(data["n_total"]) == {8}, name


def test_a_point_without_a_run_that_ended_well_stands_among_the_medians(tmp_path: Path) -> None:
    text = TEXT.replace('["first byte", "page HTTP/2"]', '"first byte"').replace("repetitions = 8", "repetitions = 2")
    made = made_up(tmp_path / "some", text, samples=0)
    lost = made.points()[0]
    for repetition in (1, 2):
        put(made.store, lost, Run(lost["id"], repetition, 1), "stalled", "", 1.0, 0)
    tables.write(made)
    drawn = charts.all_charts(analysis.rows(tables.read(made.directory)), made.directory / tables.SAMPLES_TABLE)
    chart = next(each for each in drawn if each.name == "medians-1")
    assert "(0 of 2)" in chart.svg
    line = next(each for each in chart.table if each["point"] == lost["id"])
    assert (line["n_ok"], line["n_total"], line["median_s"]) == (0, 2, None)


@pytest.mark.long
def test_every_figure_says_of_how_many_runs_it_is(campaign: directory.Campaign) -> None:
    rows = analysis.rows(tables.read(campaign.directory))
    for chart in charts.all_charts(rows, campaign.directory / tables.SAMPLES_TABLE):
        said = set(re.findall(r"<!-- (.*?) -->", chart.svg))
        assert any(re.search(r"\b[78](?: to 8)? of 8\b", text) for text in said), (chart.name, said)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_every_screen(campaign: directory.Campaign, browser: webdriver.Chrome, width: int) -> None:
    show(browser, campaign.directory / directory.REPORT / report.PAGE, width)
    for figure in browser.find_elements(By.CSS_SELECTOR, "figure > .scroll > svg"):
        assert figure.get_attribute("aria-label")
    heads = len(browser.find_elements(By.CSS_SELECTOR, "#points-table thead th"))
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#points-table tbody tr')].map((r) => r.cells.length)"
    )
    assert set(cells) == {heads}
    assert len(cells) == 36


def test_the_table_can_be_filtered_and_sorted(campaign: directory.Campaign, browser: webdriver.Chrome) -> None:
    browser.get((campaign.directory / directory.REPORT / report.PAGE).absolute().as_uri())
    browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("leo cubic")
    shown = [row for row in browser.find_elements(By.CSS_SELECTOR, "#points-table tbody tr") if row.is_displayed()]
    assert len(shown) == 6
    heads = browser.find_elements(By.CSS_SELECTOR, "#points-table thead th")
    place = [head.text for head in heads].index("x bound")
    browser.execute_script("arguments[0].click()", heads[place].find_element(By.TAG_NAME, "button"))
    values = browser.execute_script(
        "return [...document.querySelectorAll('#points-table tbody tr')]"
        f".map((row) => parseFloat(row.cells[{place}].textContent))"
    )
    assert values == sorted(values)


STUDY = """\
name = "study"
published = "kuhn"
[axes]
scenario = "geo"
system = "quic"
workload = "download 2 MB"
controller = ["satellite", "cubic"]
[[case]]
name = "4.2 medium"
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_a_study_has_its_section_and_what_was_published(tmp_path: Path, browser: webdriver.Chrome, width: int) -> None:
    its_plan = plan.parse(STUDY, tmp_path)
    made = directory.begin(its_plan, points.expand(its_plan), tmp_path / "study", None)
    for point, seconds in zip(made.points(), (2.5, 4.0), strict=True):
        run = Run(point["id"], 1, 1)
        put(made.store, point, run, "ok", "", seconds, 20)
        result = {**made.store.result(run), "metrics": {"received_2_mb_s": seconds}}
        made.store.put(run, {RESULT: json.dumps(result)})
    show(browser, report.write(made), width)
    assert "satellite 1, cubic 0" in browser.find_element(By.CSS_SELECTOR, "#study + p").text
    rows = browser.find_elements(By.CSS_SELECTOR, "#published-table tbody tr")
    texts = [row.get_attribute("textContent") or "" for row in rows]
    assert len(texts) == 2
    assert "+33.3%" in texts[1]
    assert "virtual, 4.2 medium" in texts[0], "what a case sets is named by the case"


def test_nothing_that_was_measured_is_markup_and_everything_is_said(campaign: directory.Campaign) -> None:
    page = (campaign.directory / directory.REPORT / report.PAGE).read_text()
    assert "<script>alert" not in page
    assert "&lt;b&gt;nothing" in page
    provenance = json.loads((campaign.directory / directory.PROVENANCE).read_text())
    for needed in (provenance["revision"], provenance["machine"]["kernel"], provenance["begun"], campaign.store_url):
        assert needed in page
    assert 'class="differs"' in page, "24 comparisons without overlap"


def test_a_comparison_that_is_not_clear_is_not_shown_as_clear(tmp_path: Path) -> None:
    text = TEXT.replace("repetitions = 8", "repetitions = 2").replace('["satellite", "cubic"]', '"cubic"')
    made = made_up(tmp_path / "few", text, samples=0)
    assert 'class="differs"' not in report.write(made).read_text()


def test_one_run_has_no_interval(tmp_path: Path) -> None:
    made = made_up(tmp_path / "once", TEXT.replace("repetitions = 8", "repetitions = 1"), samples=0)
    page = report.write(made)
    points = pl.read_csv(page.parent / report.DATA / "points.csv")
    assert points["median_s"].is_not_null().all()
    assert points["low_s"].is_null().all()
    row = page.read_text().partition("<tbody>")[2].partition("</tr>")[0]
    assert row.count("<td>-</td>") >= 3, row
    commands.export(made.directory, "results", tmp_path, Console(file=io.StringIO()))
    rows = pl.read_csv(tmp_path / "made-up.csv", comment_prefix="#").filter(pl.col("metric") == "seconds")
    assert rows["median"].is_not_null().all()
    assert rows["low"].is_null().all()


def test_a_campaign_without_a_run_that_ended_well_has_a_report(tmp_path: Path) -> None:
    its_plan = plan.parse(TEXT, tmp_path)
    made = directory.begin(its_plan, points.expand(its_plan), tmp_path / "empty", None)
    page = report.write(made).read_text()
    assert "36 points" in page
    first = made.points()[0]
    put(made.store, first, Run(first["id"], 1, 1), "program missing", "curl is not installed", 0.0, 0)
    assert "curl is not installed" in report.write(made).read_text()


def test_pages_have_one_distribution_together(tmp_path: Path) -> None:
    text = TEXT.replace('["first byte", "page HTTP/2"]', '"web page"')
    text = text.replace('controller = ["satellite", "cubic"]\n', "")
    text = text[: text.index('"scenario.')] + '"workload.page" = ["site 1", "site 2", "chain"]\n'
    made = made_up(tmp_path / "pages", text, samples=0)
    report.write(made)
    table = pl.read_csv(made.directory / "report" / "data" / "page-loads.csv")
    assert table["panel"].n_unique() == 2
    assert set(table["variant"]) == {"direct", "bentpipe"}
    assert table.filter(pl.col("share") > 1).is_empty()
    whole = table.group_by("panel", "variant").agg(pl.len(), pl.col("share").max())
    # 3 pages, 8 loads each; those that did not end well are never done.
    assert all(20 <= count <= 24 for count in whole["len"])


@pytest.mark.long
def test_tcp_and_quic_over_one_link_are_drawn_beside_each_other(tmp_path: Path) -> None:
    text = TEXT.replace('["direct", "bentpipe"]', '"direct"').replace(
        '["first byte", "page HTTP/2"]', '["iperf3", "perf", "first byte"]'
    )
    text = text[: text.index("controller =")]
    made = made_up(tmp_path / "beside", text)
    page = report.write(made)
    for number, scenario in enumerate(("geo", "leo"), start=1):
        table = pl.read_csv(page.parent / report.DATA / f"transports-{number}.csv")
        assert {name.split("-")[0] for name in table["point"]} == {scenario}
        assert table["point"].n_unique() == 2, "one of fixed length over each transport"
        drawing = (page.parent / report.FIGURES / f"transports-{number}.svg").read_text()
        assert "iperf3" in drawing
        assert "perf" in drawing.replace("iperf3", "")


def test_what_lasts_for_a_fixed_time_is_compared_by_what_counts_of_it(tmp_path: Path) -> None:
    text = TEXT.replace('["first byte", "page HTTP/2"]', '"iperf3"').replace('["0.01 %", "0.1 %", "1 %"]', '"1 %"')
    its_plan = plan.parse(text.replace('controller = ["satellite", "cubic"]\n', ""), tmp_path)
    made = [directory.begin(its_plan, points.expand(its_plan), tmp_path / name, None) for name in ("once", "half")]
    for share, each in zip((1.0, 0.5), made, strict=True):
        for point in each.points():
            for repetition in range(1, 9):
                goodput = share * ({"direct": 10.0}.get(point["system"], 15.0) + 0.1 * repetition)
                put(each.store, point, Run(point["id"], repetition, 1), "ok", "", 15.0, 0, goodput_mbit_s=goodput)
    page = report.write(made[0]).read_text()
    comparisons = page.partition('id="beside"')[2].partition("</table>")[0]
    assert comparisons.count("goodput (more is better)") == 2
    assert comparisons.count('<td class="differs">1.478 x</td>') == 2, "15.45 of 10.45 Mbit/s"
    out = io.StringIO()
    commands.compare(made[0].directory, made[1].directory, Console(file=out, width=200))
    assert "4 points in common; 4 differ" in out.getvalue()
    assert "10.45 Mbit/s" in out.getvalue()


def test_campaigns_are_compared_point_by_point(tmp_path: Path, campaign: directory.Campaign) -> None:
    slower = made_up(tmp_path / "slower", factor=1.5, samples=0)
    out = io.StringIO()
    commands.compare(campaign.directory, slower.directory, Console(file=out, width=200))
    # Of nine points one run of eight failed in both: of 36 comparisons these are not beyond doubt.
    assert "36 points in common; 27 differ" in out.getvalue()
    other = made_up(tmp_path / "other", TEXT.replace('"geo", "leo"', '"meo"'), samples=0)
    with pytest.raises(CampaignError, match="no point in common"):
        commands.compare(campaign.directory, other.directory, Console(file=out))


@pytest.mark.parametrize("form", ["csv", "parquet", "duckdb"])
def test_exports_hold_every_attempt_and_every_sample(campaign: directory.Campaign, tmp_path: Path, form: str) -> None:
    commands.export(campaign.directory, form, tmp_path, Console(file=io.StringIO()))
    match form:
        case "csv":
            counts = [pl.read_csv(tmp_path / f"{name}.csv").height for name in ("runs", "samples")]
        case "parquet":
            counts = [pl.read_parquet(tmp_path / f"{name}.parquet").height for name in ("runs", "samples")]
        case _:
            with duckdb.connect(str(tmp_path / "made-up.duckdb")) as base:
                counts = [len(base.table(name).fetchall()) for name in ("runs", "samples")]
    assert counts == [36 * 8 + 9, 36 * 8 * 20]


def test_results_are_one_small_table_of_points(campaign: directory.Campaign, tmp_path: Path) -> None:
    commands.export(campaign.directory, "results", tmp_path, Console(file=io.StringIO()))
    text = (tmp_path / "made-up.csv").read_text()
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert "begun " in head[1]
    assert "processors" in head[1]
    assert "load of the machine in the runs: 1.5 to 1.5" in head[2]
    rows = pl.read_csv(io.StringIO(text), comment_prefix="#").filter(pl.col("metric") == "seconds")
    assert rows.height == 36
    assert set(rows["n_total"]) <= {7, 8}
    assert rows["late"].sum() > 0
    assert rows["median"].is_not_null().all()
    assert (rows["median"] > rows["bound"]).all()


def test_tables_that_are_damaged_or_of_another_version_are_named(tmp_path: Path) -> None:
    made = made_up(tmp_path / "old", TEXT.replace("repetitions = 8", "repetitions = 1"), samples=0)
    report.write(made)
    file = made.directory / tables.RUNS_TABLE
    pl.read_parquet(file).drop("limit_s").write_parquet(file)
    with pytest.raises(CampaignError, match=r"runs\.parquet is of another version of the lab, without limit_s"):
        commands.redraw(made.directory, Console(file=io.StringIO()))
    file.write_bytes(b"PAR1")
    with pytest.raises(CampaignError, match=r"runs\.parquet is damaged; `bentpipe-lab report"):
        commands.redraw(made.directory, Console(file=io.StringIO()))
    (made.directory / directory.PROVENANCE).write_text("{")
    with pytest.raises(CampaignError, match=r"provenance\.json is damaged, and says no more with what it was begun"):
        commands.report(made.directory, Console(file=io.StringIO()))


@pytest.mark.long
def test_a_directory_that_nobody_can_write_to_can_be_looked_at(tmp_path: Path) -> None:
    made = made_up(tmp_path / "kept", TEXT.replace("repetitions = 8", "repetitions = 1"), samples=0)
    script = (
        'mount --bind "$2" "$2" && mount -o remount,ro,bind "$2" || exit 77\n'
        'for what in status pause report resume; do "$1" -m bentpipe_lab $what "$2"; echo "$what: $?"; done\n'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, str(made.directory)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = " ".join(done.stdout.split())
    assert done.returncode != 77, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "status: 0" in said
    assert "pause: 0" in said
    assert "report: 1" in said
    assert said.count("Read-only file system") == 2, said
    assert "resume: 1" in said


def test_an_unknown_format_is_told(campaign: directory.Campaign, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no format 'duck'; did you mean 'duckdb'"):
        commands.export(campaign.directory, "duck", tmp_path, Console(file=io.StringIO()))


class Toy(Workload):
    name = "toy page"
    measures = "time to the toy's end"

    def run(self, path: Topology) -> Outcome:
        raise NotImplementedError

    def bound_s(self, link: Link) -> float:
        return 3 * link.path_rtt_s


class ToySystem(System):
    name = "toy tunnel"
    label = "a toy of a tunnel"
    colour = "#123456"
    pale = "#abcdef"
    programs: ClassVar[Sequence[Program]] = (Debian("toy"),)

    def start(self, path: Topology, settings: Settings) -> None:
        raise NotImplementedError

    def address_at_server(self) -> str:
        raise NotImplementedError


@pytest.mark.long
def test_a_toy_workload_and_a_toy_system_appear_in_plan_tables_figures_and_report(tmp_path: Path) -> None:
    text = TEXT.replace('"direct", "bentpipe"', '"direct", "toy tunnel"').replace("page HTTP/2", "toy page")
    with WORKLOADS.added(Toy), SYSTEMS.added(ToySystem):
        made = made_up(tmp_path / "toy", text)
        assert {point["workload"] for point in made.points()} == {"first byte", "toy page"}
        page = report.write(made)
        written = page.read_text()
        assert "a toy of a tunnel" in written
        assert "time to the toy&#39;s end" in written
        drawings = "".join(path.read_text() for path in (page.parent / report.FIGURES).iterdir())
        assert "toy tunnel satellite, geo, toy page" in drawings
