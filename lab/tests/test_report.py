"""The report from records on disk, without a network: complete, self-contained, and truthful about failures."""

import json
import re
from pathlib import Path

import pytest
from selenium import webdriver

from bentpipe_lab.analysis import budgets
from bentpipe_lab.campaign.path_run import Task
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.records.sample import Outcome, Sample
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.report import page as report
from bentpipe_lab.studies import demo
from bentpipe_lab.workloads import WORKLOADS
from screens import WIDTHS, show

COUNTS = {"first byte": 3, "download 10 MiB": 2, "download 2 MB": 2, "page HTTP/2": 1, "page HTTP/1.1": 1}


def outcome(workload: str, seconds: float) -> Outcome:
    size = WORKLOADS[workload].curve_bytes or 0
    curve = [(seconds * part / 10, size * part // 10) for part in range(1, 11)] if size else []
    objects = [
        {"path": path, "size": size, "requested_s": 0.0, "first_byte_s": seconds / 2, "complete_s": seconds}
        for path, size in (content.page_sizes().items() if WORKLOADS[workload].timeline else ())
    ]
    return Outcome(Verdict.OK, seconds, size, curve=curve, objects=objects)


def write_records(task: Task, link: Link, factor: float) -> None:
    task.directory.mkdir(parents=True)
    lines = [
        Sample("geo", task.system, workload, index, outcome(workload, factor * WORKLOADS[workload].bound_s(link)))
        for workload, index in task.rounds()
    ]
    lines[0] = Sample("geo", task.system, "first byte", 0, Outcome(Verdict.REFUSED, detail="<nobody> listens"))
    (task.directory / "records.jsonl").write_text("".join(f"{line.to_json()}\n" for line in lines))
    certificate = {"valid": task.system == "direct", "limit_us": 1000, "reasons": ["p99.9 is 4 ms"], "links": []}
    (task.directory / "certificate.json").write_text(json.dumps(certificate))


def test_report(tmp_path: Path, geo: Link) -> None:
    tasks = [Task(Path("geo.toml"), system, COUNTS, tmp_path / system) for system in ("direct", "bentpipe")]
    for task, factor in zip(tasks, (2.0, 1.1), strict=True):
        write_records(task, geo, factor)
    links = {"geo": geo}
    rows = demo.summarise(tasks, links)
    assert [(row.n_ok, row.n_total) for row in rows if row.workload == "first byte"] == [(2, 3), (2, 3)]
    assert all(row.certificate_valid for row in rows)
    target = tmp_path / "report.html"
    report.write(target, report.Material(tasks, links, rows, budgets.judge(rows), ["one thing went wrong"]))
    page = target.read_text()
    assert "one thing went wrong" in page
    assert "&lt;nobody&gt; listens" in page
    assert "INVALID: p99.9 is 4 ms" in page
    assert page.count("<svg") == page.count('<svg role="img" aria-label="') == 4
    assert "first byte, direct: 2.00" in page, "what a drawing shows is told to who does not see it"
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert not loaded, "a self-contained file loads nothing"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_fits_every_screen(tmp_path: Path, geo: Link, browser: webdriver.Chrome, width: int) -> None:
    tasks = [Task(Path("geo.toml"), system, COUNTS, tmp_path / system) for system in ("direct", "bentpipe")]
    for task, factor in zip(tasks, (2.0, 1.1), strict=True):
        write_records(task, geo, factor)
    links = {"geo": geo}
    rows = demo.summarise(tasks, links)
    target = tmp_path / "report.html"
    report.write(target, report.Material(tasks, links, rows, budgets.judge(rows), ["one thing went wrong"]))
    show(browser, target, width)
    over = (
        "return Math.max(...[...document.querySelectorAll('.card')].map((card) => card.scrollWidth - card.clientWidth))"
    )
    assert browser.execute_script(over) == 0 or width == min(WIDTHS), "a column is out of sight on a wide screen"
    tallest = "return Math.max(...[...document.querySelectorAll('tr')].map((row) => row.offsetHeight))"
    assert browser.execute_script(tallest) < 260, "a line of a table is no column of single words"


def test_late_runs_are_one_line_however_many(tmp_path: Path, geo: Link) -> None:
    task = Task(Path("geo.toml"), "direct", COUNTS, tmp_path / "direct")
    write_records(task, geo, 2.0)
    late = [
        Sample("geo", "direct", "first byte", number, Outcome(Verdict.EMULATOR_LATE, detail=f"late by {number} ms"))
        for number in range(9)
    ]
    (task.directory / "records.jsonl").write_text("".join(f"{sample.to_json()}\n" for sample in late))
    report.write(tmp_path / "report.html", report.Material([task], {"geo": geo}, [], budgets.judge([]), []))
    page = (tmp_path / "report.html").read_text()
    assert page.count("9 runs of direct: emulator late.") == page.count('class="alarm') == 1
    assert "late by 8 ms" in page


def test_report_of_a_plan_that_broke_off(tmp_path: Path, geo: Link) -> None:
    tasks = [Task(Path("geo.toml"), "direct", COUNTS, tmp_path / "direct")]
    report.write(tmp_path / "report.html", report.Material(tasks, {"geo": geo}, [], budgets.judge([]), ["broken off"]))
    assert "broken off" in (tmp_path / "report.html").read_text()
