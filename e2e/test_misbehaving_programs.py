"""Programs that lie about success or never end: the content decides, and the limit."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bentpipe_lab.campaign import emulate
from bentpipe_lab.net.topology import Topology, topology
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads import WORKLOADS
from bentpipe_lab.workloads.parts import command
from bentpipe_lab.workloads.programs import inside
from conversation import PATIENCE_S

SAYS_ALL_IS_WELL = (
    '{"http_code": 200, "time_total": 0.5, "time_starttransfer": 0.4, "time_connect": 0.1, "size_upload": 1}'
)
LIAR = """#!/bin/sh
head -c {count} /dev/zero
echo '{said}' >&2
"""
HANGS = """#!/bin/sh
echo $$ > {pid}
exec sleep 1000
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """Plain cables: no timing is looked at."""
    with topology(tmp_path_factory.mktemp("path")) as built:
        yield built


@pytest.fixture
def curl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a program is put that is taken for curl."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    place = tmp_path / "curl"
    place.touch(0o755)
    return place


@pytest.mark.parametrize("count", [2_000_000, 1000, 0])
def test_a_program_that_lies_about_success_is_found_out_by_what_it_delivers(
    path: Topology, curl: Path, count: int
) -> None:
    curl.write_text(LIAR.format(count=count, said=SAYS_ALL_IS_WELL))
    outcome = emulate._limited_run(WORKLOADS["download 2 MB"], lambda workload: workload.run(path), 60)
    assert outcome.verdict is Verdict.WRONG_CONTENT, outcome
    assert outcome.seconds is None
    assert outcome.bytes_received == count


def test_an_upload_that_nobody_received_is_found_out(path: Topology, curl: Path) -> None:
    curl.write_text(LIAR.format(count=0, said=SAYS_ALL_IS_WELL))
    outcome = emulate._limited_run(WORKLOADS["upload 10 MiB"], lambda workload: workload.run(path), 60)
    assert outcome.verdict is Verdict.WRONG_CONTENT, outcome


def test_a_program_that_never_ends_is_ended_at_the_limit(path: Topology, curl: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    curl.write_text(HANGS.format(pid=pid))
    outcome = emulate._limited_run(WORKLOADS["download 2 MB"], lambda workload: workload.run(path), 2)
    assert outcome.verdict is Verdict.TIMED_OUT, outcome
    assert outcome.detail == "not done after 2.0 s, the plan's limit"
    if pid.exists():
        assert not Path(f"/proc/{pid.read_text().strip()}").exists(), "it was ended with the run"


@pytest.mark.parametrize("output", ["", " >&2"], ids=["output", "errors"])
def test_a_program_that_prints_without_end_is_ended(
    path: Topology, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setattr(inside, "MOST_HEARD", 4 << 20)
    before = set(path.client.pids())
    argv = ["sh", "-c", f"yes it says the same thing for ever{output}"]
    outcome = emulate._limited_run(
        WORKLOADS["first byte"], lambda _workload: command.run(path, argv, lambda: "", 0), PATIENCE_S
    )
    assert outcome.verdict is Verdict.FAILED, outcome
    assert "it printed more than 4 MiB" in outcome.detail
    assert "it says the same thing" in outcome.detail
    assert set(path.client.pids()) == before


def test_what_a_program_prints_and_is_told_is_whole(path: Topology) -> None:
    told = "a line that is told\n" * 20_000
    with inside.started(path, ["sh", "-c", "cat; echo an error >&2; exit 3"]) as process:
        assert inside.heard(process, told) == (told, "an error\n")
        assert process.returncode == 3
