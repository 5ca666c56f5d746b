"""What the demo does with the directory that it is given."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from bentpipe_lab.errors import LabError
from bentpipe_lab.studies import demo

COUNTS = {"geo": {"download 2 MB": 1}}


def test_an_earlier_demo_gives_way_to_a_new_one(tmp_path: Path) -> None:
    out = tmp_path / "out" / "demo"
    demo.clear(out, COUNTS)
    (out / "geo").mkdir()
    demo.clear(out, COUNTS)
    assert [path.name for path in out.iterdir()] == [demo.PLAN]


def test_somebody_elses_files_are_never_deleted(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    with pytest.raises(LabError, match=r"not a demo's.*--out"):
        demo.clear(tmp_path, COUNTS)
    assert thesis.read_text() == "years of work"


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(LabError, match="demo: Not a directory"):
        demo.clear(tmp_path / "demo", COUNTS)


def test_a_report_is_drawn_from_a_demos_records_alone(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"demo\.json.*--out"):
        demo.redraw(tmp_path / "none", Console(quiet=True))
    out = tmp_path / "demo"
    demo.clear(out, COUNTS)
    assert demo.redraw(out, Console(quiet=True)) == 1
    page = (out / "report.html").read_text()
    assert "geo-direct has no records" in page
    assert page.count("not kept") == 3, "of when and where it was measured nothing is made up"


def test_a_report_that_is_drawn_again_has_the_date_of_the_measurement(tmp_path: Path) -> None:
    demo.clear(tmp_path, COUNTS)
    measured = {"Date": "2001-02-03 04:05 UTC", "Revision": "0123456789ab", "Machine": "an abacus"}
    (tmp_path / demo.MEASURED).write_text(json.dumps(measured))
    demo.redraw(tmp_path, Console(quiet=True))
    page = (tmp_path / "report.html").read_text()
    assert all(f">{value}<" in page for value in measured.values())
