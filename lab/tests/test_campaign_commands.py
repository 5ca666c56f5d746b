"""The commands of a campaign as a person gives them, from the plan to the export, and what is said of wrong ones."""

import io
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from bentpipe_lab.campaign import commands, directory, journal

PLAN = """\
name = "small"
repetitions = 2
[axes]
scenario = "leo"
system = "quic"
workload = ["first byte", "download 2 MB"]
controller = ["cubic", "satellite"]
"""
LOST = """\
name = "lost"
repetitions = 2
timeout = 20
[axes]
scenario = "leo"
system = "quic"
workload = "first byte"
"scenario.forward.loss" = ["0 %", "100 %"]
"""
PATIENCE_S = 180


def lab(*words: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    """Exit code, and what was said, in one line."""
    argv = [sys.executable, "-m", "bentpipe_lab", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=cwd)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def written(tmp_path: Path, text: str) -> Path:
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    return plan


def test_a_campaign_from_its_plan_to_its_export(tmp_path: Path) -> None:
    plan, out = written(tmp_path, PLAN), tmp_path / "out"
    code, said = lab("plan", plan)
    assert (code, "4 points, 8 runs" in said, "virtual time: about" in said) == (0, True, True), said
    assert "everywhere: clock = virtual, scenario = leo, system = quic" in said
    assert not out.exists()
    code, said = lab("run", plan, "--out", out)
    assert (code, f"done: 8 of 8 runs ended well; `bentpipe-lab report {out}` shows them" in said) == (0, True), said
    code, said = lab("run", plan, "--out", out)
    assert (code, f"`bentpipe-lab resume {out}` goes on with it" in said) == (1, True), said
    code, said = lab("status", out)
    assert (code, "small: done; 8 of 8 runs ok: 8 of 8" in said) == (0, True), said
    code, said = lab("resume", out)
    assert (code, "done: 8 of 8 runs ended well" in said) == (0, True), said
    assert lab("pause", out) == (0, f"nobody works on {out}")
    for command in ("report", "redraw"):
        assert lab(command, out) == (0, str(out / "report" / "index.html"))
    code, said = lab("compare", out, out)
    assert (code, "4 points in common; 0 differ" in said) == (0, True), said
    for form, file in (("csv", "runs.csv"), ("parquet", "runs.parquet"), ("duckdb", "small.duckdb"),
                       ("results", "small.csv")):  # fmt: skip
        code, said = lab("export", out, "--format", form, "--out", tmp_path / "export")
        assert (code, str(tmp_path / "export" / file) in said) == (0, True), said
    assert pl.read_csv(tmp_path / "export" / "runs.csv").height == 8


@pytest.mark.long
def test_what_a_campaign_is_doing_is_told_whatever_it_is(tmp_path: Path) -> None:
    plan, out = written(tmp_path, PLAN), tmp_path / "out"
    campaign = directory.begin(*commands.prepared(plan), out, None)
    assert "small: not running; 0 of 8 runs" in lab("status", out)[1]
    with campaign.held():
        assert "small: running; 0 of 8 runs" in lab("status", out)[1]
        code, said = lab("resume", out)
        assert (code, "is being worked on by another process" in said) == (1, True), said
        assert lab("pause", out) == (0, "it stops when the runs in flight are done")
    assert (out / directory.PAUSE).exists()
    book = journal.Journal(out / directory.JOURNAL)
    book.append("paused", at="now", by="paused")
    book.close()
    assert "small: paused; 0 of 8 runs" in lab("status", out)[1]
    code, said = lab("resume", out)
    assert (code, "done: 8 of 8 runs ended well" in said) == (0, True), said
    assert "small: done; 8 of 8 runs" in lab("status", out)[1]


@pytest.mark.long
def test_runs_are_tried_again_by_verdict(tmp_path: Path) -> None:
    plan, out = written(tmp_path, LOST), tmp_path / "out"
    code, said = lab("run", plan, "--out", out)
    assert (code, "done: 2 of 4 runs ended well" in said) == (0, True), said
    code, said = lab("status", out)
    assert "ok: 2 of 4" in said
    assert "timed out: 2 of 4" in said
    code, said = lab("retry", out, "--verdict", "timed uot")
    assert (code, "there is no verdict 'timed uot'; did you mean 'timed out'?" in said) == (1, True), said
    code, said = lab("retry", out, "--verdict", "refused")
    assert (code, "ended with refused" in said) == (1, True), said
    code, said = lab("retry", out, "--verdict", "timed out")
    assert (code, "2 runs are tried again" in said, "done: 2 of 4" in said) == (0, True, True), said
    code, said = lab("status", out)
    assert "2 attempts were repeated" in said
    runs = sorted(path.parent.name for path in out.glob("runs/*/*/result.json"))
    assert runs == ["00001", "00001", "00001-2", "00002", "00002", "00002-2"]


LINK = """\
name = "own"
title = "A link of the test's own"
source = "test"
seed = 1
[forward]
rate = "{rate}"
delay = "50 ms"
queue = "1 BDP"
loss = "1 %"
[return]
rate = "2 Mbit/s"
delay = "50 ms"
queue = "1 BDP"
"""
EFFECT = """\
name = "effect"
repetitions = 6
[axes]
scenario = "own.toml"
system = "quic"
workload = "download 2 MB"
controller = ["bbr3", "satellite"]
"""


@pytest.mark.long
def test_the_size_of_an_effect_is_told_in_virtual_time(tmp_path: Path) -> None:
    """The same points over another link: all runs are slower, or none is."""
    for name, rate in (("before", "20 Mbit/s"), ("after", "10 Mbit/s"), ("again", "20 Mbit/s")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.toml").write_text(LINK.format(rate=rate))
        plan = written(tmp_path / name, EFFECT)
        code, said = lab("run", plan, "--out", tmp_path / name / "out")
        assert (code, "done: 12 of 12 runs ended well" in said) == (0, True), said
    code, said = lab("compare", tmp_path / "before" / "out", tmp_path / "after" / "out")
    assert (code, "2 points in common; 2 differ" in said, said.count("+1.00")) == (0, True, 2), said
    code, said = lab("compare", tmp_path / "before" / "out", tmp_path / "again" / "out")
    assert (code, "2 points in common; 0 differ" in said, said.count("+0.00")) == (0, True, 2), said


AXES = PLAN.partition("[axes]\n")[2]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"name = \xff", "plan.toml cannot be read: it is not UTF-8"),
        ("name = 'x\n", "plan.toml: not TOML: "),
        (PLAN.replace('"leo"', '"own.toml"'), "own.toml: not TOML: "),
        (PLAN.replace('"leo"', '"lea"'), "there is no scenario 'lea'; did you mean 'leo'?"),
        (PLAN.replace('"satellite"', '"satelite"'), 'controller "satelite" is unknown; there are satellite'),
        (f'clock = "real"\n{PLAN}'.replace('"quic"', '"bentpipe"').replace('"satellite"', '"satelite"'),
         'controller "satelite" is unknown; there are satellite'),
        (f'clock = "real"\n{PLAN}'.replace('"quic"', '"bentpipe"') + '"transport.expected_rat" = "1 Mbit/s"\n',
         "expected_rat"),
        (f'clock = "real"\n{PLAN}'.replace('"quic"', '"direct"').replace('controller = ["cubic", "satellite"]', "")
         .replace('["first byte", "download 2 MB"]', '"perf"') + '"workload.controller" = "cubicc"\n',
         'controller "cubicc" is unknown; there are satellite'),
        (f'sample_every = "soon"\n{PLAN}', "soon"),
        (f"repetitions = 1000\n[axes]\n{AXES}".replace("repetitions", 'name = "x"\nrepetitions')
         + '"scenario.seed" = { from = 1, to = 500, steps = 500 }\n', "2000000 runs"),
    ],
    ids=["not UTF-8", "not TOML", "scenario not TOML", "scenario", "controller, virtual", "controller, real",
         "field, real", "controller of a workload", "sampling", "too many"],
)  # fmt: skip
def test_a_plan_that_is_wrong_is_refused_before_anything_begins(tmp_path: Path, text: str | bytes, wanted: str) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "own.toml").write_text("name = ")
    for words in (("plan", plan), ("run", plan, "--out", out)):
        code, said = lab(*words)
        assert (code, "cannot go on: " in said, wanted in said) == (1, True, True), said
    assert not out.exists()


def test_places_that_are_wrong_are_told(tmp_path: Path) -> None:
    plan, out = written(tmp_path, PLAN), tmp_path / "out"
    code, said = lab("run", tmp_path / "absent.toml")
    assert (code, "absent.toml cannot be read: No such file or directory" in said) == (1, True), said
    code, said = lab("run", plan, "--out", plan)
    assert (code, "cannot go on: " in said, str(plan) in said) == (1, True, True), said
    code, said = lab("status", tmp_path)
    assert (code, "holds no campaign; `bentpipe-lab run PLAN --out" in said) == (1, True), said
    assert lab("run", plan, "--out", out)[0] == 0
    (out / directory.POINTS).write_text('{"points": [')
    code, said = lab("status", out)
    assert (code, "points.json" in said, "damaged" in said) == (1, True, True), said


@pytest.mark.long
def test_a_campaign_that_was_moved_is_whole(tmp_path: Path) -> None:
    plan, out, moved = written(tmp_path, PLAN), tmp_path / "out", tmp_path / "moved"
    assert lab("run", plan, "--out", out)[0] == 0
    out.rename(moved)
    code, said = lab("status", moved)
    assert (code, "8 of 8 runs" in said, "any more" in said) == (0, True, False), said
    code, said = lab("export", moved)
    assert (code, pl.read_csv(moved / "export" / "runs.csv").height) == (0, 8), said
    code, said = lab("resume", moved)
    assert (code, "8 runs were done before" in said, out.exists()) == (0, True, False), said


@pytest.mark.long
def test_runs_that_are_gone_are_told_and_an_earlier_report_stands(tmp_path: Path) -> None:
    plan, out, kept = written(tmp_path, PLAN), tmp_path / "out", tmp_path / "kept"
    assert lab("run", plan, "--out", out, "--store", "kept", cwd=tmp_path)[0] == 0
    code, said = lab("report", out)
    assert code == 0, said
    page = (out / "report" / "index.html").read_text()
    some = next(kept.iterdir())
    some.rename(tmp_path / "some")
    code, said = lab("report", out)
    assert (code, "2 of 8 runs are no more in" in said) == (0, True), said
    kept.rename(tmp_path / "elsewhere")
    page = (out / "report" / "index.html").read_text()
    for words in (("report", out), ("export", out), ("compare", out, out)):
        code, said = lab(*words)
        assert (code, f"none of its 8 runs is in {kept} any more" in said) == (1, True), said
    assert (out / "report" / "index.html").read_text() == page


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("nowhere://x", "Protocol not known: nowhere"),
        ("memory://x", "does not outlast this process"),
        ("{here}/a file/runs", "a file"),
        ("zip://{here}/runs.zip", "is not to be reached"),
    ],
)
def test_a_store_that_keeps_nothing_is_refused_before_anything_begins(tmp_path: Path, url: str, wanted: str) -> None:
    (tmp_path / "a file").touch()
    plan, out = written(tmp_path, PLAN), tmp_path / "out"
    code, said = lab("run", plan, "--out", out, "--store", url.format(here=tmp_path))
    assert (code, "cannot go on: " in said, wanted in said) == (1, True, True), said
    assert not out.exists()


def test_commands_that_are_told_can_be_given_as_they_stand(tmp_path: Path) -> None:
    plan, out = written(tmp_path, PLAN), tmp_path / "mit Leerzeichen & ü"
    code, said = lab("run", plan, "--out", out)
    assert (code, f"`bentpipe-lab report '{out}'` shows them" in said) == (0, True), said
    code, said = lab("run", plan, "--out", out)
    assert (code, f"`bentpipe-lab resume '{out}'` goes on" in said) == (1, True), said


def test_on_a_narrow_terminal_words_stay_whole(tmp_path: Path) -> None:
    plan = written(tmp_path, PLAN)
    narrow = Console(file=io.StringIO(), width=40, force_terminal=True, color_system=None)
    commands.show_plan(plan, narrow)
    said = narrow.file.getvalue()  # type: ignore[attr-defined]
    assert all(word in said for word in ("download", "satellite", "controller", "bound", "limit")), said
